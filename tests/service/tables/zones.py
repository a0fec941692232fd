"""Times in a table, written and read by records, by Arrow and by a trace, in the zone of this process.

Naive times are local for pyodps, both when it writes and when it reads, and UTC for a trace.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

from pai_sdk._data.trace.trace_writer import TraceWriter
from tests.service.tables.conftest import Tables, serving
from tests.service.tables.test_pyodps import create

NAIVE = datetime.datetime(2026, 1, 1, 0, 0, 0, 5000)
UTC = NAIVE.replace(tzinfo=datetime.timezone.utc)
TYPES = {
    "a": "datetime",
    "b": "timestamp",
    "c": "array<datetime>",
    "d": "map<string,timestamp>",
    "e": "struct<timestamp:datetime,n:bigint>",
    "f": "timestamp_ntz",
}


def values(moment: datetime.datetime) -> list[Any]:
    """A row that has one moment in all columns."""
    return [moment, moment, [moment, None], {"k": moment}, {"timestamp": moment, "n": 1}, NAIVE]


def _read(tables: Tables, name: str, *, arrow: bool) -> list[Any]:
    with tables.client().get_table(name).open_reader(reopen=True, arrow=arrow) as reader:
        if not arrow:
            return next(list(record.values) for record in reader)
        [row] = [row for batch in reader for row in batch.to_pylist(maps_as_pydicts="strict")]
        return list(row.values())


def _local(tables: Tables) -> None:
    table = create(tables, "records", TYPES)
    with table.open_writer() as writer:
        writer.write(values(NAIVE))
    assert _read(tables, "records", arrow=False) == values(NAIVE)
    by_arrow = _read(tables, "records", arrow=True)
    assert [by_arrow[column] for column in (0, 1, 5)] == [NAIVE] * 3
    # pyodps converts no times within lists, maps and structs of Arrow: they stay UTC.
    assert by_arrow[2] == [NAIVE.astimezone(datetime.timezone.utc).replace(tzinfo=None), None]


def _traced(tables: Tables) -> None:
    local = UTC.astimezone().replace(tzinfo=None)
    for moment, name in ((UTC, "aware"), (NAIVE, "naive")):
        with TraceWriter(TYPES, tables.sink(name, run_column=None)) as writer:
            writer.write({column: [value] for column, value in zip(TYPES, values(moment), strict=True)})
        assert _read(tables, name, arrow=False) == values(local)
        by_arrow = _read(tables, name, arrow=True)
        assert [by_arrow[0], by_arrow[1], by_arrow[5]] == [local, local, NAIVE]


if __name__ == "__main__":
    with serving(Path(sys.argv[1])) as served:
        _local(served)
        _traced(served)
