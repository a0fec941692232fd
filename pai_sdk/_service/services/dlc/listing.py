"""Selects and sorts the jobs of ListJobs, and counts them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, and_, func, literal_column, not_, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from pai_sdk._service.identity.principal import LOCAL_USER, OPERATOR, Principal
from pai_sdk._service.identity.visibility import visible_jobs
from pai_sdk._service.services.dlc.job_records import BEFORE_RUNNING, RESTARTING, STOPPING, status_in_attempt
from pai_sdk._service.services.dlc.problems import refuse_problems
from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Job, JobLabel
from pai_sdk._wire.base import wire_name
from pai_sdk._wire.body import comma_list
from pai_sdk._wire.dlc.jobs import JobQuery
from pai_sdk._wire.dlc.limits import DEFAULT_PAGE_SIZE, DEFAULT_WINDOW_S
from pai_sdk._wire.dlc.resources.checks import job_query_problems
from pai_sdk._wire.dlc.status import STATUSES, dlc_status
from pai_sdk._wire.dlc.times import seconds_of
from pai_sdk._wire.pai.status import STATUSES as PAI_STATUSES
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import Problem

_ORDERS: Mapping[str, InstrumentedAttribute[Any]] = {
    "DisplayName": Job.name,
    "JobType": DlcJobRow.job_type,
    "Status": Job.status,
    "GmtCreateTime": Job.created_at,
    "GmtFinishTime": Job.ended_at,
}
_TIMES: Mapping[str, InstrumentedAttribute[Any]] = {
    "GmtCreateTime": Job.created_at,
    "GmtRunningTime": Job.started_at,
    "GmtFinishTime": Job.ended_at,
    "GmtModifiedTime": Job.modified_at,
}
# They select by what this service does not know of its jobs: nodes, quotas, and numbers that have no name.
_UNSUPPORTED = (
    "enable_assign_node",
    "numeric_range_field",
    "oversold_info",
    "resource_quota_name",
)
_IS_OF_DLC = DlcJobRow.number == Job.number
_ENDED = tuple(status for status in PAI_STATUSES if JobStatus(status).is_terminal)


def find_jobs(
    session: Session, principal: Principal, query: JobQuery, *, visible_before: float | None
) -> tuple[list[tuple[Job, DlcJobRow]], int]:
    """Returns a page of jobs, and the number of all. After `visible_before`, created jobs are not listed."""
    refuse_problems([*job_query_problems(query), *_problems(query)])
    conditions = [*_conditions(principal, query)]
    if visible_before is not None:
        conditions.append(Job.created_at <= visible_before)
    total = session.scalar(select(func.count()).select_from(Job).where(*conditions)) or 0
    size = query.page_size or DEFAULT_PAGE_SIZE
    is_ascending = (query.order or "").lower() == "asc"
    columns = (_ORDERS[query.sort_by or "GmtCreateTime"], Job.number)
    page = (
        select(Job, DlcJobRow)
        .where(*conditions)
        .order_by(*(column.asc() if is_ascending else column.desc() for column in columns))
        .limit(size)
        .offset(((query.page_number or 1) - 1) * size)
    )
    return [(row[0], row[1]) for row in session.execute(page)], total


def count_by_status(
    session: Session, principal: Principal, workspace_ids: Collection[str]
) -> dict[str, dict[str, int]]:
    """Returns how many jobs of workspaces have each status, by workspace."""
    # Not a parameter: databases take an expression with one for another expression where it is repeated.
    is_restarted = Job.attempt > literal_column("1")
    counted = select(Job.workspace_id, Job.status, is_restarted, func.count()).where(
        _IS_OF_DLC, visible_jobs(principal), Job.workspace_id.in_(workspace_ids)
    )
    rows = session.execute(counted.group_by(Job.workspace_id, Job.status, is_restarted))
    counts: dict[str, dict[str, int]] = {workspace_id: {} for workspace_id in workspace_ids}
    for workspace_id, status, restarted, count in rows:
        of_workspace, name = counts[workspace_id], status_in_attempt(status, 2 if restarted else 1)
        of_workspace[name] = of_workspace.get(name, 0) + count
    return counts


def _problems(query: JobQuery) -> Iterator[Problem]:
    fields = type(query).model_fields
    for name in _UNSUPPORTED:
        if getattr(query, name) is not None:
            yield Problem(fields[name].alias or name, "is not supported by this service", "leave it out")
    for status in comma_list(query.status):
        if status not in STATUSES:
            yield Problem("Status", f"unknown value {status[:60]!r}", f"available: {', '.join(STATUSES)}")
    for where, moment in (("StartTime", query.start_time), ("EndTime", query.end_time)):
        if moment is not None and seconds_of(moment) is None:
            yield Problem(where, f"{moment[:60]!r} is not a time", "such as 2026-01-31T08:00:00Z")
    if query.time_range_field not in (None, *_TIMES):
        hint = f"available: {', '.join(_TIMES)}"
        yield Problem("TimeRangeField", f"unknown value {query.time_range_field!r}", hint)


def _conditions(principal: Principal, query: JobQuery) -> Iterator[ColumnElement[bool]]:
    yield _IS_OF_DLC
    yield visible_jobs(principal)
    if query.show_own:
        yield Job.owner == principal.user
    if query.workspace_id is not None and not query.from_all_workspaces:
        yield Job.workspace_id == query.workspace_id
    if job_ids := [*comma_list(query.job_id), *comma_list(query.job_ids)]:
        yield Job.id.in_(job_ids)
    if query.accessibility is not None:
        yield Job.accessibility == query.accessibility
    if owner := query.user_id_for_filter or query.username:
        yield Job.owner == (OPERATOR if owner == LOCAL_USER else owner)
    if statuses := comma_list(query.status):
        yield or_(*(_has_status(status) for status in statuses))
    for key, value in query.tags.items():
        labelled = select(JobLabel.job_id).where(JobLabel.key == key, JobLabel.value == value)
        yield Job.id.in_(labelled)
    yield from _text_conditions(query)
    yield from _body_conditions(query)
    yield from _window(query, has_ids=bool(job_ids))


def _has_status(status: str) -> ColumnElement[bool]:
    """Returns the condition for a status; a job that was asked to stop is stopping until it has ended."""
    if status == STOPPING:
        return and_(Job.stop_requested, Job.status.not_in(_ENDED))
    is_restarting = and_(Job.attempt > 1, Job.status.in_(BEFORE_RUNNING))
    if status == RESTARTING:
        return and_(is_restarting, not_(Job.stop_requested))
    names = [each for each in PAI_STATUSES if dlc_status(each) == status]
    is_open = or_(Job.status.in_(_ENDED), not_(Job.stop_requested))
    return and_(Job.status.in_(names), is_open, not_(is_restarting))


def _text_conditions(query: JobQuery) -> Iterator[ColumnElement[bool]]:
    for column, text in (
        (Job.name, query.display_name),
        (DlcJobRow.images, query.image_search),
        (_of_body("description"), query.description),
        (_of_body("user_command"), query.user_command_search),
    ):
        if text:
            yield column.icontains(text, autoescape=True)
    if text := query.reason_search:
        columns = (Job.reason_code, Job.reason_message)
        yield or_(*(column.icontains(text, autoescape=True) for column in columns))


def _body_conditions(query: JobQuery) -> Iterator[ColumnElement[bool]]:
    if query.job_type is not None:
        yield DlcJobRow.job_type == query.job_type
    for column, value in (
        (_of_body("template_id"), query.template_id),
        (_of_body("settings", "business_user_id"), query.business_user_id),
        (_of_body("settings", "caller"), query.caller),
        (_of_body("settings", "pipeline_id"), query.pipeline_id),
    ):
        if value is not None:
            yield column == value
    resource = _of_body("resource_id")
    if quotas := [*comma_list(query.resource_id), *comma_list(query.resource_ids)]:
        yield resource.in_(quotas)
    if query.payment_type is not None:
        spot = (_of_body("job_specs", 0, name) for name in ("spot_spec", "use_spot_instance"))
        is_spot = or_(*(field.is_not(None) for field in spot))
        is_paid = {
            "PrePaid": resource.is_not(None),
            "Spot": and_(resource.is_(None), is_spot),
            "PostPaid": and_(resource.is_(None), not_(is_spot)),
        }
        yield is_paid[query.payment_type]


def _of_body(*path: str | int) -> ColumnElement[str]:
    """Returns a field of the body that created a job, as text."""
    names = [wire_name(part) if isinstance(part, str) else part for part in path]
    column: ColumnElement[str] = DlcJobRow.body[names[0] if len(names) == 1 else tuple(names)].as_string()
    return column


def _window(query: JobQuery, *, has_ids: bool) -> Iterator[ColumnElement[bool]]:
    """Yields the conditions for times: the last week, unless the request names another time or its jobs."""
    column = _TIMES[query.time_range_field or "GmtCreateTime"]
    started_at, ended_at = seconds_of(query.start_time), seconds_of(query.end_time)
    if started_at is None and not has_ids:
        started_at = time.time() - DEFAULT_WINDOW_S
    if started_at is not None:
        yield column >= started_at
    if ended_at is not None:
        yield column < ended_at + 1  # the times of the API are whole seconds
