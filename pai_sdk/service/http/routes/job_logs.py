"""TrainingJob: logs and events."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import func, select
from starlette.responses import StreamingResponse

from pai_sdk.schemas.wire import wire_time
from pai_sdk.service.budgets import LISTS, LOGS, BudgetedRoute, WorkOf, within
from pai_sdk.service.http.context import ContextOf, ServiceContext
from pai_sdk.service.http.routes.json_responses import answer, offering, request_id, wished_hold_s
from pai_sdk.service.http.routes.training_jobs import PageNumber
from pai_sdk.service.http.times import parse_time
from pai_sdk.service.jobs.changes import News
from pai_sdk.service.jobs.log_reader import LogSlice, LogWindow, sizes_bytes
from pai_sdk.service.state.models import Event, Job

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/trainingjobs/{job_id}", route_class=BudgetedRoute)

_PAGE_BYTES = 4 << 20  # what is read at once: ten thousand long lines would fill the memory
_LOOK_S = 0.04  # how often a long poll looks at the size of the log
_SLOWEST_LOOK_S = 0.2  # likewise, after writes without a complete line
_UNSETTLED_LOOK_S = 0.5  # a progress bar that stands still is sent after this time
_FIRST_LINE = re.compile(r"\bfirst-line\s*=\s*(\d{1,18})\b")
_LINE_TIMES = re.compile(r"\bline-times\b")
_PageSize = Annotated[int, Query(alias="PageSize", ge=1, le=10_000)]


@router.get("/logs")
@within(LOGS)
async def list_training_job_logs(
    request: Request,
    work: WorkOf,
    context: ContextOf,
    job_id: str,
    page_number: PageNumber = 1,
    page_size: _PageSize = 100,
    instance: Annotated[str | None, Query(alias="InstanceId")] = None,
    worker: Annotated[str | None, Query(alias="WorkerId")] = None,
    start_time: Annotated[str | None, Query(alias="StartTime")] = None,
    end_time: Annotated[str | None, Query(alias="EndTime")] = None,
) -> Response:
    """ListTrainingJobLogs.

    Without an instance, the lines of all instances come in one order that never changes. With `Prefer: wait=N` an
    empty page is held back until there is a line; with `Prefer: first-line=N` the page begins with that line,
    whatever its number says, and may be short where lines are long. With `Prefer: line-times` as well, the answer
    says when its lines were written (`LineTimes`). `x-pai-offers` announces all of them.
    The answer names its instance and first line, and `x-pai-log-complete: true` says that no line will follow.
    """
    hold_s = wished_hold_s(request, context.settings.longest_hold_s)
    deadline = asyncio.get_running_loop().time() + (hold_s or 0.0)
    window = LogWindow(parse_time(start_time, "StartTime"), parse_time(end_time, "EndTime"))
    first_line = _FIRST_LINE.search(request.headers.get("prefer", ""))
    start = int(first_line[1]) if first_line else (page_number - 1) * page_size
    name, look_s = instance or worker or None, _LOOK_S
    with context.changes.of(job_id) as news:
        while True:
            page, files, seen = await work.run(_read, context, job_id, name, start, page_size, window)
            out_of_time = asyncio.get_running_loop().time() >= deadline
            if page.lines or page.complete or out_of_time or context.changes.closed:
                break
            await _wait_for_lines(news, files, seen, deadline, look_s=look_s, unsettled=page.unsettled)
            look_s = min(look_s * 1.5, _SLOWEST_LOOK_S)
    # A page by number always has all its lines, since the next one begins behind them; one by line may be short.
    count = len(page.lines) if first_line else max(0, min(page_size, page.total - start))
    headers = offering("wait", "first-line", "line-times")
    headers |= {"x-pai-log-instance": name or "", "x-pai-log-first-line": str(start)}
    if page.complete or (page.settled and start + count >= page.total):
        headers["x-pai-log-complete"] = "true"
    applied = [] if hold_s is None else [f"wait={hold_s:g}"]
    if first_line:
        applied.append(f"first-line={start}")
    if applied:
        headers["Preference-Applied"] = ", ".join(applied)
    if len(page.lines) >= count:
        fields: dict[str, object] = {"Logs": page.lines, "TotalCount": str(page.total)}
        if name and first_line and _LINE_TIMES.search(request.headers.get("prefer", "")):
            times = await work.run(_times, context, job_id, name, start, len(page.lines))
            fields["LineTimes"] = [wire_time(time) for time in times]
        return answer(request, fields, headers=headers)
    pieces = _pieces(context, job_id, name, start, count, window, page)
    text = work.pieces(_json_of(request_id(request), pieces, page.total))
    return StreamingResponse(text, headers=headers, media_type="application/json")


@router.get("/events")
@within(LISTS)
def list_training_job_events(
    request: Request,
    context: ContextOf,
    job_id: str,
    page_number: PageNumber = 1,
    page_size: _PageSize = 100,
    start_time: Annotated[str | None, Query(alias="StartTime")] = None,
    end_time: Annotated[str | None, Query(alias="EndTime")] = None,
) -> Response:
    """ListTrainingJobEvents."""
    context.jobs.get(job_id)
    window = LogWindow(parse_time(start_time, "StartTime"), parse_time(end_time, "EndTime"))
    return answer(request, _events(context, job_id, None, window, page_number, page_size))


@router.get("/instances/{instance}/events")
@within(LISTS)
def list_training_job_instance_events(
    request: Request,
    context: ContextOf,
    job_id: str,
    instance: str,
    page_number: PageNumber = 1,
    page_size: _PageSize = 100,
    start_time: Annotated[str | None, Query(alias="StartTime")] = None,
    end_time: Annotated[str | None, Query(alias="EndTime")] = None,
) -> Response:
    """ListTrainingJobInstanceEvents."""
    context.logs.files(context.jobs.get(job_id), instance)
    window = LogWindow(parse_time(start_time, "StartTime"), parse_time(end_time, "EndTime"))
    return answer(request, _events(context, job_id, instance, window, page_number, page_size))


def _read(
    context: ServiceContext, job_id: str, instance: str | None, start: int, limit: int, window: LogWindow
) -> tuple[LogSlice, list[Path], list[int]]:
    # In this order: the job before its log, so that "ended" means that the log read afterwards is whole, and the
    # sizes before the lines, so that a line written in between counts as news.
    job: Job = context.jobs.get(job_id)
    files = context.logs.files(job, instance)
    seen = sizes_bytes(files)
    page = context.logs.page(job, instance, start=start, limit=limit, window=window, most_bytes=_PAGE_BYTES)
    return page, files, seen


def _times(context: ServiceContext, job_id: str, instance: str, start: int, count: int) -> list[float | None]:
    return context.logs.times(context.jobs.get(job_id), instance, start=start, count=count)


def _pieces(
    context: ServiceContext,
    job_id: str,
    name: str | None,
    start: int,
    count: int,
    window: LogWindow,
    page: LogSlice,
) -> Iterator[list[str]]:
    """The lines of a page that is too large to be held in memory. Lines that were counted never change.

    Raises:
        Fault, RuntimeError: the job was deleted meanwhile. The answer is cut off, and its client sees an error.
    """
    end = start + count
    while True:
        yield page.lines
        start += len(page.lines)
        if start >= end:
            return
        page, _, _ = _read(context, job_id, name, start, end - start, window)
        if not page.lines:
            raise RuntimeError(f"the log of job {job_id} ends before line {end}, which it had")


def _json_of(request_id: str, pieces: Iterator[list[str]], total: int) -> Iterator[bytes]:
    """The same answer as of a small page, as text that is made while it is sent."""
    yield f'{{"RequestId":{json.dumps(request_id)},"Logs":['.encode()
    for number, lines in enumerate(pieces):
        text = ",".join(json.dumps(line, ensure_ascii=False) for line in lines)
        yield (b"," if number else b"") + text.encode()
    yield f'],"TotalCount":"{total}"}}'.encode()


async def _wait_for_lines(
    news: News, files: list[Path], seen: list[int], deadline: float, *, look_s: float, unsettled: bool
) -> None:
    clock = asyncio.get_running_loop().time
    until = min(deadline, clock() + _UNSETTLED_LOOK_S) if unsettled else deadline
    while clock() < until:
        if await news.wait(min(look_s, until - clock())) or sizes_bytes(files) != seen:
            return


def _events(
    context: ServiceContext, job_id: str, instance: str | None, window: LogWindow, page_number: int, page_size: int
) -> dict[str, object]:
    conditions = [Event.job_id == job_id]
    if instance is not None:
        conditions.append(Event.instance == instance)
    if window.started_at is not None:
        conditions.append(Event.happened_at >= window.started_at)
    if window.ended_at is not None:
        conditions.append(Event.happened_at <= window.ended_at)
    with context.jobs.database.read() as session:
        total = session.scalar(select(func.count()).select_from(Event).where(*conditions)) or 0
        page = select(Event).where(*conditions).order_by(Event.number)
        events = session.scalars(page.limit(page_size).offset((page_number - 1) * page_size)).all()
    lines = [f"{wire_time(event.happened_at)} {event.text}" for event in events]
    return {"Events": lines, "TotalCount": str(total)}
