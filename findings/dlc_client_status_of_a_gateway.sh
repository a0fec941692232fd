#!/usr/bin/env bash
# An error of a gateway that is no JSON reaches a program of the DLC client as a parse error without its HTTP status.
#
# Version: alibabacloud-pai-dlc20201203 1.11.6 with alibabacloud-tea-openapi 0.4.6, darabonba-core 1.0.9; Python 3.11.
# Behaviour: a 502, 503 or 504 with a page of HTML, as proxies and load balancers send it, becomes an
#   UnretryableException around a RuntimeError: "Failed to parse the value as json format". Neither has the status, so a
#   program cannot tell that a repeated read would help; `retry_options` do not repeat it either. A 503 with JSON is a
#   ServerException with `statusCode` 503.
# Expected: the same exception for both, with the status, and the text of the body where it is no JSON.
#
# Output:
#   503, application/json: ServerException, statusCode 503, 1 of 1 requests
#   503, text/html: UnretryableException, statusCode None, 1 of 1 requests
#   with retry_options, 503, application/json: ServerException, statusCode 503, 3 of 3 requests
#   with retry_options, 503, text/html: UnretryableException, statusCode None, 1 of 3 requests
# Exit status: 0 while the client behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check alibabacloud_pai_dlc20201203==1.11.6 \
    alibabacloud-tea-openapi==0.4.6 darabonba-core==1.0.9
"$folder/venv/bin/python" - <<'PYTHON'
import http.server
import sys
import threading

from alibabacloud_pai_dlc20201203.client import Client
from alibabacloud_pai_dlc20201203.models import GetJobRequest
from alibabacloud_tea_openapi.models import Config
from darabonba.policy.retry import RetryOptions

BODIES = {
    "application/json": b'{"Code": "ServiceUnavailable", "Message": "later", "RequestId": "1"}',
    "text/html": b"<html><h1>503 Service Temporarily Unavailable</h1></html>",
}
requests, kind = [], ""


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        requests.append(self.path)
        self.send_response(503)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(BODIES[kind])))
        self.end_headers()
        self.wfile.write(BODIES[kind])


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
# Each class and code that the two errors could have.
RETRIES = {
    "retryable": True,
    "retryCondition": [
        {"maxAttempts": 3, "exception": ["RetryError", "RuntimeError", "ServerException", "UnretryableException"],
         "errorCode": ["ServiceUnavailable"], "backoff": {"policy": "Fixed", "period": 50}},
    ],
}
seen = []
for name, attempts, more in (("", 1, {}), ("with retry_options, ", 3, {"retry_options": RetryOptions(options=RETRIES)})):
    endpoint = f"127.0.0.1:{server.server_port}"
    client = Client(Config(access_key_id="key", access_key_secret="secret", endpoint=endpoint, protocol="http", **more))
    for kind in BODIES:
        requests.clear()
        try:
            client.get_job("dlc1", GetJobRequest())
        except Exception as error:
            told = (type(error).__name__, getattr(error, "statusCode", None), len(requests))
        seen.append(told)
        print(f"{name}503, {kind}: {told[0]}, statusCode {told[1]}, {told[2]} of {attempts} requests")
expected = [("ServerException", 503, 1), ("UnretryableException", None, 1)]
sys.exit(seen != [*expected, ("ServerException", 503, 3), ("UnretryableException", None, 1)])
PYTHON
