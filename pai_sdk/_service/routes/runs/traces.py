"""Routes of the rows of traces, which are Parquet files in the folder `trace` of a run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from pai_sdk._data.trace.cells import rows_of_table
from pai_sdk._data.trace.trace_data import trace_in
from pai_sdk._service.services.budgets import COMPARE, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.runs.list_responses import plain
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._service.services.runs.source import RunsOf
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.base import response_body
from pai_sdk._wire.runs import TraceColumn, TraceRows
from pai_sdk.errors import MissingExtraError, TraceError

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/runs/{run_id:path}", route_class=BudgetedRoute)

_MAX_ROWS = 1000
_TRACE = "trace"
_OF_RUN = "run://trace"  # no path: files are read through the store, which refuses links to files outside of it
_MAX_CELL_LENGTH = 500


@router.get("/trace", response_model=TraceRows)
@within(COMPARE)
def read_trace_of_run(
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    table: Annotated[str, Query(max_length=1000)] = _TRACE,
    offset: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
    limit: Annotated[int, Query(ge=1, le=_MAX_ROWS)] = 100,
) -> Response:
    """Read rows of the trace of a run, and its columns with types; long values are truncated."""
    if table != _TRACE:
        raise invalid_parameter(f"table: there is no table {table[:100]!r}; there is: {_TRACE}.")
    store = runs.files(run_id).get(_TRACE)
    empty = TraceRows(tables=[], table="", columns=[], rows=[], total=0)
    if store is None:
        return json_response(response_body(empty), LIVE)
    try:
        trace = trace_in(store, _OF_RUN)
    except TraceError:  # no files, or none committed
        return json_response(response_body(empty), LIVE)
    try:
        total = int(trace.query("SELECT count(*) FROM trace").fetchall()[0][0])
        relation = trace.query("SELECT * FROM trace")
        columns = [
            TraceColumn(name=name, type=str(kind))
            for name, kind in zip(relation.columns, relation.types, strict=True)
        ]
        page = trace.rows_of("SELECT * FROM trace", limit, offset=offset)
        rows = [[_cell(value) for value in row] for row in rows_of_table(page)]
    except (MissingExtraError, TraceError) as error:
        raise WireError(404, "TRACE_NOT_READABLE", str(error)[:500]) from error
    body = TraceRows(tables=[_TRACE], table=_TRACE, columns=columns, rows=rows, total=total)
    return json_response(response_body(body), LIVE, work)


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    simple = plain(value)
    if isinstance(simple, list | dict):
        simple = str(simple)
    return (
        f"{simple[:_MAX_CELL_LENGTH]}…" if isinstance(simple, str) and len(simple) > _MAX_CELL_LENGTH else simple
    )
