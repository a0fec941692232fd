"""Notifications about finished jobs that the waiting process sends. Services of this package send theirs."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pai_sdk._data.notify.messages import Message
from pai_sdk._data.notify.refusals import NotDeliveredError
from pai_sdk._data.notify.targets import Notification, Target
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import JobFailed, JobStopped

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
