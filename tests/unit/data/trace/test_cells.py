"""Values that a foreign file may have, and Python, pandas or DuckDB have not: a value or a typed error."""

from __future__ import annotations

import contextlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pai_sdk._data.trace.cells import rows_of_table
from pai_sdk._data.trace.trace_data import read_trace
from pai_sdk.cli.traces import RowFormat, _print
from pai_sdk.errors import TraceError

pytestmark = pytest.mark.interpreter

FAR = pa.array([1 << 62])
NOT_UTF_8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
)
COLUMNS: dict[str, pa.Array] = {
    "far ms": FAR.view(pa.timestamp("ms")),
    "far us": FAR.view(pa.timestamp("us", "Asia/Shanghai")),
    "no zone": FAR.view(pa.timestamp("ms", "No/Such")),
    "ns": pa.array([-(2**63) + 1]).view(pa.timestamp("ns")),
    "year 10000": pa.array([253402300800000]).view(pa.timestamp("ms")),
    "far date": pa.array([2**31 - 1], pa.int32()).view(pa.date32()),
    "date64": pa.array([86_400_000 * 10**9]).view(pa.date64()),
    "ns of a day": pa.array([86_399_999_999_999]).view(pa.time64("ns")),
    "25 hours": pa.array([90_000_000_000]).view(pa.time64("us")),
    "before midnight": pa.array([-5], pa.int32()).view(pa.time32("s")),
    "duration": pa.array([2**63 - 1]).view(pa.duration("s")),
    "decimal256": pa.array([Decimal(10) ** 70], pa.decimal256(76, 0)),
    "uint64": pa.array([2**64 - 1], pa.uint64()),
    "float16": pa.array([float("nan")], pa.float64()).cast(pa.float16()),
    "nan": pa.array([float("nan")]),
    "bytes": pa.array([b"\xff\0"]),
    "no UTF-8": NOT_UTF_8,
    "key twice": pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
    "far keys": pa.MapArray.from_arrays([0, 1], FAR.view(pa.timestamp("ms")), pa.array([1])),
    "far list": pa.ListArray.from_arrays([0, 1], FAR.view(pa.timestamp("ms"))),
    "far struct": pa.StructArray.from_arrays([FAR.view(pa.timestamp("ms")), pa.array([1])], ["at", "n"]),
    "fields twice": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]),
    "escape": pa.array(["\x1b[31m\0\n"]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_each_value_is_printed_or_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"c": COLUMNS[name], "n": [7]}), tmp_path / "x.parquet")
    trace = read_trace(tmp_path)
    for row_format in RowFormat:
        _print(trace.head(), row_format)
        assert "7" in capsys.readouterr().out
    _print(trace.head(), RowFormat.json)
    assert json.loads(capsys.readouterr().out)["n"] == 7
    for read in (trace.to_pandas, lambda: _print(trace.rows_of("SELECT * FROM trace", 5), RowFormat.json)):
        with contextlib.suppress(TraceError):
            read()
    if name not in ("decimal256", "float16"):  # which DuckDB has not
        assert trace.rows_of("SELECT n FROM trace WHERE n > 1", 5).num_rows == 1


def test_values_without_an_object_are_texts() -> None:
    table = pa.table({name: COLUMNS[name] for name in ("far date", "25 hours", "no UTF-8", "far struct")})
    [[date, time, text, struct]] = rows_of_table(table)
    assert all(isinstance(value, str) for value in (date, time, text, struct["at"]))
    assert text == "\ufffd\ufffd"
    assert rows_of_table(pa.table({"c": COLUMNS["ns of a day"]})) == [["23:59:59.999999999"]]
    assert struct["n"] == 1


def test_both_of_two_columns_with_one_name_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    both: Any = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    _print(both, RowFormat.csv)
    assert capsys.readouterr().out == "a,a_1\n1,2\n"


def test_a_type_that_duckdb_has_not_is_a_typed_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": COLUMNS["decimal256"]}), tmp_path / "x.parquet")
    with pytest.raises(TraceError, match="the query failed") as caught:
        read_trace(tmp_path).query("SELECT c FROM trace")
    assert isinstance(caught.value.__cause__, duckdb.Error)
