"""`pai-sdk trace head` and `query`: the rows that a training has traced."""

from __future__ import annotations

import csv
import sys
from enum import Enum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pai_sdk._core.paths import expanded
from pai_sdk._core.tables.table import Column, Table
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk.cli.selection.backend import with_backend_options
from pai_sdk.cli.selection.job_names import complete_run, find_job
from pai_sdk.cli.tables import print_table
from pai_sdk.cli.usage.help import Commands

if TYPE_CHECKING:
    import pyarrow as pa

    from pai_sdk._data.trace.trace_data import TraceData

app = Commands(
    help="Show the rows of a trace.",
    example="pai-sdk trace head train129f212o89d --rows 20",
)


class RowFormat(str, Enum):
    """The formats of printed rows."""

    table = "table"
    csv = "csv"
    json = "json"


Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A job, or the folder or URI of a trace.", autocompletion=complete_run)
]
Rows = Annotated[int, typer.Option("--rows", "-n", min=1, help="The maximum number of rows.")]
Format = Annotated[
    RowFormat,
    typer.Option("--format", "-f", help="table, csv, or json: an object per line, nan and inf as strings."),
]
Uncommitted = Annotated[bool, typer.Option("--uncommitted", help="Include rows that are not committed yet.")]


@app.command()
@with_backend_options
def head(run: Run, rows: Rows = 10, as_format: Format = RowFormat.table, uncommitted: Uncommitted = False) -> None:
    """Print the first rows.

    Example: pai-sdk trace head train129f212o89d --rows 5
    """
    _print(_trace_of(run, uncommitted).head(rows), as_format)


@app.command()
@with_backend_options
def query(
    run: Run,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="A query in the SQL of DuckDB; the table is called trace.")
    ],
    rows: Rows = 1000,
    as_format: Format = RowFormat.table,
    uncommitted: Uncommitted = False,
) -> None:
    """Print the result of a query: `SELECT step, avg(loss) FROM trace GROUP BY step`.

    Example: pai-sdk trace query train129f212o89d 'SELECT count(*) FROM trace'
    """
    _print(_trace_of(run, uncommitted).rows_of(sql, rows), as_format)


def _trace_of(run: str, uncommitted: bool) -> TraceData:
    from pai_sdk._data.trace.trace_data import read_trace

    if uri_scheme(run) is not None:
        return read_trace(run, uncommitted=uncommitted)
    if "/" in run or Path(run).exists():
        return read_trace(expanded(Path(run)), uncommitted=uncommitted)
    return find_job(run).trace(uncommitted=uncommitted)


def _print(table: pa.Table, as_format: RowFormat) -> None:
    from pai_sdk._data.trace.cells import rows_of_table

    table = table.rename_columns(_distinct(table.column_names))
    rows = rows_of_table(table)
    if as_format is RowFormat.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(table.column_names)
        # Python 3.10 neither writes nor reads a NUL in CSV, and other readers end the text there.
        writer.writerows(
            [cell.replace("\0", r"\x00") if isinstance(cell, str) else cell for cell in row] for row in rows
        )
        return
    columns = [
        Column(name, align="left", format=lambda value: "" if value is None else str(value), overflow="ellipsis")
        for name in table.column_names
    ]
    print_table(Table(columns, rows), as_json=as_format is RowFormat.json)


def _distinct(names: list[str]) -> list[str]:
    """Returns the names with numbers behind those that occur before, as DuckDB 2 has them; 1.5 repeats a name."""
    distinct: list[str] = []
    for name in names:
        candidates = (f"{name}_{number}" if number else name for number in count())
        distinct.append(next(candidate for candidate in candidates if candidate not in distinct))
    return distinct
