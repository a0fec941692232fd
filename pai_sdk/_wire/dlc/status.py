"""The statuses of DLC, and those of PAI's training jobs that they mean."""

from __future__ import annotations

from typing import Final

from pai_sdk._wire.pai.status import STATUSES as PAI_STATUSES
from pai_sdk._wire.pai.status import JobStatus

__all__ = [
    "ENDED_BY_USER",
    "POD_STATUSES",
    "RESERVING",
    "STATUSES",
    "TERMINAL",
    "dlc_status",
    "has_command_ended",
    "instance_status",
    "is_stopped_by_user",
    "is_terminal",
    "pai_status",
    "pod_status",
    "statuses_for",
]

_TO_PAI: Final = {
    "Creating": "Creating",
    "Queuing": "Submitted",
    "Bidding": "Submitted",
    "EnvPreparing": "Initializing",
    "SanityChecking": "Initializing",
    "Running": "Running",
    "Restarting": "Running",
    "Stopping": "Running",
    "SucceededReserving": "Succeed",
    "FailedReserving": "Failed",
    "Succeeded": "Succeed",
    "Failed": "Failed",
    "Stopped": "Terminated",
}
_FROM_PAI: Final = {
    "Creating": "Creating",
    "Created": "Creating",
    "Submitted": "Queuing",
    "Initializing": "EnvPreparing",
    "Running": "Running",
    "Succeed": "Succeeded",
    "Failed": "Failed",
    "CreateFailed": "Failed",
    "InitializeFailed": "Failed",
    "Terminated": "Stopped",
}
_POD_FROM_PAI: Final = {
    "Running": "Running",
    "Succeed": "Succeeded",
    "Failed": "Failed",
    "CreateFailed": "Failed",
    "InitializeFailed": "Failed",
    "Terminated": "Failed",
}

_POD_TO_PAI: Final = {"Pending": "Creating", "Running": "Running", "Succeeded": "Succeed", "Failed": "Failed"}

STATUSES: Final = tuple(_TO_PAI)
"""The statuses of a job, in the order in which it has them."""

TERMINAL: Final = ("Succeeded", "Failed", "Stopped")
"""Statuses after which nothing changes."""

RESERVING: Final = ("SucceededReserving", "FailedReserving")
"""Statuses in which the command has ended, and the pods are kept and paid for."""

POD_STATUSES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
ENDED_BY_USER: Final = "JobStoppedByUser"
"""The reason code of a job that a user has stopped, as the documents spell it; read it by `is_stopped_by_user`."""


def pai_status(status: str | None, *, finished_at: str | None = None) -> JobStatus:
    """Returns what a status of DLC means; unknown ones are kept, and have ended if the job has a time of its end.

    Example:
        >>> pai_status("EnvPreparing"), pai_status("Stopped"), pai_status("Dreaming").is_terminal
        ('Initializing', 'Terminated', False)
    """
    name = status or ""
    return JobStatus(_TO_PAI.get(name, name), has_ended=bool(finished_at))


def dlc_status(status: str) -> str:
    """Returns a status of PAI as DLC calls it; unknown ones are kept.

    Example:
        >>> dlc_status("InitializeFailed")
        'Failed'
    """
    return _FROM_PAI.get(status, status)


def statuses_for(status: str) -> tuple[str, ...]:
    """Returns the statuses of DLC that a status of PAI stands for; empty for a status that no job of DLC has.

    Example:
        >>> statuses_for("Submitted"), statuses_for("CreateFailed")
        (('Queuing', 'Bidding'), ())
    """
    names = tuple(name for name, meaning in _TO_PAI.items() if meaning == status)
    return names if names or status in PAI_STATUSES else (status,)


def is_terminal(status: str | None) -> bool:
    """Returns True for a status after which nothing changes."""
    return status in TERMINAL


def has_command_ended(status: str | None) -> bool:
    """Returns True if the command of a job has ended, also while its pods are kept."""
    return status in TERMINAL or status in RESERVING


def pod_status(status: str | None) -> str:
    """Returns the status of an instance as that of a pod."""
    return _POD_FROM_PAI.get(status or "", "Pending" if status in PAI_STATUSES else "Unknown")


def instance_status(status: str | None) -> str | None:
    """Returns the status of a pod as that of an instance; unknown ones are kept."""
    return _POD_TO_PAI.get(status or "", status)


def is_stopped_by_user(reason_code: str | None) -> bool:
    """Returns True for the reason code of a stop by a user; the cloud spells it in two ways."""
    return (reason_code or "").endswith("StoppedByUser")
