"""Times in any zone, names with capital letters, and limits of records, with pyodps as the client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from odps import errors

from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk._service.odps.memory_budget import RowLimits
from tests.service.tables.conftest import Tables, serving
from tests.service.tables.test_pyodps import create
from tests.service.tables.zones import TYPES, UTC, values


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
def test_an_instant_is_the_same_by_records_and_by_arrow_in_any_zone(tmp_path: Path, zone: str) -> None:
    """In a process of its own: pyodps reads the zone once."""
    command = [sys.executable, "-m", "tests.service.tables.zones", str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "TZ": zone}, timeout=120)


def test_times_of_records_are_exact(tables: Tables, name: str) -> None:
    table = create(tables, name, {"b": "timestamp", "f": "timestamp_ntz", "n": "bigint"})
    moment = pd.Timestamp("2026-01-01 00:00:00.123456789")
    early = pd.Timestamp("1950-01-01 00:00:00")
    with table.open_writer() as writer:
        writer.write([[moment, moment, 1], [early, early, 2], [None, None, 3]])
    with table.open_reader() as reader:
        assert [record.values[:2] for record in reader] == [[moment] * 2, [early] * 2, [None] * 2]


def test_times_that_pyodps_has_no_records_for(tables: Tables, name: str) -> None:
    with TraceWriter({"b": "timestamp"}, tables.sink(name)) as writer:
        writer.write(b=[pd.Timestamp("1901-01-01")])
    table = tables.client().get_table(name)
    with pytest.raises(errors.ODPSError, match="as Arrow") as caught, table.open_reader() as reader:
        list(reader)
    assert caught.value.status_code == 400
    with tables.client().get_table(name).open_reader(arrow=True) as reader:
        assert reader.count == 1


def test_a_column_without_zone_stays_one(tables: Tables, name: str) -> None:
    with TraceWriter(TYPES, tables.sink(name)) as writer:
        writer.write({column: [value] for column, value in zip(TYPES, values(UTC), strict=True)})
    found = tables.client().get_table(name).table_schema
    types = {column.name: str(column.type).lower().replace("`", "") for column in found.simple_columns}
    assert types == {**TYPES, "run_id": "string"}


def test_columns_with_capital_letters(tables: Tables, name: str) -> None:
    sink = tables.sink(name, partition="DT=1")
    for types in ({"Step": "bigint", "Loss": "double"}, {"step": "bigint", "LOSS": "double"}):
        with TraceWriter(types, sink, run_id="r1") as writer:
            writer.write(dict(zip(types, ([1], [0.5]), strict=True)))
    row = {"step": 1, "loss": 0.5, "run_id": "r1"}
    assert [{**found, "dt": None} for found in tables.rows(name, "dt=1")] == [{**row, "dt": None}] * 2
    with tables.client().get_table(name).open_writer(partition="Dt=1", arrow=True) as writer:
        writer.write(pa.table({"Step": [2], "Loss": [0.25], "Run_Id": ["r2"]}))
    assert len(tables.rows(name, "dt=1")) == 3


def test_a_record_beyond_the_limit_is_413(tmp_path: Path, name: str) -> None:
    with serving(tmp_path, limits=RowLimits(record_bytes=1 << 20)) as tables:
        table = create(tables, name, {"s": "string", "n": "bigint"})
        with table.open_writer() as writer:
            writer.write([os.urandom(1 << 18).hex(), 1])
        refused = pytest.raises(errors.ODPSError, match="A record has more than 1,048,576 bytes")
        with refused as caught, table.open_writer() as writer:
            writer.write([os.urandom(2 << 20).hex(), 1])
    assert caught.value.status_code == 413


def test_a_table_without_partition_columns_has_no_partitions(tables: Tables, name: str) -> None:
    table = create(tables, name, {"n": "bigint"})
    with pytest.raises(errors.ODPSError, match="not a partitioned table") as caught:
        list(table.partitions)
    assert caught.value.status_code == 400
