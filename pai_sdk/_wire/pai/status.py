"""The statuses of a job, and their meaning."""

from __future__ import annotations

from typing import Final, Literal


class JobStatus(str):
    """A status as the service names it. An unknown one is kept unchanged.

    Example:
        >>> JobStatus("Succeed").is_success, JobStatus("Dreaming").is_terminal
        (True, False)
        >>> JobStatus("Evicted", has_ended=True).is_failure
        True
    """

    __slots__ = ("_has_ended",)
    _has_ended: bool

    def __new__(cls, name: str = "", *, has_ended: bool = False) -> JobStatus:
        """Returns a status, by its name in the service."""
        status = super().__new__(cls, name)
        # True: the service gives the time at which this status ended, and no later status. So the end of a job is
        # detected where its status is not known. Such a job counts as failed.
        status._has_ended = has_ended
        return status

    CREATING: JobStatus
    CREATED: JobStatus
    SUBMITTED: JobStatus
    INITIALIZING: JobStatus
    RUNNING: JobStatus
    SUCCEED: JobStatus
    FAILED: JobStatus
    CREATE_FAILED: JobStatus
    INITIALIZE_FAILED: JobStatus
    TERMINATED: JobStatus

    @property
    def is_terminal(self) -> bool:
        """True if the job has finished; it will not change again."""
        return self.is_success or self.is_failure or self.is_stopped

    @property
    def is_success(self) -> bool:
        """True if the job has succeeded."""
        return self == "Succeed"

    @property
    def is_failure(self) -> bool:
        """True if the job has failed, by an error of its own or of the service."""
        return self in ("Failed", "CreateFailed", "InitializeFailed") or self.is_unknown_end

    @property
    def is_unknown_end(self) -> bool:
        """True if the job has finished in a status that this package does not know."""
        return self._has_ended and self not in STATUSES

    @property
    def kind(self) -> Literal["success", "failure", "stopped", "running"]:
        """The kind of status, which has one colour in all displays; `running` is that of all unfinished jobs.

        Example:
            >>> JobStatus("Terminated").kind, JobStatus("Creating").kind
            ('stopped', 'running')
        """
        if not self.is_terminal:
            return "running"
        return "success" if self.is_success else "failure" if self.is_failure else "stopped"

    @property
    def is_stopped(self) -> bool:
        """True if a user has stopped the job."""
        return self == "Terminated"


STATUSES: Final = (
    "Creating",
    "Created",
    "Submitted",
    "Initializing",
    "Running",
    "Succeed",
    "Failed",
    "CreateFailed",
    "InitializeFailed",
    "Terminated",
)
SYNONYMS: Final = {
    "pending": "Submitted",
    "queued": "Submitted",
    "succeeded": "Succeed",
    "success": "Succeed",
    "completed": "Succeed",
    "stopped": "Terminated",
    "cancelled": "Terminated",
    "canceled": "Terminated",
}
"""What other tools call some of these statuses, in lower case."""
_BY_LOWER_CASE: Final = {**{name.lower(): name for name in STATUSES}, **SYNONYMS}


def canonical_status(name: str) -> str | None:
    """Returns a status in the spelling of the service, for any case; None for an unknown one.

    Example:
        >>> canonical_status("succeeded"), canonical_status("Done")
        ('Succeed', None)
    """
    return _BY_LOWER_CASE.get(name.strip().lower())


WAITING: Final = ("Creating", "Created", "Submitted")
"""Of these, the statuses of jobs that have no instances yet."""
for _name in ("Creating", "Created", "Submitted", "Initializing", "Running", "Succeed", "Failed", "Terminated"):
    setattr(JobStatus, _name.upper(), JobStatus(_name))
JobStatus.CREATE_FAILED = JobStatus("CreateFailed")
JobStatus.INITIALIZE_FAILED = JobStatus("InitializeFailed")
