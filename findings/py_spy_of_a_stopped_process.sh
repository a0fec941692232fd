#!/usr/bin/env bash
# py-spy 0.4.3: `dump` of a process that a signal has stopped fails, with `--native` too; only `--nonblocking` reads it.
#
# A training that hangs may be stopped by SIGSTOP: by a scheduler that suspends jobs, by Ctrl-Z, by a debugger that
# was killed. Its stack does not move, and should be the easiest to read.
# Behaviour: py-spy attaches by ptrace and takes the answer of the kernel, a stop by SIGSTOP, for an error: "Failed to
#   suspend process", exit status 1. With `--nonblocking`, which only reads memory, the stack is there. The process
#   stays stopped, and runs on after SIGCONT.
# Expected: the stack, without an option.
# Compare: llnl/STAT#50, where dumps of stopped ranks were not reliable either.
#
# Output (Linux 6, Python 3.11; needs the right to trace, as for any other process):
#   running: stack read
#   stopped: Error: Failed to get stack traces / Failed to suspend process
#   stopped, --native: Error: Failed to get stack traces / Failed to suspend process
#   stopped, --nonblocking: stack read
#   continued: stack read
# Exit status: 0 while py-spy behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check py-spy==0.4.3
cat > "$folder/train.py" <<'PYTHON'
import time


def train():
    print("ready", flush=True)
    time.sleep(300)


train()
PYTHON
cat > "$folder/show.py" <<'PYTHON'
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PY_SPY, SCRIPT = sys.argv[1:]
ERROR = "Error: Failed to get stack traces / Failed to suspend process"


def wait_for(pid, state):
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
        time.sleep(0.05)


def dump(pid, *options):
    command = [PY_SPY, "dump", "--json", *options, "--pid", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode == 0:
        names = [frame["name"] for thread in json.loads(done.stdout) for frame in thread["frames"]]
        return "stack read" if "train" in names else f"other frames: {names}"
    lines = [line.strip() for line in done.stderr.splitlines()]
    causes = [line.partition(": ")[2] for line in lines if line.startswith("0: Failed")]
    return " / ".join([lines[0], *causes[:1]])


process = subprocess.Popen([sys.executable, SCRIPT], stdout=subprocess.PIPE, text=True)
try:
    process.stdout.readline()
    wait_for(process.pid, "S")
    seen = {"running": dump(process.pid)}
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(process.pid, "T")
    seen["stopped"] = dump(process.pid)
    seen["stopped, --native"] = dump(process.pid, "--native")
    seen["stopped, --nonblocking"] = dump(process.pid, "--nonblocking")
    os.kill(process.pid, signal.SIGCONT)
    wait_for(process.pid, "S")
    seen["continued"] = dump(process.pid)
finally:
    process.kill()
for label, answer in seen.items():
    print(f"{label}: {answer}")
expected = ["stack read", ERROR, ERROR, "stack read", "stack read"]
sys.exit(list(seen.values()) != expected)
PYTHON
timeout 100 "$folder/venv/bin/python" "$folder/show.py" "$folder/venv/bin/py-spy" "$folder/train.py"
