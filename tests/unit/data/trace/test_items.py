"""Items of lists, dicts and arrays, also of numpy and pandas, are stored exactly or refused with a reason."""

from __future__ import annotations

import datetime
import enum
import math
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pai_sdk._data.trace.block import BlockBuilder
from pai_sdk._data.trace.columns import Columns
from pai_sdk._data.trace.types import trace_schema
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

NS = pd.Timestamp("2026-01-01 00:00:00.000000123")
ID = uuid.UUID("6d795f69-645f-3031-3233-343536373839")  # its bytes are ASCII
ZONE = datetime.timezone(datetime.timedelta(hours=8))
NOON = datetime.datetime(2026, 1, 1, 12)


class Word(str, enum.Enum):
    A = "a"


def stored(type_: str | pa.DataType, value: Any) -> list[Any]:
    schema = trace_schema({"c": type_})
    builder = BlockBuilder(schema)
    builder.append(*Columns(schema).prepare({"c": value}))
    table = pa.Table.from_batches(builder.batches())
    table.validate(full=True)
    values: list[Any] = table["c"].to_pylist()
    return values


@pytest.mark.parametrize(
    ("type_", "item", "expected"),
    [
        ("timestamp", NS, NS),
        ("timestamp", NS.tz_localize("Asia/Shanghai"), NS - pd.Timedelta(8, "h")),
        ("timestamp", np.datetime64("2026-01-01T00:00:00.000000123"), NS),
        ("timestamp", datetime.date(2026, 1, 1), pd.Timestamp("2026-01-01")),
        ("timestamp", pd.NaT, None),
        ("timestamp", np.datetime64("NaT", "ns"), None),
        ("timestamp", pd.NA, None),
        ("datetime", NOON.replace(tzinfo=ZONE), NOON - datetime.timedelta(hours=8)),
        ("datetime", np.datetime64("2026-01-01T12", "h"), NOON),
        ("datetime", np.datetime64("2026-01", "M"), datetime.datetime(2026, 1, 1)),
        ("datetime", datetime.datetime(1, 1, 1), datetime.datetime(1, 1, 1)),
        ("datetime", pd.Timestamp("2026-01-01 12:00"), NOON),
        ("date", datetime.datetime(2026, 1, 1), datetime.date(2026, 1, 1)),
        (pa.duration("ns"), pd.Timedelta(1, "ns"), pd.Timedelta(1, "ns")),
        (pa.duration("us"), datetime.timedelta(days=-1, microseconds=1), datetime.timedelta(-1, 0, 1)),
        (pa.time64("us"), datetime.time(1, 2, 3, 4), datetime.time(1, 2, 3, 4)),
        ("string", ID, str(ID)),
        ("string", Word.A, "a"),
        ("string", np.str_("x"), "x"),
        ("string", b"\xe4\xb8\xad", "中"),
        ("binary", ID, ID.bytes),
        ("binary", bytearray(b"x"), b"x"),
        ("bigint", np.int8(3), 3),
        ("bigint", Decimal(3), 3),
        ("bigint", pd.NA, None),
        ("double", np.float32(0.1), float(np.float32(0.1))),
        ("boolean", np.bool_(True), True),
        ("decimal(10,2)", np.float32(0.1), Decimal("0.10")),
        ("decimal(38,0)", 10**37, Decimal(10**37)),
    ],
)
def test_an_item_comes_back_as_it_was_wherever_it_is(type_: str | pa.DataType, item: Any, expected: Any) -> None:
    schema = trace_schema({"c": type_})
    inner = schema.field("c").type
    assert stored(type_, [item, None]) == [expected, None]
    assert stored(type_, np.array([item, None], object)) == [expected, None]
    assert stored(pa.list_(inner), [[item], None, [None, item]]) == [[expected], None, [None, expected]]
    assert stored(pa.list_(inner, 2), [[item, item]]) == [[expected, expected]]
    assert stored(pa.large_list(inner), [[item]]) == [[expected]]
    assert stored(pa.struct([("a", inner)]), [{"a": item}, {}]) == [{"a": expected}, {"a": None}]
    assert stored(pa.map_(pa.string(), inner), [{"k": item}]) == [[("k", expected)]]
    assert stored(pa.list_(pa.list_(inner)), [[[item]]]) == [[[expected]]]
    if item is not pd.NA:
        assert stored(type_, item) == [expected]


