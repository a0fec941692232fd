"""The process that starts a job's instances and supervises them: `python -m pai_sdk._host.agent.supervisor ROOT`.

It depends on no other process: the service may stop, crash or be replaced while a job runs. Two processes share
the work. The supervisor runs the job (`job_execution`). Its parent, the guardian, only waits: if the supervisor is
killed, all processes of the job become the guardian's children, and it kills them. Both hold the journal's lock,
so it is free only when no process of the job is alive.

    main: acquires the lock, writes the first state, forks, returns, and so closes its copy of the lock
      └─ guardian: has the lock, forks, waits for the supervisor, kills the remaining processes
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

from pai_sdk._host.agent.job_execution import JobExecution
from pai_sdk._host.agent.journal import Journal, lost
from pai_sdk._host.agent.processes import adopt_orphans, kill_descendants
from pai_sdk._host.agent.sandbox import Sandbox


def main(root: Path, lifeline: int | None = None) -> int:
    """Starts the job in this folder and returns, leaving guardian and supervisor behind.

    `lifeline` is the reading end of a pipe: once no process has its writing end open, the job is killed. For a job
    that must not outlive the process to which a cluster has given its CPUs and GPUs.
    """
    # A job that was started before must not run twice. A withdrawn one has no `job.json`: the process that started
    # this one has exited, and another one fills the folder again.
    sandbox = Sandbox(root)
    journal = Journal(sandbox.state_dir)
    with journal.locked() as lock:
        if lock is None or journal.read_state() is not None:
            return 0
        job = journal.read_job()
        if job is None:
            return 0
        execution = JobExecution(sandbox, journal, job)
        # While there is space: on a full disk the last state must still fit.
        journal.reserve_space()
        execution.save_state()
        # The child has a copy of the lock, so it stays locked when this process returns.
        if os.fork() == 0:
            _guard(execution, journal, lifeline)
    return 0


def _guard(execution: JobExecution, journal: Journal, lifeline: int | None) -> None:
    """Acts as the guardian; never returns."""
    code = 1
    try:
        # The executor waits until stdout is closed.
        os.dup2(2, 1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # The supervisor handles them; the guardian must survive to clean up.
            signal.signal(number, signal.SIG_IGN)
        adopt_orphans()
        supervisor = os.fork()
        if supervisor == 0:
            os.setsid()
            # Nearest first: descendants go to the supervisor while it lives, then to the guardian.
            adopt_orphans()
            if lifeline is not None:
                os.close(lifeline)
            execution.run()
        else:
            if lifeline is not None:
                _wait_for_exit(supervisor, lifeline)
            os.waitpid(supervisor, 0)
            for _ in kill_descendants():
                pass
            state = journal.read_state()
            # The supervisor was killed before it could write the last state.
            if state is not None and state.phase != "ended":
                journal.write_state(lost(state, ended_at=time.time()))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait_for_exit(supervisor: int, lifeline: int) -> None:
    """Returns when the supervisor has exited; kills it when the other end of the lifeline is closed."""
    # A pidfd cannot refer to another process that got the same id.
    watched = os.pidfd_open(supervisor)
    ready, _, _ = select.select([watched, lifeline], [], [])
    if lifeline in ready:
        signal.pidfd_send_signal(watched, signal.SIGKILL)
    os.close(watched)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
