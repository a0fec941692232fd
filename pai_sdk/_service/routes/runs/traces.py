"""Routes of the rows of traces, which are Parquet files in the folder `trace` of a run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from pai_sdk._service.services.budgets import COMPARE, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._service.services.runs.source import RunsOf
from pai_sdk._service.services.runs.traces import TRACE, read_trace
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.base import response_body
from pai_sdk._wire.runs import TraceRows

router = APIRouter(prefix="/api/v1/runs/{run_id:path}", route_class=BudgetedRoute)

_MAX_ROWS = 1000


@router.get("/trace", response_model=TraceRows)
@within(COMPARE)
def read_trace_of_run(
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    table: Annotated[str, Query(max_length=1000)] = TRACE,
    offset: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
    limit: Annotated[int, Query(ge=1, le=_MAX_ROWS)] = 100,
) -> Response:
    """Read rows of the trace of a run, and its columns with types; long values are truncated."""
    if table != TRACE:
        raise invalid_parameter(f"table: there is no table {table[:100]!r}; available: {TRACE}.")
    return json_response(response_body(read_trace(runs.files(run_id).get(TRACE), offset, limit)), LIVE, work)
