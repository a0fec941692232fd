"""Schedules of a service of this package on the wire: actions that Alibaba Cloud's API does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from pai_sdk._client.api.resource import Resource, call_service_action
from pai_sdk._client.api.responses import ApiResponse, read_model
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.schedules import NewSchedule, ScheduleChanges, ScheduleList, ScheduleRecord
from pai_sdk.errors import InvalidInputError, Problem

_Plan = TypeVar("_Plan")

_SCHEDULES = "/api/v1/schedules"
_SCHEDULE = _SCHEDULES + "/{schedule_id}"
_HINT = "a `pai-sdk serve` of this release has them; elsewhere, start `pai-sdk run` by cron"


class Schedules(Resource, Generic[_Plan]):
    """Actions on schedules; `session.schedules`.

    Args:
        transport: to the PAI API.
        prepare: uploads the files of a plan, and returns the body of its job.

    Example:
        >>> schedules = Session.embedded().schedules  # doctest: +SKIP
        >>> nightly = schedules.create("nightly", "0 3 * * *", estimator.plan())  # doctest: +SKIP
        >>> schedules.pause(nightly.schedule_id).enabled  # doctest: +SKIP
        False
    """

    def __init__(self, transport: Transport, prepare: Callable[[_Plan], Mapping[str, Any]]) -> None:
        super().__init__(transport)
        self._prepare = prepare

    def create(self, name: str, cron: str, plan: _Plan, *, time_zone: str = "UTC") -> ScheduleRecord:
        """Creates a schedule: the service creates a job at the times of a cron expression.

        The files of the plan are uploaded now. Each job gets a name and output folders of its own.

        Args:
            name: 1 to 100 letters, digits, `_`, `-` and `.`; unique among your schedules.
            cron: minute, hour, day of month, month and day of week, such as `0 3 * * *`.
            plan: the job, from `plan()` of an estimator or processor.
            time_zone: time zone of the expression, such as `Europe/Berlin`.

        Raises:
            InvalidInputError: the service has no schedules, or the plan cannot be scheduled.
            InvalidRequestError: the expression, the zone, the name or the job is wrong; it lists all problems.
            ConflictError: you have a schedule of this name.
        """
        # Fails here on a service without schedules, before anything is uploaded.
        self._call("ListSchedules", "GET", _SCHEDULES, query=wire_names(page_size=1))
        schedule = NewSchedule(name=name, cron=cron, time_zone=time_zone, request=dict(self._prepare(plan)))
        return read_model(
            ScheduleRecord, self._call("CreateSchedule", "POST", _SCHEDULES, body=schedule.to_wire())
        )

    def list(self) -> Iterator[ScheduleRecord]:
        """Yields your schedules, and those that you administer, the newest first."""
        return self._list(ScheduleRecord, ScheduleList, "ListSchedules", _SCHEDULES)

    def get(self, schedule_id: str) -> ScheduleRecord:
        """Returns a schedule, with the request of its jobs."""
        return read_model(
            ScheduleRecord, self._call("GetSchedule", "GET", _SCHEDULE, {"schedule_id": schedule_id})
        )

    def find(self, name: str) -> ScheduleRecord:
        """Returns the schedule with this name or id; `InvalidInputError` if several users have this name."""
        ids = [each.schedule_id for each in self.list() if name in (each.name, each.schedule_id)]
        if len(ids) > 1:
            raise InvalidInputError(
                [Problem("name", f"{name!r} is several schedules", f"give {' or '.join(ids)}")]
            )
        return self.get(ids[0] if ids else name)

    def change(self, schedule_id: str, *, cron: str | None = None, time_zone: str | None = None) -> ScheduleRecord:
        """Changes the times of a schedule, from now on."""
        return self._update(schedule_id, ScheduleChanges(cron=cron, time_zone=time_zone))

    def pause(self, schedule_id: str) -> ScheduleRecord:
        """Pauses a schedule: it creates no jobs until `resume`. Existing jobs continue."""
        return self._update(schedule_id, ScheduleChanges(enabled=False))

    def resume(self, schedule_id: str) -> ScheduleRecord:
        """Resumes a schedule: it creates jobs again, from the next scheduled time on."""
        return self._update(schedule_id, ScheduleChanges(enabled=True))

    def delete(self, schedule_id: str) -> None:
        """Deletes a schedule. Existing jobs stay."""
        self._call("DeleteSchedule", "DELETE", _SCHEDULE, {"schedule_id": schedule_id})

    def _update(self, schedule_id: str, changes: ScheduleChanges) -> ScheduleRecord:
        params = {"schedule_id": schedule_id}
        response = self._call("UpdateSchedule", "PUT", _SCHEDULE, params, body=changes.to_wire())
        return read_model(ScheduleRecord, response)

    def _call(self, *args: Any, **options: Any) -> ApiResponse:
        return call_service_action(self._transport, *args, feature="schedules", hint=_HINT, **options)
