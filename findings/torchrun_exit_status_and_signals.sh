#!/usr/bin/env bash
# torch 2.13.0: `torchrun` ends with 1 whatever ended its workers or itself, and SIGUSR1 leaves its workers behind.
#
# Two workers run under `torchrun --standalone`. One ends with 3, or is killed as by the out-of-memory killer; or
# torchrun gets a signal: SIGTERM as at a preemption, SIGUSR1 as Slurm's `--signal=USR1@60` sends it.
# Behaviour: the exit status is 1 each time. So rules that retry by exit status, as schedulers have them, cannot tell
#   a bug from a lack of memory (137) or a preemption (143); the workers' own status is in the log only. SIGTERM,
#   SIGINT, SIGHUP and SIGQUIT are passed to the workers. SIGUSR1 is not: it kills torchrun, and the workers, which
#   have sessions of their own, go on.
# Expected: 3, 137 and 143, or another way for programs to ask; no workers without torchrun. With SIGUSR1 in its option
#   --signals-to-handle, torchrun ends them.
# Sources: torch/distributed/elastic/multiprocessing/api.py: `_terminate_process_handler`, `SignalException`;
#   torch/distributed/elastic/multiprocessing/errors: `ChildFailedError`.
#
# Output:
#   a worker ends with 3: torchrun ends with 1, workers left: 0
#   a worker gets SIGKILL: torchrun ends with 1, workers left: 0
#   torchrun gets SIGTERM: torchrun ends with 1, workers left: 0
#   torchrun gets SIGUSR1: torchrun ends with SIGUSR1, workers left: 2
# Exit status: 0 while torchrun behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder OMP_NUM_THREADS=1
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0
cat > "$folder/worker.py" <<'PYTHON'
import os
import sys
import time
from pathlib import Path

folder, what = sys.argv[1:]
name = Path(folder) / os.environ["RANK"]
name.with_suffix(".new").write_text(str(os.getpid()))
name.with_suffix(".new").rename(name.with_suffix(".pid"))
if os.environ["RANK"] == "1":
    if what == "exit":
        sys.exit(3)
    if what == "kill":
        os.kill(os.getpid(), 9)
time.sleep(100)
PYTHON
cat > "$folder/show.py" <<'PYTHON'
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

TORCHRUN, FOLDER = sys.argv[1], Path(sys.argv[2])


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run(what, number=None):
    folder = FOLDER / f"{what}-{number}"
    folder.mkdir()
    command = [TORCHRUN, "--standalone", "--nproc-per-node=2", str(FOLDER / "worker.py"), str(folder), what]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while len(found := list(folder.glob("*.pid"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        pids = [int(path.read_text()) for path in found]
        if number is not None:
            process.send_signal(number)
        status = process.wait(timeout=60)
    time.sleep(2)
    left = [pid for pid in pids if is_alive(pid)]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return (status if status >= 0 else signal.Signals(-status).name), len(left)


seen = {
    "a worker ends with 3": run("exit"),
    "a worker gets SIGKILL": run("kill"),
    "torchrun gets SIGTERM": run("sleep", signal.SIGTERM),
    "torchrun gets SIGUSR1": run("sleep", signal.SIGUSR1),
}
for label, (status, left) in seen.items():
    print(f"{label}: torchrun ends with {status}, workers left: {left}")
sys.exit(list(seen.values()) != [(1, 0), (1, 0), (1, 0), ("SIGUSR1", 2)])
PYTHON
timeout 120 "$folder/venv/bin/python" "$folder/show.py" "$folder/venv/bin/torchrun" "$folder"
