"""Reads rows of the traces of runs."""

from __future__ import annotations

from typing import Any

from pai_sdk._data.storage.base import Store
from pai_sdk._data.trace.cells import rows_of_table
from pai_sdk._service.services.runs.list_responses import plain
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.runs import TraceColumn, TraceRows
from pai_sdk.errors import MissingExtraError, TraceError

TRACE = "trace"
_OF_RUN = "run://trace"  # no path: files are read through the store, which refuses links to files outside of it
_MAX_CELL_LENGTH = 500


def read_trace(store: Store | None, offset: int, limit: int) -> TraceRows:
    """Returns rows of a trace, and its columns with types; none without a trace."""
    from pai_sdk._data.trace.trace_data import trace_in  # megabytes that most pages never need

    empty = TraceRows(tables=[], table="", columns=[], rows=[], total=0)
    if store is None:
        return empty
    try:
        trace = trace_in(store, _OF_RUN)
    except TraceError:  # no files, or none committed
        return empty
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
    return TraceRows(tables=[TRACE], table=TRACE, columns=columns, rows=rows, total=total)


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    simple = plain(value)
    if isinstance(simple, list | dict):
        simple = str(simple)
    return (
        f"{simple[:_MAX_CELL_LENGTH]}…" if isinstance(simple, str) and len(simple) > _MAX_CELL_LENGTH else simple
    )
