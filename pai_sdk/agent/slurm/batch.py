"""The batch script of a job: claims the job, starts one task an instance by `srun`, and waits for all of them.

Slurm may start a job twice: its controller forgets what it did in its last seconds when it is killed, and some
clusters start a job again after its node was lost. A start that does not get the claim runs nothing. While an
earlier one lives, it waits, because the end of a Slurm job ends all that runs under the job's number.
Standard library only.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pai_sdk.agent.journal import Journal
from pai_sdk.agent.protocol import Ending
from pai_sdk.agent.reasons import REASON_NODE_LOST, REASON_PREEMPTED
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.agent.slurm.gang_folder import BEAT_EVERY_S, Claim, GangFolder

__all__ = ["main"]

_RUN = (
    "import sys; sys.path.append(sys.argv[1]); from pai_sdk.agent.slurm.task import main; "
    "sys.exit(main(*sys.argv[1:]))"
)
_STARTED_AGAIN = (
    "Slurm has started the job a second time (restart {restarts} of Slurm job {number}), after {what}. It was not "
    "run again by Slurm; submit it again."
)


def main(package: str, root: str) -> int:
    """Run the job in a folder, unless another start of it does.

    Args:
        package: the folder that contains the package `pai_sdk`.
        root: the job's folder.

    Returns:
        The exit code for Slurm: 0 if all instances ended with 0.
    """
    sandbox = Sandbox(Path(root))
    gang = GangFolder(sandbox.shared_dir)
    job = Journal(sandbox.state_dir).read_job() if gang.path.is_dir() else None
    if job is None:
        _note("the job was withdrawn or removed; nothing is run")
        return 0
    number, restarts = os.environ["SLURM_JOB_ID"], int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    if not gang.take(Claim(number, restarts, socket.gethostname())):
        return _wait_for_the_other(gang, job, number, restarts)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the tasks get it too, and end in their time
    environment = {name: value for name, value in os.environ.items() if name != "SLURM_EXPORT_ENV"}
    steps = subprocess.Popen([*_srun(job), sys.executable, "-I", "-c", _RUN, package, root], env=environment)
    while True:
        gang.beat()
        try:
            return steps.wait(BEAT_EVERY_S)
        except subprocess.TimeoutExpired:
            _pass_ends_on(gang, _names(job))


def _names(job: dict[str, Any]) -> list[str]:
    return [one["instance"]["name"] for one in job["instances"]]


def _pass_ends_on(gang: GangFolder, names: list[str]) -> None:
    """Have the other instances end, too, where the task of a failed one was killed and could not tell them."""
    for name in names:
        state = gang.state(name)
        if state is None or state.phase != "ended" or state.succeeded or not state.reason_code:
            continue
        if not gang.is_alive(name):
            gang.write_ending(Ending(state.reason_code, state.reason_message, state.failed_instance))


def _srun(job: dict[str, Any]) -> list[str]:
    count = len(job["instances"])
    return [
        "srun",
        f"--ntasks={count}",
        f"--cpus-per-task={job['resources']['cpus']}",
        "--export=ALL",
        "--kill-on-bad-exit=0",  # the tasks end each other, so that the first failure is the one reported
        "--mpi=none",
        "--input=none",
    ]


def _wait_for_the_other(gang: GangFolder, job: dict[str, Any], number: str, restarts: int) -> int:
    names = _names(job)
    claim = gang.claim
    if claim is None or claim.slurm_job_id != number:
        _note(f"another start has the job: {claim}; nothing is run")
        return 0
    _note(f"an earlier start of this Slurm job has the job: {claim}; waiting for its end")
    while any(map(gang.is_alive, ["", *names])):
        time.sleep(BEAT_EVERY_S)
    if restarts > claim.restarts:
        told = gang.is_told(names)
        what = "another job needed its nodes" if told else "the node or the daemon that had it was lost"
        code = REASON_PREEMPTED if told else REASON_NODE_LOST
        gang.write_ending(Ending(code, _STARTED_AGAIN.format(restarts=restarts, number=number, what=what)))
    return 0


def _note(text: str) -> None:
    """Write a line to the log of the Slurm job."""
    sys.stderr.write(f"pai-sdk: {text}\n")
    sys.stderr.flush()
