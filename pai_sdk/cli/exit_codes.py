"""The exit codes of commands, for scripts."""

from __future__ import annotations

from collections.abc import Sequence

from pai_sdk._wire.pai.status import JobStatus

SUCCEEDED = 0
ERROR = 1
FAILED = 100
NOT_FINISHED = 101
NOT_FOUND = 102
STOPPED = 103
INTERRUPTED = 130

DESCRIPTION = """\
 Exit codes
     0  succeeded                100  the job failed
     1  an error                 101  the job has not finished
     2  wrong usage              102  no such job, run or file
   130  interrupted by Ctrl-C    103  the job was stopped
"""
"""What the exit codes mean, for the help."""


def of_status(status: JobStatus) -> int:
    """Returns the exit code for a job's status."""
    if status.is_success:
        return SUCCEEDED
    if status.is_failure:
        return FAILED
    if status.is_stopped:
        return STOPPED
    return NOT_FINISHED


def of_statuses(statuses: Sequence[JobStatus]) -> int:
    """Returns the exit code for the statuses of several jobs: 0 if all succeeded."""
    codes = {*map(of_status, statuses)}
    return next((code for code in (NOT_FINISHED, FAILED, STOPPED) if code in codes), SUCCEEDED)
