#!/usr/bin/env bash
# The bytes that `get_object` returns are compared with their CRC-64 by neither of the two libraries of OSS.
#
# Versions: oss2 2.19.1, alibabacloud-oss-v2 1.4.1; Python 3.11.
# Behaviour: the response has `x-oss-hash-crc64ecma`, and one byte of its body differs from what the store has. Both
#   libraries check by default what they write to a file: oss2 raises, the newer one fetches again or raises. Of
#   `get_object`, both return the damaged bytes. oss2 has computed the right and the wrong CRC-64 by then (`client_crc`
#   and `server_crc` of the result differ), and leaves the comparison to the caller; the newer library has no such value.
# Expected: an error, as for files.
#
# Output:
#   oss2, get_object: the damaged bytes, no error
#   oss2, its two checksums are equal: False
#   oss2, get_object_to_file: InconsistentError
#   oss-v2, get_object: the damaged bytes, no error
#   oss-v2, downloader: DownloadError
#   oss-v2, get_object_to_file: the right bytes, after 2 requests
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check alibabacloud-oss-v2==1.4.1 oss2==2.19.1 "setuptools<81"
cat > "$folder/show.py" <<'PYTHON'
import logging
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import alibabacloud_oss_v2 as oss
import crcmod
import oss2

logging.disable(logging.CRITICAL)
CONTENT = b"x" * 100_000
CRC64 = crcmod.mkCrcFun(0x142F0E1EBA9EA3693, initCrc=0, xorOut=0xFFFFFFFFFFFFFFFF, rev=True)(CONTENT)
gets = 0


class Store(BaseHTTPRequestHandler):
    """Sends one wrong byte with the first GET."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        global gets
        gets += self.command == "GET"
        body = bytearray(CONTENT)
        body[5_000] ^= gets == 1
        self.send_response(206 if self.headers.get("Range") else 200)
        if self.headers.get("Range"):
            self.send_header("Content-Range", f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"0123-1"')
        self.send_header("Last-Modified", "Wed, 25 Nov 2026 10:00:00 GMT")
        self.send_header("x-oss-hash-crc64ecma", str(CRC64))
        self.send_header("x-oss-request-id", "1")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
threading.Thread(target=server.serve_forever, daemon=True).start()
endpoint = f"http://127.0.0.1:{server.server_port}"
config = oss.config.load_default()
config.credentials_provider = oss.credentials.StaticCredentialsProvider("id", "secret")
config.region, config.endpoint, config.use_path_style = "cn-test", endpoint, True
client = oss.Client(config)
bucket = oss2.Bucket(oss2.AuthV4("id", "secret"), endpoint, "bucket", region="cn-test", is_path_style=True)
request = oss.GetObjectRequest(bucket="bucket", key="key")
path = os.path.join(sys.argv[1], "file")


def to_file(fetch):
    fetch()
    with open(path, "rb") as file:
        return file.read()


def read_by_oss2():
    global result
    result = bucket.get_object("key")
    return result.read()


for name, fetch in (
    ("oss2, get_object", read_by_oss2),
    ("oss2, get_object_to_file", lambda: to_file(lambda: bucket.get_object_to_file("key", path))),
    ("oss-v2, get_object", lambda: client.get_object(request).body.read()),
    ("oss-v2, downloader", lambda: to_file(lambda: client.downloader().download_file(request, filepath=path))),
    ("oss-v2, get_object_to_file", lambda: to_file(lambda: client.get_object_to_file(request, path))),
):
    gets = 0
    try:
        content = fetch()
    except Exception as error:
        print(f"{name}: {type(error).__name__}")
    else:
        requests = f", after {gets} requests" if gets > 1 else ", no error"
        print(f"{name}: the {'right' if content == CONTENT else 'damaged'} bytes{requests}")
    if fetch is read_by_oss2:
        print(f"oss2, its two checksums are equal: {result.client_crc == result.server_crc}")
PYTHON
output=$("$folder/venv/bin/python" -W ignore "$folder/show.py" "$folder")
echo "$output"
expected=$(sed -n '/^# Output:/,/^set /{s/^#   //p}' "$0")
[ "$output" = "$expected" ] || { echo "the behaviour has changed"; exit 1; }
