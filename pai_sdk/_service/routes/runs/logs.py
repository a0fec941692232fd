"""Routes of the logs of runs: lines by number, time or byte; search; download."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from starlette.responses import StreamingResponse

from pai_sdk._data.logs.filtered import FilteredLogs, LineFilter
from pai_sdk._data.logs.levels import LEVELS
from pai_sdk._data.logs.search import LogQuery, SearchStep, search
from pai_sdk._service.services.budgets import DOWNLOAD, RUNS, SEARCH, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.jobs.patterns import pattern_problems
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._service.services.runs.source import NO_LOG, RunsOf
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.base import response_body
from pai_sdk._wire.runs import FilteredLogLine, FilteredLogOfRun, LogLineOfRun, LogOfRun

router = APIRouter(prefix="/api/v1/runs/{run_id:path}", route_class=BudgetedRoute)

_MAX_LINES = 10_000
_MAX_CONTEXT = 100
_FILTER_S = 10.0  # the first request about a long log; later ones read what was written since
_FILTERED = FilteredLogs()
_MAX_OFFSET = (1 << 63) - 1
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_NDJSON = "application/x-ndjson"
_Instance = Annotated[str | None, Query(description="One instance. Without it: all instances, merged.")]
_After = Annotated[int | None, Query(ge=0, le=_MAX_OFFSET, description="A byte of the instance's log.")]


@router.get("/log/search", response_class=StreamingResponse, responses={200: {"content": {_NDJSON: {}}}})
@within(SEARCH)
def search_log(
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    q: Annotated[str, Query(description="The text to search for, within a line.")],
    regex: Annotated[bool, Query(description="True if it is a regular expression.")] = False,
    ignore_case: bool = False,
    instance: _Instance = None,
    after: _After = None,
    shown: Annotated[
        int, Query(ge=0, le=_MAX_LINES, description="Maximum number of hits with their lines.")
    ] = 1000,
    time_limit: Annotated[float, Query(gt=0, le=60, description="In seconds.")] = 20.0,
) -> Response:
    """Search the complete log of a run. The response is a stream of JSON objects, one per line.

    A `hit` has the number of the line, its byte offset and the position of the match. A `progress` has the number
    of hits of the last searched part. The last object is `done` with the total number of hits; `complete` is false
    if the search stopped before the end of the log, and `trouble` has the reason. Close the connection to stop the
    search. Lines are numbered within their instance.
    """
    log = runs.log(run_id, instance)
    if after is not None and len(log.instances) > 1:
        raise invalid_parameter("after: is a byte of one log; name its instance too.")
    query = _query(q, is_regex=regex, ignores_case=ignore_case)
    steps = search(
        log.instances, query, after=after or 0, max_hits=shown, time_limit_s=time_limit, check=work.check
    )
    chunks = work.stream_chunks(_in_ndjson(steps))
    return StreamingResponse(chunks, media_type=_NDJSON, headers={"Cache-Control": "no-store"})


@router.get("/log/lines", response_model=FilteredLogOfRun)
@within(SEARCH)
def read_filtered_log(
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    q: Annotated[str, Query(description="A text within the lines; all lines without it.")] = "",
    regex: Annotated[bool, Query(description="True if it is a regular expression.")] = False,
    ignore_case: bool = False,
    level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, Query(description="The lowest level of the lines.")
    ] = None,
    context: Annotated[int, Query(ge=0, le=_MAX_CONTEXT, description="Lines before and after each one.")] = 0,
    line: Annotated[int, Query(ge=0, le=_MAX_OFFSET, description="A number among the lines, from 0.")] = 0,
    lines: Annotated[int, Query(ge=1, le=_MAX_LINES, description="Maximum number of lines.")] = 200,
    tail: Annotated[int | None, Query(ge=1, le=_MAX_LINES, description="The number of last lines.")] = None,
    instance: _Instance = None,
) -> Response:
    """Read the lines of a log that have a text, a level or a higher one, with lines before and after each.

    Lines that continue another one, such as those of a traceback, have its level. `number` is that in the log. The
    response has fewer lines than requested if lines are long. If `trouble` is `time`, the log is so long that only
    a part was searched: repeat the request, which continues.
    """
    query = _query(q, is_regex=regex, ignores_case=ignore_case) if q else None
    log = runs.log(run_id, instance)
    page = _FILTERED.get(log, LineFilter(query, LEVELS.get(level or "", 0), context)).page(
        log, -tail if tail else line, tail or lines, time_limit_s=_FILTER_S, check=work.check
    )
    body = FilteredLogOfRun(
        lines=[FilteredLogLine(**shown._asdict(), is_match=is_match) for shown, is_match in page.lines],
        first=page.first,
        total=page.total,
        complete=page.is_final,
        instances=[instance_log.name for instance_log in log.instances],
        trouble=page.trouble,
    )
    return json_response(response_body(body), LIVE)


@router.get("/log/file", response_class=StreamingResponse, responses={200: {"content": {"application/gzip": {}}}})
@within(DOWNLOAD)
def download_log(runs: RunsOf, work: WorkOf, run_id: str, instance: _Instance = None) -> Response:
    """Download the log of a run as a gzip file; lines of several instances are merged, each with its instance."""
    log = runs.log(run_id, instance)
    name = _NOT_IN_A_FILE_NAME.sub("-", f"{run_id}-{instance}" if instance else run_id).strip("-.")[:100] or "run"
    headers = {"Content-Disposition": f'attachment; filename="{name}.log.gz"', "Cache-Control": "no-store"}
    return StreamingResponse(work.stream_chunks(log.gzip()), media_type="application/gzip", headers=headers)


@router.get("/log", response_model=LogOfRun)
@within(RUNS)
def read_log(
    runs: RunsOf,
    run_id: str,
    line: Annotated[
        int | None, Query(ge=0, le=_MAX_OFFSET, description="Number of the first line, from 0.")
    ] = None,
    lines: Annotated[int, Query(ge=1, le=_MAX_LINES, description="Maximum number of lines.")] = 200,
    tail: Annotated[int | None, Query(ge=1, le=_MAX_LINES, description="The number of last lines.")] = None,
    time: Annotated[
        float | None, Query(ge=0, le=1e11, description="Begin at this time, in seconds since 1970.")
    ] = None,
    after: _After = None,
    after_instance: Annotated[
        str | None, Query(description="The instance whose byte `after` is. The first one's by default.")
    ] = None,
    instance: _Instance = None,
) -> Response:
    """Read lines of the log of a run, each with its number, byte offset, instance and time.

    Start at a line, a time or a byte, or read the last lines; the default is line 0. The response has fewer lines
    than requested if lines are long. `complete` is true if no line will follow the last one.
    """
    selected = [
        name
        for name, value in (("line", line), ("tail", tail), ("time", time), ("after", after))
        if value is not None
    ]
    if len(selected) > 1:
        raise invalid_parameter(f"{' and '.join(selected)}: give one of them.")
    try:
        log = runs.log(run_id, instance)
    except WireError as error:
        # A run without a log has no lines; only a requested instance has to exist.
        if instance is not None or error.code != NO_LOG:
            raise
        return json_response(response_body(LogOfRun(lines=[], total=0, complete=True, instances=[])), LIVE)
    start = line or 0
    if time is not None:
        start = log.line_at_time(time)
    elif after is not None:
        start = log.line_at_byte(after, after_instance)
    page = log.page(-tail if tail else start, tail or lines)
    body = LogOfRun(
        lines=[LogLineOfRun(**entry._asdict()) for entry in page.lines()],
        total=page.total,
        complete=page.is_final,
        instances=[instance_log.name for instance_log in log.instances],
    )
    return json_response(response_body(body), LIVE)


def _query(text: str, *, is_regex: bool, ignores_case: bool) -> LogQuery:
    try:
        return LogQuery(text, is_regex, ignores_case, problem_of=_pattern_problem)
    except ValueError as error:
        raise invalid_parameter(f"q: {error}") from error


def _pattern_problem(pattern: str) -> str:
    # Only the size: unlike the pattern of a metric, it needs no group, and `LogQuery` reports invalid ones.
    return pattern_problems([pattern], readable=False)[0]


def _in_ndjson(steps: Iterator[SearchStep]) -> Iterator[bytes]:
    total, last = 0, None
    for step in steps:
        total, last = total + step.count, step
        hits = [{"kind": "hit", **hit._asdict()} for hit in step.hits]
        yield _lines_of([*hits, _progress(step)])
    trouble = last.trouble if last else ""
    yield _lines_of([{"kind": "done", "hits": total, "complete": not trouble, "trouble": trouble}])


def _progress(step: SearchStep) -> dict[str, Any]:
    return {
        "kind": "progress",
        "instance": step.instance,
        "first_line": step.first_line,
        "last_line": step.last_line,
        "hits": step.count,
        "searched_bytes": step.searched_bytes,
    }


def _lines_of(objects: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects).encode(errors="replace")
