#!/usr/bin/env bash
# The client of DLC takes `autoretry` and `max_attempts`, and sends each request once all the same.
#
# Version: alibabacloud-pai-dlc20201203 1.11.6 with alibabacloud-tea-openapi 0.4.6, alibabacloud-tea-util 0.3.15,
#   darabonba-core 1.0.9; Python 3.11.
# Behaviour: RuntimeOptions(autoretry=True, max_attempts=3) changes nothing: GetJob is sent once when it takes longer
#   than the time-out, and once when the response is a 503. `Config(retry_options=…)` of darabonba works: the same calls
#   are sent three times. It also sends CreateJob three times after a time-out when its exception is listed, and
#   CreateJob has no token by which the service could tell repeats.
# Expected: three requests for a read, as the two options of the runtime say.
#
# Output:
#   autoretry, 503: 1 request
#   autoretry, time-out: 1 request
#   retry_options, 503: 3 requests
#   retry_options, time-out: 3 requests
# Exit status: 0 while the client behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check alibabacloud_pai_dlc20201203==1.11.6 \
    alibabacloud-tea-openapi==0.4.6 alibabacloud-tea-util==0.3.15 darabonba-core==1.0.9
"$folder/venv/bin/python" - <<'PYTHON'
import http.server
import sys
import threading
import time

from alibabacloud_pai_dlc20201203.client import Client
from alibabacloud_pai_dlc20201203.models import GetJobRequest
from alibabacloud_tea_openapi.models import Config
from alibabacloud_tea_util.models import RuntimeOptions
from darabonba.policy.retry import RetryOptions

requests, mode = [], "503"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        requests.append(self.path)
        if mode == "time-out":
            time.sleep(2)
        body = b'{"Code": "ServiceUnavailable", "Message": "later", "RequestId": "1"}'
        try:
            self.send_response(503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
RETRIES = {
    "retryable": True,
    "retryCondition": [
        {"maxAttempts": 3, "exception": ["RetryError"], "errorCode": ["ServiceUnavailable"],
         "backoff": {"policy": "Fixed", "period": 50}},
    ],
}


def client(**more):
    endpoint = f"127.0.0.1:{server.server_port}"
    return Client(Config(access_key_id="key", access_key_secret="secret", endpoint=endpoint, protocol="http", **more))


ways = {
    "autoretry": (client(), RuntimeOptions(autoretry=True, max_attempts=3, read_timeout=500)),
    "retry_options": (client(retry_options=RetryOptions(options=RETRIES)), RuntimeOptions(read_timeout=500)),
}
counts = []
for name, (made, runtime) in ways.items():
    for mode in ("503", "time-out"):
        requests.clear()
        try:
            made.get_job_with_options("dlc1", GetJobRequest(), {}, runtime)
        except Exception:
            pass
        counts.append(len(requests))
        print(f"{name}, {mode}: {len(requests)} request{'s' if len(requests) > 1 else ''}")
sys.exit(counts != [1, 1, 3, 3])
PYTHON
