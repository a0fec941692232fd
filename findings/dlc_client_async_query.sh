#!/usr/bin/env bash
# The two halves of the DLC client quote a query differently; the asynchronous one signs another text than it sends.
#
# Version: alibabacloud-pai-dlc20201203 1.11.6 with alibabacloud-tea-openapi 0.4.6, darabonba-core 1.0.9,
#   aiohttp 3.14.3, yarl 1.24.5; Python 3.11.
# Behaviour: `list_jobs` sends "/" and ":" of values as %2F and %3A, `list_jobs_async` sends them unquoted; both send a
#   space as "+". Both sign a query with %2F, %3A and %20. So a service that verifies the signature over the query as it
#   was received refuses the asynchronous client (and both, where a value has a space): it must decode the query, and
#   quote it again as the signature has it.
# Expected: the query that is sent is the one that is signed.
#
# Output:
#   list_jobs: Tags=%7B%22k%22%3A%22v%2Fw%22%7D
#       signed as sent: True, signed when quoted again: True
#   list_jobs_async: Tags=%7B%22k%22:%22v/w%22%7D
#       signed as sent: False, signed when quoted again: True
# Exit status: 0 while the client behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check alibabacloud_pai_dlc20201203==1.11.6 \
    alibabacloud-tea-openapi==0.4.6 darabonba-core==1.0.9 aiohttp==3.14.3 yarl==1.24.5
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import hashlib
import hmac
import http.server
import sys
import threading
import urllib.parse

from alibabacloud_pai_dlc20201203.client import Client
from alibabacloud_pai_dlc20201203.models import ListJobsRequest
from alibabacloud_tea_openapi.models import Config

received = []


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        received.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        body = b'{"Jobs": [], "TotalCount": 0, "RequestId": "1"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def is_signed(headers, path, query):
    """Whether the signature is that of ACS3-HMAC-SHA256 for this query."""
    fields = dict(part.split("=", 1) for part in headers["authorization"].split(" ", 1)[1].split(","))
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in fields["SignedHeaders"].split(";"))
    text = "\n".join(["GET", path, query, lines, fields["SignedHeaders"], headers["x-acs-content-sha256"]])
    digest = hashlib.sha256(text.encode()).hexdigest()
    made = hmac.new(b"secret", f"ACS3-HMAC-SHA256\n{digest}".encode(), hashlib.sha256).hexdigest()
    return made == fields["Signature"]


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
endpoint = f"127.0.0.1:{server.server_port}"
client = Client(Config(access_key_id="key", access_key_secret="secret", endpoint=endpoint, protocol="http"))
client.list_jobs(ListJobsRequest(tags={"k": "v/w"}))
asyncio.run(client.list_jobs_async(ListJobsRequest(tags={"k": "v/w"})))
seen = []
for name, (target, headers) in zip(("list_jobs", "list_jobs_async"), received, strict=True):
    path, _, query = target.partition("?")
    again = urllib.parse.urlencode(urllib.parse.parse_qsl(query), quote_via=urllib.parse.quote, safe="")
    seen.append((is_signed(headers, path, query), is_signed(headers, path, again)))
    print(f"{name}: {query}\n    signed as sent: {seen[-1][0]}, signed when quoted again: {seen[-1][1]}")
sys.exit(seen != [(True, True), (False, True)])
PYTHON
