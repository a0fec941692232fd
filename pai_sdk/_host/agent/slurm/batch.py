"""The batch script of a job: claims the job, starts one task per instance by `srun`, and waits for all of them.

Slurm may start a job twice: its controller loses the actions of its last seconds when it is killed, and some
clusters start a job again after its node was lost. A start that does not get the claim runs nothing. While an
earlier start is alive, it waits, because the end of a Slurm job kills all processes under its job id. Standard
library only.
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

from pai_sdk._core.reasons import REASON_NODE_LOST, REASON_PREEMPTED
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import Ending
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.slurm.gang_folder import BEAT_INTERVAL_S, Claim, GangFolder

_RUN = (
    "import sys; sys.path.append(sys.argv[1]); from pai_sdk._host.agent.slurm.task import main; "
    "sys.exit(main(*sys.argv[1:]))"
)
_RESTARTED_MESSAGE = (
    "Slurm has started the job a second time (restart {restarts} of Slurm job {number}), after {what}. It was not "
    "run again by Slurm; submit it again."
)


def main(package: str, root: str) -> int:
    """Runs the job in a folder, unless another start of it does; returns the exit code for Slurm."""
    sandbox = Sandbox(Path(root))
    gang = GangFolder(sandbox.shared_dir)
    job = Journal(sandbox.state_dir).read_job() if gang.path.is_dir() else None
    if job is None:
        _log("the job was withdrawn or removed; nothing is run")
        return 0
    number, restarts = os.environ["SLURM_JOB_ID"], int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    if not gang.try_claim(Claim(number, restarts, socket.gethostname())):
        return _wait_for_other_start(gang, job, number, restarts)
    # The tasks receive SIGTERM too, and end within their grace period.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    environment = {name: value for name, value in os.environ.items() if name != "SLURM_EXPORT_ENV"}
    steps = subprocess.Popen([*_srun(job), sys.executable, "-I", "-c", _RUN, package, root], env=environment)
    while True:
        # Its age shows a second start whether this one is alive.
        gang.beat()
        try:
            return steps.wait(BEAT_INTERVAL_S)
        except subprocess.TimeoutExpired:
            _forward_ends(gang, [content["instance"] for content in job["instances"]])


def _names(job: dict[str, Any]) -> list[str]:
    return [instance["instance"]["name"] for instance in job["instances"]]


def _forward_ends(gang: GangFolder, instances: list[dict[str, Any]]) -> None:
    """Ends the other instances of a complete job, or if the task of a failed one was killed before it could."""
    states = {each["name"]: gang.state(each["name"]) for each in instances}
    # Both missing in jobs of earlier releases.
    awaited = [states[each["name"]] for each in instances if each.get("is_awaited", True)]
    if len(awaited) < len(instances) and all(state is not None and state.succeeded for state in awaited):
        gang.write_complete()
        return
    for each in instances:
        state = states[each["name"]]
        if state is None or state.phase != "ended" or state.succeeded:
            continue
        failure = state.failure(can_fail_job=each.get("can_fail_job", True))
        # A live task forwards the failure itself.
        if failure is not None and not gang.is_alive(each["name"]):
            gang.write_ending(failure)


def _srun(job: dict[str, Any]) -> list[str]:
    count = len(job["instances"])
    return [
        "srun",
        f"--ntasks={count}",
        f"--cpus-per-task={job['resources']['cpus']}",
        "--export=ALL",
        # The tasks end each other, so that the first failure is the one that is reported.
        "--kill-on-bad-exit=0",
        "--mpi=none",
        "--input=none",
    ]


def _wait_for_other_start(gang: GangFolder, job: dict[str, Any], number: str, restarts: int) -> int:
    names = _names(job)
    claim = gang.claim
    if claim is None or claim.slurm_job_id != number:
        _log(f"another start has the job: {claim}; nothing is run")
        return 0
    _log(f"an earlier start of this Slurm job has the job: {claim}; waiting for its end")
    # The end of this process would kill the earlier start as well: Slurm kills all processes of the job id. The
    # empty name is that of the batch script.
    while any(map(gang.is_alive, ["", *names])):
        time.sleep(BEAT_INTERVAL_S)
    # Slurm has started the same job again after the start that has the claim.
    if restarts > claim.restarts:
        was_preempted = gang.has_sigterm(names)
        cause = "another job needed its nodes" if was_preempted else "the node or the daemon that had it was lost"
        code = REASON_PREEMPTED if was_preempted else REASON_NODE_LOST
        gang.write_ending(Ending(code, _RESTARTED_MESSAGE.format(restarts=restarts, number=number, what=cause)))
    return 0


def _log(text: str) -> None:
    """Writes a line to the log of the Slurm job."""
    sys.stderr.write(f"pai-sdk: {text}\n")
    sys.stderr.flush()
