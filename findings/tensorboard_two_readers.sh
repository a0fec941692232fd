#!/usr/bin/env bash
# tensorboard 2.20.0 with tensorboard-data-server 0.7.2: its two readers show different curves of the same event file.
#
# A run logs `loss` at the steps 0 to 119; then one value is logged once more at step 50 (a corrected value, or a
# later evaluation). TensorBoard has two readers of event files: the data server in Rust, which `tensorboard` uses by
# default where its wheel is installed (--load_fast=auto), and the one in Python (--load_fast=false; also
# `EventAccumulator`, which exporters use).
#
# Seen: the data server drops everything behind the repeated step, so 69 later points are hidden without a word:
#   load_fast=true:  51 points, the last step is 50
#   load_fast=false: 121 points, the last step is 50 (the one that was written last), the largest is 119
# Exits 0 while this is so, 1 when it has changed.
set -euo pipefail
folder=$(mktemp -d)
server=""
finish() { if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi; rm -rf "$folder"; }
trap finish EXIT
export HOME=$folder
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
    tensorboard==2.20.0 tensorboard-data-server==0.7.2 protobuf==6.32.1 'setuptools==80.9.0'
cat > "$folder/write.py" <<'PY'
import sys

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter(sys.argv[1])
for number, step in enumerate([*range(120), 50]):
    value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
    writer.add_event(Event(wall_time=1_790_000_000 + number, step=step, summary=Summary(value=[value])))
writer.close()
PY
cat > "$folder/read.py" <<'PY'
import json
import sys
import time
import urllib.error
import urllib.request

url = f"http://127.0.0.1:{sys.argv[1]}/data/plugin/scalars/scalars?run=a&tag=loss"
points = []
for _ in range(60):
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            points = json.load(response)
    except (urllib.error.URLError, OSError):
        points = []
    if points:
        break
    time.sleep(0.5)
print(len(points), points[-1][1] if points else None, max((step for _, step, _ in points), default=None))
PY
"$folder/venv/bin/python" "$folder/write.py" "$folder/runs/a"
for fast in true false; do
    port=$("$folder/venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$folder/venv/bin/tensorboard" --logdir "$folder/runs" --host 127.0.0.1 --port "$port" --load_fast="$fast" \
        --samples_per_plugin scalars=1000 > "$folder/log-$fast" 2>&1 &
    server=$!
    "$folder/venv/bin/python" "$folder/read.py" "$port" > "$folder/$fast"
    kill "$server"; wait "$server" 2>/dev/null || true; server=""
    echo "load_fast=$fast: points, last step, largest step: $(cat "$folder/$fast")"
done
[ "$(cat "$folder/true")" = "51 50 50" ] && [ "$(cat "$folder/false")" = "121 50 119" ]
