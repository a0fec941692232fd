"""Schedules: create, get, list, update, delete. PAI's API has no such actions."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from pai_sdk._wire.masking import public_fields
from pai_sdk.schemas.wire import wire_time
from pai_sdk.service.budgets import LISTS, BudgetedRoute, within
from pai_sdk.service.http.auditing import note_created
from pai_sdk.service.http.context import ContextOf, PrincipalOf, ServiceContext
from pai_sdk.service.http.routes.json_responses import success
from pai_sdk.service.http.routes.parameters import PageNumber, PageSize
from pai_sdk.service.http.routes.training_jobs import check_job
from pai_sdk.service.identity.principal import LOCAL_USER, Principal
from pai_sdk.service.jobs.queueing.quota_checks import refuse_larger_than_quota
from pai_sdk.service.jobs.reading import in_one_message, read_body, read_model
from pai_sdk.service.jobs.resolution import Resolved
from pai_sdk.service.jobs.schedules.schedule_table import schedule_problems
from pai_sdk.service.state.models import ScheduleRow
from pai_sdk.service.wire_errors import WireError, invalid_parameter

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/schedules", route_class=BudgetedRoute)

_TEXT = {"type": "string"}
_NEW = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("Name", "Cron", "TimeZone"), _TEXT),
        "Request": {"$ref": "#/components/schemas/TrainingJobRequest"},
    },
    "required": ["Name", "Cron", "Request"],
}


class _NewSchedule(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(alias="Name")
    cron: str = Field(alias="Cron")
    zone: str = Field(default="UTC", alias="TimeZone")
    request: dict[str, Any] = Field(alias="Request")


class _ChangedSchedule(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cron: str | None = Field(default=None, alias="Cron")
    zone: str | None = Field(default=None, alias="TimeZone")
    enabled: bool | None = Field(default=None, alias="Enabled")


@router.post("", openapi_extra={"requestBody": {"content": {"application/json": {"schema": _NEW}}}})
async def create_schedule(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateSchedule: `Request` is the body of CreateTrainingJob, and is checked as a job is."""
    wanted = read_model(_NewSchedule, read_body(await request.body()))

    def create() -> ScheduleRow:
        job = _checked_job(context, wanted, principal)
        return context.schedules.create(
            wanted.name,
            owner=principal.user,
            workspace_id=job.workspace_id,
            cron=wanted.cron,
            zone=wanted.zone,
            request=job.request.to_wire(),
        )

    created = await run_in_threadpool(create)
    note_created(request, created.id)
    return success(request, _in_list(created))


@router.get("")
@within(LISTS)
def list_schedules(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
) -> Response:
    """ListSchedules: those of the user, and those that they administer, the newest first."""
    found, total = context.schedules.find(principal, page_number=page_number, page_size=page_size)
    return success(request, {"Schedules": [_in_list(row) for row in found], "TotalCount": total})


@router.get("/{schedule_id}")
@within(LISTS)
def get_schedule(request: Request, context: ContextOf, schedule_id: str) -> Response:
    """GetSchedule, with the request of its jobs, in which secrets are masked."""
    return success(request, _in_full(context.schedules.get(schedule_id)))


@router.put("/{schedule_id}")
async def update_schedule(request: Request, context: ContextOf, schedule_id: str) -> Response:
    """UpdateSchedule: its times, and whether it is enabled. Times before the change are not made up for."""
    wanted = read_model(_ChangedSchedule, read_body(await request.body()))
    change = partial(
        context.schedules.change, schedule_id, cron=wanted.cron, zone=wanted.zone, enabled=wanted.enabled
    )
    return success(request, _in_list(await run_in_threadpool(change)))


@router.delete("/{schedule_id}")
def delete_schedule(request: Request, context: ContextOf, schedule_id: str) -> Response:
    """DeleteSchedule. Its jobs stay."""
    context.schedules.delete(schedule_id)
    return success(request)


def _checked_job(context: ServiceContext, wanted: _NewSchedule, principal: Principal) -> Resolved:
    """The job of a new schedule.

    Raises:
        WireError: it would be refused, or the schedule is wrong; the message names every problem.
    """
    problems = list(schedule_problems(wanted.name, wanted.cron, wanted.zone))
    try:
        job = check_job(context, wanted.request, principal)
        with context.jobs.database.read() as session:
            refuse_larger_than_quota(session, principal.user, job.request)
    except WireError as error:
        if not problems:
            raise
        problems.append(error.message)
    if problems:
        raise invalid_parameter(in_one_message(problems))
    return job


def _in_list(row: ScheduleRow) -> dict[str, Any]:
    return {
        "ScheduleId": row.id,
        "Name": row.name,
        "Cron": row.cron,
        "TimeZone": row.zone,
        "Enabled": row.next_time is not None,
        "NextTime": wire_time(row.next_time),
        "LastTime": wire_time(row.last_time),
        "LastJobId": row.last_job_id,
        "LastError": row.last_error,
        "WorkspaceId": row.workspace_id,
        "UserId": row.owner or LOCAL_USER,
        "GmtCreateTime": wire_time(row.created_at),
        "GmtModifiedTime": wire_time(row.modified_at),
    }


def _in_full(row: ScheduleRow) -> dict[str, Any]:
    return {**_in_list(row), "Request": public_fields(row.request)}