@pytest.mark.parametrize(
    ("type_", "item", "message"),
    [
        ("datetime", NS, "cannot store exactly"),
        ("date", NOON, "cannot store exactly"),
        ("timestamp", datetime.datetime(9999, 1, 1), "beyond the range"),
        ("timestamp", np.datetime64(5, "ps"), "nanoseconds"),
        ("timestamp", 5, "an integer"),
        ("timestamp", "2026-01-01", "a string"),
        ("timestamp", datetime.timedelta(1), "timedelta"),
        ("string", math.nan, "nan.*None for a null"),
        ("string", pd.NaT, "NaT"),
        ("string", 1, "an integer"),
        ("string", b"\xff", "utf-8"),
        ("string", "\ud800", "surrogates"),
        ("bigint", math.nan, "nan.*None for a null"),
        ("bigint", "7", "a string"),
        ("bigint", NOON, "datetime"),
        ("bigint", Decimal("0.5"), "not an integer"),
        ("bigint", np.timedelta64(5, "s"), "timedelta"),
        ("bigint", 2**70, "int64|int too large|too big"),
        ("double", ID, "UUID"),
        ("double", 2**53 + 1, "9007199254740993"),
        ("boolean", "yes", "a string"),
        ("decimal(10,2)", math.nan, "finite"),
        ("decimal(10,2)", Decimal("Infinity"), "finite"),
        ("decimal(10,2)", "0.1", "a string"),
        ("binary", 1, "an integer"),
        (pa.time64("us"), datetime.time(1, tzinfo=ZONE), "without a zone"),
        (pa.duration("ns"), np.timedelta64(1, "M"), "nanoseconds"),
    ],
)
def test_what_is_not_exact_is_refused_with_a_reason(type_: str | pa.DataType, item: Any, message: str) -> None:
    inner = trace_schema({"c": type_}).field("c").type
    for whole, value in (
        (type_, [item]),
        (type_, np.array([item, None], object)),
        (pa.list_(inner), [[item]]),
        (pa.struct([("a", inner)]), [{"a": item}]),
        (pa.map_(pa.string(), inner), [[("k", item)]]),
        (pa.list_(inner, 1), [[item]]),
    ):
        with pytest.raises(InvalidInputError, match=message):
            stored(whole, value)


@pytest.mark.parametrize("unit", ["W", "D", "h", "m", "s", "ms", "us", "ns"])
def test_times_of_numpy_have_any_unit(unit: str) -> None:
    times = np.array(["2026-01-01", "NaT"], f"datetime64[{unit}]")
    expected = [pd.Timestamp(times[0].astype("datetime64[ns]")), None]
    assert stored("timestamp", times) == expected
    assert stored("array<timestamp>", times.reshape(2, 1)) == [[expected[0]], [None]]
    assert stored("array<timestamp>", [times, times[:1]]) == [expected, expected[:1]]
    assert stored("array<array<timestamp>>", times.reshape(1, 2, 1)) == [[[expected[0]], [None]]]
    assert stored("timestamp", np.ma.array(times, mask=[True, False])) == [None, None]


def test_texts_of_numpy_2() -> None:
    if not hasattr(getattr(np, "dtypes", None), "StringDType"):
        pytest.skip("numpy 1")
    texts = np.array(["a", "中"], np.dtypes.StringDType())
    assert stored("string", texts) == ["a", "中"]
    assert stored("array<string>", texts.reshape(1, 2)) == [["a", "中"]]
    with pytest.raises(InvalidInputError):
        stored("bigint", texts)


def test_rows_of_arrays_with_several_types_are_not_rounded() -> None:
    whole, half = np.array([2**53 + 1]), np.array([0.5])
    with pytest.raises(InvalidInputError, match="9007199254740993"):
        stored("array<double>", [whole, half])
    assert stored("array<double>", [whole - 1, half]) == [[2.0**53], [0.5]]
    late = np.array(["9999-01-01"], "datetime64[s]")
    with refused(InvalidInputError, "column 'c'"):
        stored("array<timestamp>", [late, np.array(["2026-01-01"], "datetime64[ns]")])


@pytest.mark.parametrize(
    ("type_", "array"),
    [
        ("bigint", pa.array(["7"])),
        ("string", pa.array([7])),
        ("timestamp", pa.array([7])),
        ("bigint", pa.array([NOON])),
        ("array<bigint>", pa.array([["7"]])),
        ("string", pa.array([True])),
    ],
)
def test_arrays_of_arrow_of_another_kind_are_refused(type_: str, array: pa.Array) -> None:
    with refused(InvalidInputError, "column 'c'"):
        stored(type_, array)


def test_a_null_is_no_key_of_a_map() -> None:
    with refused(InvalidInputError, "column 'c'"):
        stored("map<string,bigint>", [{None: 1}])
