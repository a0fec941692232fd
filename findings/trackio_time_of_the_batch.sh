#!/usr/bin/env bash
# trackio 0.43.0: a metric has the time at which its batch was stored, not the time of `log()`.
#
# Metrics are stored in batches, every half second. Their entries carry no time of their own (those of system metrics
# do), so all steps of a batch get one and the same time, and a batch that had to wait gets the time of its delivery.
# Time axes and steps per second computed from the stored times are steps of a stair.
#
# Seen: eight values logged 40 ms apart, then `finish()`:
#   8 steps over 0.3 s, 1 time (2 where a batch ends in between)
# Exits 0 while this is so, 1 when it has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder TRACKIO_DIR=$folder/store
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check trackio==0.43.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import contextlib
import io
import sqlite3
import sys
import time

import trackio

times = []
with contextlib.redirect_stdout(io.StringIO()):
    trackio.init(project="digits", name="one")
    time.sleep(1)  # what the start stored is a batch of its own
    for step in range(8):
        times.append(time.time())
        trackio.log({"loss": 1 / (step + 1)}, step=step)
        time.sleep(0.04)
    trackio.finish()
with contextlib.closing(sqlite3.connect("store/digits.db")) as database:
    stored = database.execute("select step, timestamp from metrics order by step").fetchall()
different = len({time for _, time in stored})
print(f"{len(stored)} steps over {times[-1] - times[0]:.1f} s, {different} time{'s' * (different > 1)}")
# A batch may end in between, so two times are the same behaviour.
sys.exit(0 if len(stored) == 8 and different <= 2 else 1)
PY
