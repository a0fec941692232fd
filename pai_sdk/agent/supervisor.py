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
import signal
import sys
import time
from pathlib import Path

from pai_sdk.agent.job_execution import JobExecution
from pai_sdk.agent.journal import Journal, lost
from pai_sdk.agent.processes import adopt_orphans, kill_descendants
from pai_sdk.agent.sandbox import Sandbox

__all__ = ["main"]


def main(root: Path) -> int:
    """Begin the job in this folder and return, leaving guardian and supervisor behind.

    Does nothing where it was begun before, so that no job runs twice, or where it was withdrawn meanwhile: then
    the process that started this one is gone, and another one fills the folder again.
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
            _guard(execution, journal)
    return 0


def _guard(execution: JobExecution, journal: Journal) -> None:
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
            execution.run()
        else:
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


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
