"""Schedules: create, get, list, update, delete. PAI's API has no such actions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.principal import LOCAL_USER
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.parameters import PageNumber, PageSize
from pai_sdk._service.services import schedules
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.state.models import ScheduleRow
from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk._wire.schedules import NEW_SCHEDULE_SCHEMA, NewSchedule, ScheduleChanges, ScheduleList, ScheduleRecord

router = APIRouter(prefix="/api/v1/schedules", route_class=ActionRoute)


@router.post(
    "",
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": NEW_SCHEDULE_SCHEMA}}}},
)
def create_schedule(
    request: Request, context: ContextOf, principal: PrincipalOf, new: NewSchedule
) -> ScheduleRecord:
    """CreateSchedule: `Request` is the body of CreateTrainingJob, and is checked as a job is."""
    created = schedules.create_schedule(context, new, principal)
    record_created_id(request, created.id)
    return _schedule(created)


@router.get("")
@within(LISTS)
def list_schedules(
    context: ContextOf, principal: PrincipalOf, page_number: PageNumber = 1, page_size: PageSize = 10
) -> ScheduleList:
    """ListSchedules: those of the user, and those that they administer, the newest first."""
    rows, total = context.schedules.find(principal, page_number=page_number, page_size=page_size)
    return ScheduleList(schedules=[_schedule(row) for row in rows], total_count=total)


@router.get("/{schedule_id}")
@within(LISTS)
def get_schedule(context: ContextOf, schedule_id: str) -> ScheduleRecord:
    """GetSchedule, with the request of its jobs, in which secrets are masked."""
    row = context.schedules.get(schedule_id)
    return _schedule(row, request=public_fields(row.request))


@router.put("/{schedule_id}")
def update_schedule(context: ContextOf, schedule_id: str, changes: ScheduleChanges) -> ScheduleRecord:
    """UpdateSchedule: its times, and whether it is enabled. Times before the change are not made up for."""
    row = context.schedules.change(schedule_id, cron=changes.cron, zone=changes.time_zone, enabled=changes.enabled)
    return _schedule(row)


@router.post("/{schedule_id}/pause")
def pause_schedule(context: ContextOf, schedule_id: str) -> ScheduleRecord:
    """PauseSchedule: no jobs until ResumeSchedule."""
    return _schedule(context.schedules.change(schedule_id, enabled=False))


@router.post("/{schedule_id}/resume")
def resume_schedule(context: ContextOf, schedule_id: str) -> ScheduleRecord:
    """ResumeSchedule: jobs at its times from now on. Times of the pause are not made up for."""
    return _schedule(context.schedules.change(schedule_id, enabled=True))


@router.delete("/{schedule_id}")
def delete_schedule(context: ContextOf, schedule_id: str) -> None:
    """DeleteSchedule. Its jobs stay."""
    context.schedules.delete(schedule_id)


def _schedule(row: ScheduleRow, **more: Any) -> ScheduleRecord:
    return ScheduleRecord(
        schedule_id=row.id,
        name=row.name,
        cron=row.cron,
        time_zone=row.zone,
        enabled=row.next_time is not None,
        next_time=wire_time(row.next_time),
        last_time=wire_time(row.last_time),
        last_job_id=row.last_job_id,
        last_error=row.last_error,
        workspace_id=row.workspace_id,
        user_id=row.owner or LOCAL_USER,
        gmt_create_time=wire_time(row.created_at),
        gmt_modified_time=wire_time(row.modified_at),
        **more,
    )
