#!/usr/bin/env bash
# osstorchconnector 1.2.3 (Alibaba's connector of OSS for PyTorch), OssCheckpoint, with a bucket that takes 2 s for each response.
#
# 1. A checkpoint that is written again to the same key is deleted first, before a byte of the new one is sent. A process that
#    is killed in between leaves neither. Seen (requests, in this order):
#      DELETE /run/last.pt
#      POST /run/last.pt?uploads
#      PUT /run/last.pt?partNumber=1&uploadId=1
#      POST /run/last.pt?uploadId=1
# 2. While `write`, `close` and `read` wait for OSS, they hold the interpreter's lock, so no other thread of the process runs: no
#    heartbeat, no data loader, no progress bar. Seen: another thread, which sleeps 10 ms at a time, stood still for 4 s in a
#    write (the deletion and the start of an upload), for 4 s in the end of it (one part and its completion), for 2 s in a read.
#
# It sends requests to the host BUCKET.ENDPOINT, which must have a name: with an endpoint that is an IP address, writing fails
# ("failed to open"). It also needs `region=` for any endpoint that is not one of Alibaba Cloud ("failed to infer region").
#
# Needs Linux and root: the name of the bucket's host is put into a private copy of /etc/hosts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q osstorchconnector==1.2.3 torch==2.13.0

cat >"$folder/server.py" <<'PY'
import http.server
import pathlib
import time

FOLDER = pathlib.Path(__file__).parent


class Bucket(http.server.BaseHTTPRequestHandler):
    """Answers as OSS does, after two seconds, and writes down what was asked."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(2)
        with (FOLDER / "requests").open("a") as file:
            print(self.command, self.path, file=file)
        body, status = b"", 200
        if self.command == "DELETE":
            status = 204
        elif self.path.endswith("?uploads"):
            body = (
                b"<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>run/last.pt</Key>"
                b"<UploadId>1</UploadId></InitiateMultipartUploadResult>"
            )
        elif self.command == "POST":
            body = (
                b"<CompleteMultipartUploadResult><Bucket>bucket</Bucket><Key>run/last.pt</Key>"
                b'<ETag>"0"</ETag></CompleteMultipartUploadResult>'
            )
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"5D41402ABC4B2A76B9719D911017C592"')
        self.send_header("x-oss-request-id", "1")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
(FOLDER / "port").write_text(str(server.server_port))
server.serve_forever()
PY

cat >"$folder/run.py" <<'PY'
import json
import pathlib
import threading
import time

from osstorchconnector import OssCheckpoint

FOLDER = pathlib.Path(__file__).parent
key = {"AccessKeyId": "id", "AccessKeySecret": "secret", "SecurityToken": "", "Expiration": "2036-01-01T00:00:00Z"}
config = {
    "logLevel": 1,
    "logPath": str(FOLDER / "log"),
    "auditPath": str(FOLDER / "audit"),
    "datasetConfig": {"prefetchConcurrency": 4, "prefetchWorker": 1},
    "checkpointConfig": {"prefetchConcurrency": 4, "prefetchWorker": 1, "uploadConcurrency": 4},
}
(FOLDER / "key.json").write_text(json.dumps(key))
(FOLDER / "config.json").write_text(json.dumps(config))
checkpoints = OssCheckpoint(
    endpoint=f"http://store.test:{(FOLDER / 'port').read_text()}",
    region="cn-test",
    cred_path=str(FOLDER / "key.json"),
    config_path=str(FOLDER / "config.json"),
)
pauses = []


def beat():
    last = time.monotonic()
    while True:
        time.sleep(0.01)
        now = time.monotonic()
        pauses.append(now - last)
        last = now


def stood_still(what, work):
    time.sleep(0.1)
    pauses.clear()
    try:
        work()
    except RuntimeError:  # of the read: the answers of this bucket have no content
        pass
    time.sleep(0.1)
    print(what, round(max(pauses)))


threading.Thread(target=beat, daemon=True).start()
writer = checkpoints.writer("oss://bucket/run/last.pt")
stood_still("write", lambda: writer.write(b"weights"))
stood_still("close", writer.close)
reader = checkpoints.reader("oss://bucket/run/last.pt")
stood_still("read", lambda: reader.read(1))
stood_still("sleep", lambda: time.sleep(2))
PY

python3 "$folder/server.py" &
server=$!
trap 'kill "$server"; rm -rf "$folder"' EXIT
for _ in $(seq 100); do [ -s "$folder/port" ] && break || sleep 0.1; done
{ cat /etc/hosts; echo "127.0.0.1 bucket.store.test"; } >"$folder/hosts"
unshare --mount bash -c "mount --bind '$folder/hosts' /etc/hosts && timeout 120 '$folder/venv/bin/python' '$folder/run.py'" \
    >"$folder/output" 2>&1 || { cat "$folder/output"; exit 1; }
{ head -n 4 "$folder/requests" && grep -E '^(write|close|read|sleep) ' "$folder/output"; } | tee "$folder/seen"
diff "$folder/seen" - <<'SEEN'
DELETE /run/last.pt
POST /run/last.pt?uploads
PUT /run/last.pt?partNumber=1&uploadId=1
POST /run/last.pt?uploadId=1
write 4
close 4
read 2
sleep 0
SEEN
echo "as described"
