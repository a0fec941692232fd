"""Notifications that the waiting process sends; services of this package send those about their jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pai_sdk._data.notify.messages import Message
from pai_sdk._data.notify.refusals import NotDeliveredError
from pai_sdk._data.notify.targets import Notification, Target, target_of
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import (
    InUseError,
    InvalidInputError,
    JobFailed,
    JobStopped,
    PaiError,
    PipelineStopped,
    Problem,
    RunNotFoundError,
)

logger = logging.getLogger(__name__)


def notify_all(
    notifications: Iterable[Notification], record: JobRecord, error: JobFailed | JobStopped | None
) -> None:
    """Sends the notifications about a finished job; a failure is logged as a warning."""
    occasion = "succeeded" if error is None else "stopped" if isinstance(error, JobStopped) else "failed"
    message = Message(
        title=f"{record.training_job_name or record.training_job_id}: {record.status}",
        code=f"Job{occasion.capitalize()}",
        reason=str(error).splitlines()[0] if error else "",
        link=record.training_job_url,
        lines=error.log_tail if isinstance(error, JobFailed) else (),
        fields={
            "job_id": record.training_job_id,
            "name": record.training_job_name,
            "status": str(record.status),
            "duration_s": record.duration,
            "reason_code": error.reason_code if error else None,
        },
    )
    send_all(notifications, message, occasion, f"the end of job {record.training_job_id}")


def send_all(notifications: Iterable[Notification], message: Message, occasion: str, subject: str) -> None:
    """Sends a message to all targets that want it; a failure is logged as a warning."""
    for notification in notifications:
        if isinstance(notification, Target) and not notification.wants(occasion):
            continue
        try:
            notification.send(message.to_json())
        except Exception as failure:
            # Only the type of other errors: their text may have the URL, which may be secret.
            reason = str(failure) if isinstance(failure, NotDeliveredError) else type(failure).__name__
            logger.warning("the notification about %s was not sent to %r: %s", subject, notification, reason)


def checked_targets(notify: Sequence[Notification | str] | None) -> tuple[Notification, ...]:
    """Returns the targets of a pipeline or a search; raises InvalidInputError."""
    if notify is not None and (isinstance(notify, str) or not isinstance(notify, Sequence)):
        raise InvalidInputError([Problem("notify", "is not a list", "such as ['https://…'] or [DingTalk(url)]")])
    return tuple(
        each if isinstance(each, Notification) else target_of(each, f"notify[{number}]")
        for number, each in enumerate(notify or ())
    )


@contextmanager
def notified(
    notifications: Sequence[Notification], kind: str, name: str, fields: dict[str, str]
) -> Iterator[None]:
    """Sends a message about the outcome of a block that runs a pipeline or a search; not about an interrupt."""
    try:
        yield
    except (InvalidInputError, InUseError, RunNotFoundError):
        raise  # it has not started
    except Exception as error:
        occasion = "stopped" if isinstance(error, PipelineStopped) else "failed"
        reason = str(error).splitlines()[0] if isinstance(error, PaiError) and str(error) else type(error).__name__
        _send_outcome(notifications, kind, name, occasion, reason, fields)
        raise
    _send_outcome(notifications, kind, name, "succeeded", "", fields)


def _send_outcome(
    notifications: Sequence[Notification], kind: str, name: str, occasion: str, reason: str, fields: dict[str, str]
) -> None:
    code = f"{kind.capitalize()}{occasion.capitalize()}"
    details = {"name": name, "status": occasion, **fields}
    message = Message(f"{kind} {name}: {occasion}", code, reason, fields=details)
    send_all(notifications, message, occasion, f"the end of the {kind} {name}")
