"""Schedules of the services of this package; PAI's API has none."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pai_sdk._wire.base import Received, Sent
from pai_sdk._wire.pai.wire import NullableList


class NewSchedule(Sent):
    """The body of CreateSchedule; `request` is the body of CreateTrainingJob."""

    name: str
    cron: str
    time_zone: str = "UTC"
    request: dict[str, Any]


NEW_SCHEDULE_SCHEMA = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("Name", "Cron", "TimeZone")},
        "Request": {"$ref": "#/components/schemas/TrainingJobRequest"},
    },
    "required": ["Name", "Cron", "Request"],
}
"""`NewSchedule` in a description of the API. The model itself leaves `request` to the check of a job."""


class ScheduleChanges(Sent):
    """The body of UpdateSchedule; a field that is None stays as it is."""

    cron: str | None = None
    time_zone: str | None = None
    enabled: bool | None = None


class ScheduleRecord(Received):
    """A schedule, as the service describes it. Times are in UTC."""

    schedule_id: str
    name: str | None = None  # unique among those of its user
    cron: str | None = None
    time_zone: str | None = None  # of the cron expression
    enabled: bool | None = None  # False while it is paused, or after the service has disabled it
    next_time: str | None = None  # due; None while it is not enabled
    last_time: str | None = None  # when the last job was due
    last_job_id: str | None = None
    last_error: str | None = None  # why there was no job at a later due time
    workspace_id: str | None = None
    user_id: str | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None
    # of its jobs, with masked secrets; in lists it is None
    request: dict[str, Any] | None = Field(default=None, repr=False)


class ScheduleList(Received):
    """A page of ListSchedules."""

    schedules: NullableList[ScheduleRecord] = Field(default_factory=list)
    total_count: int | None = None
