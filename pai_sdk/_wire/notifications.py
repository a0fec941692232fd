"""Targets of notifications in requests to services of this package; PAI's API has none."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.base import Sent

NOTIFICATIONS = "Notifications"
"""The field of CreateTrainingJob, CreateJob and CreateSchedule with the targets of a job's messages."""

OFFER = "notifications"
"""The offer of a service that sends the messages itself."""


class NotificationTarget(Sent):
    """A target; all fields but `kind` and `on` may be secret, so no response has them."""

    kind: str
    url: str = Field(repr=False)
    secret: str | None = Field(default=None, repr=False)
    headers: dict[str, str] | None = Field(default=None, repr=False)
    on: list[str] | None = None
