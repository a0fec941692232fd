#!/usr/bin/env bash
# Ray 2.60.0: `ray.kill` spares processes that a process of the actor has started in a session of their own.
#
# Steps: an actor starts a shell, which starts `sleep` with and without `setsid`; then the actor is killed. Both are
# looked for 10 seconds later.
# Seen on Python 3.11: "worker: gone, shell: gone, sleep: gone, setsid sleep: alive".
# One might expect: what an actor has started ends with it, as all other processes here do.
# Exit status: 0 while Ray behaves like this, 1 when it does not.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder RAY_USAGE_STATS_ENABLED=0
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "ray==2.60.0"

timeout 180 "$folder/venv/bin/python" - <<'PYTHON'
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import ray

SCRIPT = "sleep 100 >/dev/null & echo $!; setsid sleep 100 >/dev/null & echo $!; wait"
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)


@ray.remote
class Actor:
    def start(self):
        shell = subprocess.Popen(["sh", "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
        first, second = int(shell.stdout.readline()), int(shell.stdout.readline())
        return {"worker": os.getpid(), "shell": shell.pid, "sleep": first, "setsid sleep": second}


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


actor = Actor.remote()
pids = ray.get(actor.start.remote())
ray.kill(actor)
time.sleep(10)
alive = {name: is_alive(pid) for name, pid in pids.items()}
with suppress(ProcessLookupError):
    os.kill(pids["setsid sleep"], signal.SIGKILL)
ray.shutdown()
print(f"ray {ray.__version__}")
print(", ".join(f"{name}: {'alive' if found else 'gone'}" for name, found in alive.items()))
sys.exit(0 if [name for name, found in alive.items() if found] == ["setsid sleep"] else 1)
PYTHON
