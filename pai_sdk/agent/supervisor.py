"""The process that starts a job's instances and stays with them: `python -m pai_sdk.agent.supervisor ROOT`.

It depends on no other process: the service may end, crash or be replaced while a job runs. Two processes share
the work. The supervisor proper runs the job (`job_execution`). Its parent, the guardian, only waits: should the
supervisor be killed, all processes of the job become the guardian's children, and it kills them. Both hold the
journal's lock, so it is free only when nothing of the job is alive.

    main: takes the lock, writes the first state, forks, returns, and so closes its copy of the lock
      └─ guardian: has the lock, forks, waits for the supervisor, kills what is left
           └─ supervisor: has the lock, runs the job

Standard library only, and light: it starts in some 50 ms.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

from pai_sdk.agent.job_execution import JobExecution
from pai_sdk.agent.journal import Journal, lost
from pai_sdk.agent.processes import adopt_orphans, kill_descendants
from pai_sdk.agent.sandbox import Sandbox

__all__ = ["main"]


def main(root: Path, lifeline: int | None = None) -> int:
    """Begin the job in this folder and return, leaving guardian and supervisor behind.

    Does nothing where it was begun before, so that no job runs twice, or where it was withdrawn meanwhile: then
    the process that started this one is gone, and another one fills the folder again.

    Args:
        root: the job's folder.
        lifeline: the reading end of a pipe: once no process has its writing end open, the job is killed. For a job
            that must not outlive the process to which a cluster has given its CPUs and GPUs.
    """
    sandbox = Sandbox(root)
    journal = Journal(sandbox.state_dir)
    with journal.locked() as lock:
        if lock is None or journal.read_state() is not None:
            return 0
        job = journal.read_job()
        if job is None:
            return 0
        execution = JobExecution(sandbox, journal, job)
        journal.keep_room()
        execution.save_state()
        if os.fork() == 0:
            _guard(execution, journal, lifeline)
    return 0


def _guard(execution: JobExecution, journal: Journal, lifeline: int | None) -> None:
    """Be the guardian; never returns."""
    code = 1
    try:
        os.dup2(2, 1)  # the executor waits until stdout is closed
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the supervisor handles them
        adopt_orphans()
        supervisor = os.fork()
        if supervisor == 0:
            os.setsid()
            adopt_orphans()
            if lifeline is not None:
                os.close(lifeline)
            execution.run()
        else:
            if lifeline is not None:
                _wait_for_end_of(supervisor, lifeline)
            os.waitpid(supervisor, 0)
            for _ in kill_descendants():
                pass
            state = journal.read_state()
            if state is not None and state.phase != "ended":
                journal.write_state(lost(state, ended_at=time.time()))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait_for_end_of(supervisor: int, lifeline: int) -> None:
    """Return when the supervisor has ended; kill it when nothing holds the other end of the lifeline."""
    watched = os.pidfd_open(supervisor)
    ready, _, _ = select.select([watched, lifeline], [], [])
    if lifeline in ready:
        signal.pidfd_send_signal(watched, signal.SIGKILL)
    os.close(watched)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
