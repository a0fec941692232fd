"""TrainingJob: logs and events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from pai_sdk._data.logs.reader import StoredPage
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.json_responses import LongPoll, offering, request_id, success
from pai_sdk._service.routes.parameters import PageNumber, TimeWindow
from pai_sdk._service.services.budgets import LISTS, LOGS, WorkOf, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.job_logs import line_chunks, list_events, read_page, wait_for_lines
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk._wire.training_jobs import EventList, LogLines

router = APIRouter(prefix="/api/v1/trainingjobs/{job_id}", route_class=ActionRoute)

_MIN_POLL_S = 0.04  # the longest interval at which a long poll checks the size of the log
_MAX_POLL_S = 0.2  # the same after writes without a complete line
_FIRST_LINE = re.compile(r"\bfirst-line\s*=\s*(\d{1,18})\b")
_LINE_TIMES = re.compile(r"\bline-times\b")
_PageSize = Annotated[int, Query(alias="PageSize", ge=1, le=10_000)]


@router.get("/logs", response_model=LogLines)
@within(LOGS)
async def list_training_job_logs(
    request: Request,
    work: WorkOf,
    context: ContextOf,
    job_id: str,
    window: TimeWindow,
    page_number: PageNumber = 1,
    page_size: _PageSize = 100,
    instance: Annotated[str | None, Query(alias="InstanceId")] = None,
    worker: Annotated[str | None, Query(alias="WorkerId")] = None,
) -> Response:
    """ListTrainingJobLogs.

    Without an instance, the lines of all instances have one order that never changes. With `Prefer: wait=N`, an
    empty page waits for a line; with `Prefer: first-line=N` the page starts with that line, whatever its number,
    and is shorter if lines are long. With `Prefer: line-times` as well, the response has the times of its lines
    (`LineTimes`). `x-pai-offers` announces all of them.
    Headers name the instance and the first line; `x-pai-log-complete: true` means that no line will follow.
    """
    poll = LongPoll(request, context.settings.max_hold_s)
    first_line = _FIRST_LINE.search(request.headers.get("prefer", ""))
    start = int(first_line[1]) if first_line else (page_number - 1) * page_size
    name, poll_s = instance or worker or None, _MIN_POLL_S
    with context.changes.of(job_id) as news:
        while True:
            page, log, size_bytes = await work.run(read_page, context, job_id, name, start, page_size, window)
            if page.count or page.is_complete or poll.remaining_s <= 0 or context.changes.closed:
                break
            await wait_for_lines(news, log, size_bytes, poll.deadline, poll_s, page.has_unfinished_line)
            poll_s = min(poll_s * 1.5, _MAX_POLL_S)
    # A page by number must have all its lines, since the next one starts behind them; one by line can be short.
    count = page.count if first_line else max(0, min(page_size, page.total - start))
    headers = offering("wait", "first-line", "line-times")
    headers |= {"x-pai-log-instance": name or "", "x-pai-log-first-line": str(start)}
    if page.is_final and start + count >= page.total:
        headers["x-pai-log-complete"] = "true"
    if applied := [*filter(None, (poll.applied, f"first-line={start}" if first_line else ""))]:
        headers["Preference-Applied"] = ", ".join(applied)
    if page.count >= count:
        has_times = bool(name and first_line and _LINE_TIMES.search(request.headers.get("prefer", "")))
        return success(request, await work.run(_fields, page, has_times), headers=headers)
    chunks = line_chunks(context, job_id, name, start, count, window, page)
    text = work.stream_chunks(_json_of(request_id(request), chunks, page.total))
    return StreamingResponse(text, headers=headers, media_type="application/json")


@router.get("/events")
@within(LISTS)
def list_training_job_events(
    context: ContextOf, job_id: str, window: TimeWindow, page_number: PageNumber = 1, page_size: _PageSize = 100
) -> EventList:
    """ListTrainingJobEvents."""
    context.jobs.get(job_id)
    return list_events(context, job_id, None, window, page_number, page_size)


@router.get("/instances/{instance}/events")
@within(LISTS)
def list_training_job_instance_events(
    context: ContextOf,
    job_id: str,
    instance: str,
    window: TimeWindow,
    page_number: PageNumber = 1,
    page_size: _PageSize = 100,
) -> EventList:
    """ListTrainingJobInstanceEvents."""
    context.logs.instance_logs(context.jobs.get(job_id), instance)
    return list_events(context, job_id, instance, window, page_number, page_size)


def _fields(page: StoredPage, has_times: bool) -> LogLines:
    times = {"line_times": [wire_time(line.time) for line in page.lines()]} if has_times else {}
    return LogLines(logs=page.decoded_lines, total_count=str(page.total), **times)


def _json_of(request_id: str, chunks: Iterator[list[str]], total: int) -> Iterator[bytes]:
    """Yields the JSON of `LogLines`, which is created while it is sent."""
    yield f'{{"RequestId":{json.dumps(request_id)},"Logs":['.encode()
    for number, lines in enumerate(chunks):
        text = ",".join(json.dumps(line, ensure_ascii=False) for line in lines)
        yield (b"," if number else b"") + text.encode()
    yield f'],"TotalCount":"{total}"}}'.encode()
