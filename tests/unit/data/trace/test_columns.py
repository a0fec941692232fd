"""Values of a step: types, lengths, nulls: TRC-16; TRC-B4, B14, B15."""

from __future__ import annotations

import datetime
import math
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._data.trace.block import BlockBuilder
from pai_sdk._data.trace.columns import Columns
from pai_sdk._data.trace.types import trace_schema
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

LISTS = pa.list_(pa.field("element", pa.int64()))


def stored(types: dict[str, str], *steps: dict[str, object], missing: str = "error") -> dict[str, list]:
    schema = trace_schema(types)
    builder, columns = BlockBuilder(schema), Columns(schema, missing=missing)
    for step in steps:
        builder.append(*columns.prepare(step))
    batch = pa.Table.from_batches(builder.batches())
    batch.validate(full=True)
    assert batch.schema == schema
    return batch.to_pydict()


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("bigint", [1, -(2**63), 2**63 - 1]),
        ("bigint", [1, None, 3]),
        ("double", [0.5, None, 1e300]),
        ("float", [0.5, 0.25]),
        ("boolean", [True, False, None]),
        ("string", ["a", "", None, "中文 🎉"]),
        ("binary", [b"\0\xff", b""]),
        ("array<double>", [[1.0, 2.0], [], None]),
        ("array<array<bigint>>", [[[1], []], []]),
        ("map<string,bigint>", [[("a", 1)], []]),
        ("struct<a:int,b:string>", [{"a": 1, "b": "x"}, None]),
        ("map<string,bigint>", [None, [("a", 1), ("b", None)]]),
        ("array<map<string,double>>", [[[("a", 0.5)], []], None]),
        ("struct<a:array<int>,m:map<int,string>>", [{"a": [1, None], "m": [(1, "x")]}]),
        ("map<string,array<struct<a:int>>>", [[("k", [{"a": 1}, None])]]),
        ("double", [2**53, -(2**53), None]),
        ("decimal(10,2)", [Decimal("1.25"), None]),
    ],
)
def test_lists_come_back_as_they_were(type_: str, values: list) -> None:
    assert stored({"c": type_}, {"c": values}, {"c": values}) == {"c": values + values}


@pytest.mark.parametrize(
    ("type_", "array"),
    [
        ("bigint", np.array([1, 2], np.int32)),
        ("bigint", np.array([1, 2], np.uint64)),
        ("int", np.array([1, 2], np.int64)),
        ("double", np.array([1.5, math.inf], np.float32)),
        ("float", np.array([1.5, 2.5], np.float64)),
        ("double", np.array([1, 2], np.int64)),
        ("bigint", np.array([True, False])),
        ("bigint", np.arange(20)[::2]),
        ("bigint", np.array([1, 2], ">i8")),
        ("boolean", np.array([True, False])),
        ("string", np.array(["a", "bc"])),
        ("string", np.array(["a", None], object)),
        ("array<double>", np.ones((3, 4))),
        ("array<double>", np.ones((3, 4), np.float32).T),
        ("array<array<bigint>>", np.arange(24).reshape(2, 3, 4)),
        ("array<boolean>", np.ones((2, 3), bool)),
        ("array<double>", np.ones((3, 0))),
        ("date", np.array(["2026-01-01"], "datetime64[D]")),
    ],
)
def test_arrays_are_stored_as_the_type_of_the_column(type_: str, array: np.ndarray) -> None:
    assert stored({"c": type_}, {"c": array})["c"] == array.tolist()


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("int", np.array([2**40]), "beyond the range of int32"),
        ("bigint", np.array([2**63], np.uint64), "beyond the range of int64"),
        ("bigint", np.array([0.5]), "do not become int64"),
        ("bigint", [0.5], "c"),
        ("bigint", ["a"], "c"),
        ("double", np.array(["a"]), "do not become float64"),
        ("double", np.ones((2, 2)), "2 dimensions"),
        ("array<double>", np.ones((2, 2, 2)), "3 dimensions|2 dimensions"),
        ("string", np.array([1.0]), "has float64 values"),
        ("double", {"a": 1}, "expected a tensor, a numpy array or a list, got a mapping"),
        ("double", object(), "got object"),
        ("bigint", "seven", "c"),
    ],
)
def test_values_that_do_not_fit_are_refused_in_the_caller(type_: str, value: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        stored({"c": type_}, {"c": value})


def test_numbers_and_texts_are_repeated_for_all_rows() -> None:
    found = stored({"step": "bigint", "name": "string", "x": "double"}, {"step": 3, "name": "a", "x": [1, 2]})
    assert found == {"step": [3, 3], "name": ["a", "a"], "x": [1.0, 2.0]}
    assert stored({"a": "bigint"}, {"a": 1}, {"a": np.int64(2)}, {"a": np.array(3)}) == {"a": [1, 2, 3]}


def test_all_mistakes_of_a_step_are_told_at_once() -> None:
    with refused(InvalidInputError, "column 'bb'", "column 'b'", "columns") as caught:
        stored({"a": "bigint", "b": "bigint", "c": "double"}, {"a": [1, 2], "c": [1.0], "bb": [1]})
    assert [problem.where for problem in caught.value.problems] == ["column 'bb'", "column 'b'", "columns"]


def test_nothing_of_a_wrong_step_is_kept() -> None:
    schema = trace_schema({"a": "bigint", "b": "bigint"})
    builder, columns = BlockBuilder(schema), Columns(schema)
    with pytest.raises(InvalidInputError):
        builder.append(*columns.prepare({"a": [1, 2], "b": ["x"]}))
    assert builder.rows == 0


def test_missing_columns_can_be_nulls() -> None:
    steps = {"a": [1, 2]}, {"b": ["x"]}, {}
    found = stored({"a": "bigint", "b": "string"}, *steps, missing="null")
    assert found == {"a": [1, 2, None, None], "b": [None, None, "x", None]}


def test_a_given_none_is_null() -> None:
    assert stored({"a": "bigint", "b": "double"}, {"a": [1, 2], "b": None})["b"] == [None, None]


def test_not_a_number_stays_what_it_is() -> None:
    [value] = stored({"a": "double"}, {"a": np.array([math.nan])})["a"]
    assert math.isnan(value)


def test_a_wrong_word_for_missing() -> None:
    with refused(InvalidInputError, "missing"):
        Columns(trace_schema({"a": "int"}), missing="skip")


def test_arrow_arrays_are_taken_and_cast() -> None:
    assert stored({"a": "bigint"}, {"a": pa.array([1, None], pa.int8())}) == {"a": [1, None]}
    assert stored({"a": "bigint"}, {"a": pa.chunked_array([[1], [2]])}) == {"a": [1, 2]}


@given(
    st.lists(
        st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text())), max_size=6
    ),
    st.booleans(),
)
def test_any_steps_come_back_as_they_were(steps: list[list[tuple[int, float, str]]], as_arrays: bool) -> None:
    def columns_of(rows: list[tuple[int, float, str]]) -> dict[str, object]:
        numbers = [row[0] for row in rows]
        values = [row[1] for row in rows]
        return {
            "a": np.array(numbers, np.int64) if as_arrays else numbers,
            "b": np.array(values, np.float64) if as_arrays else values,
            "c": [row[2] for row in rows],
        }

    found = stored({"a": "bigint", "b": "double", "c": "string"}, *map(columns_of, steps))
    rows = [row for step in steps for row in step]
    assert list(zip(found["a"], found["b"], found["c"], strict=True)) == rows


def test_no_buffer_is_copied_before_a_block_is_complete() -> None:
    schema = trace_schema({"id": "bigint", "vector": "array<double>", "loss": "double", "label": "string"})
    builder, columns = BlockBuilder(schema, block_bytes=1 << 20), Columns(schema)

    def addresses() -> list[int]:
        return [column.buffers()[-1].address for column in builder.batches()[0].columns[:3]]

    vectors = np.ones((1000, 4), np.float32)
    step = {"id": np.arange(1000), "vector": vectors, "loss": np.ones(1000), "label": "a"}
    builder.append(*columns.prepare(step))
    first = addresses()
    while builder.size_bytes < 1 << 20:
        builder.append(*columns.prepare(step))
    assert addresses() == first
    assert builder.batches()[0].num_rows == builder.rows > 1000


def test_a_step_of_more_items_than_arrow_counts_is_refused() -> None:
    builder = BlockBuilder(trace_schema({"c": "array<tinyint>"}))
    builder.append({"c": np.zeros((1, 3), np.int8)}, 1)
    with refused(InvalidInputError, "the rows of a step"):
        builder.append({"c": np.broadcast_to(np.int8(0), (1, 1 << 31))}, 1)
    assert pa.Table.from_batches(builder.batches()).to_pydict() == {"c": [[0, 0, 0]]}


@pytest.fixture
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.fixture
def large_block() -> BlockBuilder:
    """20 steps of 100 rows, in parts of about 5 steps."""
    schema = trace_schema({"id": "bigint", "vector": "array<double>", "label": "string"})
    builder, columns = BlockBuilder(schema, block_bytes=1 << 20, max_part_bytes=1 << 16), Columns(schema)
    sizes = []
    for number in range(20):
        step = {"id": np.arange(100), "vector": np.ones((100, 16)), "label": str(number % 10)}
        builder.append(*columns.prepare(step))
        sizes.append(builder.size_bytes)
    assert sizes == [sizes[0] * (1 + number) for number in range(20)]
    return builder


def test_the_parts_of_a_large_block_are_its_rows(large_block: BlockBuilder) -> None:
    size_bytes = large_block.size_bytes
    expected = pa.Table.from_batches(large_block.batches())
    batches = list(large_block.drain())
    assert len(batches) > 3
    assert pa.Table.from_batches(batches).equals(expected)
    assert expected["label"].to_pylist() == [str(number % 10) for number in range(20) for _ in range(100)]
    assert expected["id"].to_pylist() == list(range(100)) * 20
    assert set(map(tuple, expected["vector"].to_pylist())) == {(1.0,) * 16}
    assert (large_block.rows, large_block.size_bytes) == (2000, size_bytes)


@pytest.mark.usefixtures("traced_memory")
def test_a_part_that_is_encoded_leaves_the_memory(large_block: BlockBuilder) -> None:
    left = []
    for batch in large_block.drain():
        left.append(tracemalloc.get_traced_memory()[0])
        del batch
    assert left == sorted(left, reverse=True)
    assert left[0] - left[-1] > large_block.size_bytes / 2


ROWS_OF_NUMBERS = st.lists(
    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-100, 100)), max_size=4))
)
ARRAYS = st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans())


@given(
    st.lists(
        st.one_of(ROWS_OF_NUMBERS, ARRAYS, ROWS_OF_NUMBERS.map(lambda rows: pa.array(rows, LISTS))), max_size=5
    )
)
def test_lists_of_numbers_from_arrays_and_lists_come_back_as_they_were(steps: list[object]) -> None:
    given_, expected = [], []
    for step in steps:
        if isinstance(step, tuple):
            rows, width, is_turned = step
            array = np.arange(rows * width, dtype=np.int16).reshape((width, rows) if is_turned else (rows, width))
            step = array.T if is_turned else array
        elif isinstance(step, pa.Array) and len(step) > 2:
            step = step[1:-1]  # a slice has the memory of the whole
        given_.append({"c": step})
        expected += step if isinstance(step, list) else step.tolist()
    assert stored({"c": "array<bigint>"}, *given_) == {"c": expected}


def test_a_null_of_arrow_that_has_items_is_null() -> None:
    items = pa.array([1.0, 2.0, 3.0])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), items, mask=pa.array([True, False]))
    assert stored({"c": "array<double>"}, {"c": lists}, {"c": [[4.0]]}) == {"c": [None, [3.0], [4.0]]}


def test_memory_of_a_slice_is_that_of_its_rows() -> None:
    schema = trace_schema({"c": "array<double>"})
    builder, columns = BlockBuilder(schema), Columns(schema)
    lists = pa.array([[1.0] * 10] * 1000, type=schema.field("c").type)
    builder.append(*columns.prepare({"c": lists[5:7]}))
    assert builder.size_bytes < 200


def test_a_step_keeps_the_values_that_an_array_had() -> None:
    schema = trace_schema({"c": "array<double>"})
    builder, columns = BlockBuilder(schema), Columns(schema)
    array = np.ones((2, 2))
    builder.append(*columns.prepare({"c": array}))
    array[:] = 7
    assert pa.Table.from_batches(builder.batches()).to_pydict() == {"c": [[1.0, 1.0], [1.0, 1.0]]}


@pytest.mark.parametrize(
    ("type_", "value", "stored_as"),
    [
        ("double", np.array([2**60, 7]), [2.0**60, 7.0]),
        ("double", np.array([2**63], np.uint64), [2.0**63]),
        ("float", np.array([0.1, math.inf, math.nan]), [np.float32(0.1), math.inf, math.nan]),
        ("float", [0.1, -math.inf], [np.float32(0.1), -math.inf]),
        ("decimal(10,2)", [0.1, 0.25, 3], [Decimal("0.10"), Decimal("0.25"), Decimal(3)]),
        ("decimal(10,2)", np.array([0.5, 7.0]), [Decimal("0.50"), Decimal(7)]),
        ("decimal(10,2)", np.array([7]), [Decimal(7)]),
        ("bigint", np.ma.array([1, 2], mask=[0, 1]), [1, None]),
        ("double", np.ma.array([1.5, 1e300], mask=[0, 1]), [1.5, None]),
        ("float", np.ma.array([1.5, 1e300], mask=[0, 1]), [1.5, None]),
        ("boolean", np.ma.array([True, True], mask=[0, 1]), [True, None]),
        ("string", np.ma.array(["a", "b"], mask=[0, 1]), ["a", None]),
        ("array<bigint>", np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]), [[1, None], [3, 4]]),
        ("double", np.ma.masked, [None]),
        ("bigint", np.array([1, None], object), [1, None]),
        ("map<string,bigint>", [{"a": 1}], [[("a", 1)]]),
        ("array<double>", [np.array([1.5]), np.array([2.5, 3.5])], [[1.5], [2.5, 3.5]]),
        ("array<double>", [np.array([1.5]), None, []], [[1.5], None, []]),
        ("array<bigint>", [(1, 2), [3]], [[1, 2], [3]]),
        ("struct<a:int,b:string>", [{"a": 1}], [{"a": 1, "b": None}]),
        (
            "datetime",
            np.datetime64("2026-01-01T00:00:00.500", "ns"),
            [datetime.datetime(2026, 1, 1, 0, 0, 0, 500000)],
        ),
        ("date", datetime.date(2026, 1, 2), [datetime.date(2026, 1, 2)]),
        ("decimal(10,2)", Decimal("1.5"), [Decimal("1.50")]),
        ("bigint", 7.0, [7]),
        ("array<double>", pa.array([[1.5]], pa.list_(pa.float32())), [[1.5]]),
    ],
)
def test_what_is_stored(type_: str, value: object, stored_as: list) -> None:
    np.testing.assert_equal(stored({"c": type_}, {"c": value})["c"], stored_as)


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("double", np.array([2**53 + 1]), "the integer 9007199254740993, which float64 cannot store"),
        ("double", np.array([2**63 - 1]), "the integer"),
        ("double", np.array([2**64 - 1], np.uint64), "the integer"),
        ("double", [2**53 + 1], "9007199254740993"),
        ("double", [2**53 + 1, 0.5], "9007199254740993"),
        ("double", 2**53 + 1, "the integer"),
        ("float", np.array([2**24 + 1]), "integer 16777217, which float32"),
        ("float", [2**24 + 1], "16777217|exactly"),
        ("array<double>", np.array([[2**53 + 1]]), "the integer"),
        ("array<double>", [[2**53 + 1]], "9007199254740993"),
        ("array<double>", [np.array([2**53 + 1])], "the integer"),
        ("float", np.array([1e300]), "beyond the range of float32"),
        ("float", np.array([1e300, math.nan]), "beyond the range of float32"),
        ("float", [1e300], "beyond the range of float"),
        ("float", 1e300, "beyond the range of float32"),
        ("float", [math.inf, -1e300], "beyond the range of float"),
        ("array<float>", np.array([[1e300]]), "beyond the range of float32"),
        ("array<float>", [[1e300]], "beyond the range of float"),
        ("array<float>", pa.array([[1e300]]), "beyond the range of float"),
        ("map<string,float>", [{"a": 1e300}], "beyond the range of float"),
        ("map<string,int>", [{"a": 0.5}], "0.5|truncated"),
        ("double", pa.array([2**53 + 1]), "9007199254740993"),
        ("struct<a:int,b:string>", [{"a": 1, "bb": "x"}], "unknown field 'bb'; did you mean 'b'"),
        ("array<struct<a:int>>", [[{"z": 1}]], "unknown field 'z'"),
        ("struct<a:int>", pa.array([{"a": 1, "z": 2}]), "unknown field 'z'"),
        ("decimal(10,2)", [0.125], "c"),
        ("decimal(10,2)", np.array([0.1 + 0.2]), "c"),
        ("decimal(10,2)", 0.126, "c"),
        ("decimal(10,2)", [Decimal("0.126")], "c"),
        ("decimal(4,2)", [1000], "c"),
        ("decimal(10,2)", [math.nan], "c"),
        ("boolean", [2], "bool cannot store exactly"),
        ("boolean", [0.5], "bool cannot store exactly"),
        ("date", [datetime.datetime(2026, 1, 1, 12)], "c"),
        ("date", np.array(["2026-01-01T12:00"], "datetime64[s]"), "c"),
        ("datetime", np.array([1], "datetime64[ns]"), "c"),
        ("timestamp", [datetime.datetime(3000, 1, 1)], "c"),
        ("double", [[1.0]], "c"),
        ("array<double>", [1.0], "expected a list for each row of list<.*>, got a float"),
        ("array<double>", ["ab"], "got a string"),
        ("array<array<double>>", [[1.0]], "got a float"),
        ("struct<a:int>", [1], "expected a mapping for each row of struct<.*>, got an integer"),
        ("struct<a:array<int>>", [{"a": 1}], "got an integer"),
        ("map<string,int>", [1], "expected a mapping or pairs for each row of map<.*>, got an integer"),
        ("map<string,int>", [["ab"]], "expected a mapping or pairs"),
        ("map<string,int>", [{None: 1}], "c"),
        ("bigint", [{"a": 1}], "c"),
        ("string", [["a"]], "c"),
        ("bigint", pa.array([[1]]), "c"),
        ("bigint", np.ma.array([1.5], mask=[0]), "do not become int64"),
        ("bigint", [object()], "c"),
        ("bigint", 2**64, "c"),
    ],
)
def test_no_value_is_changed_in_silence(type_: str, value: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        stored({"c": type_}, {"c": value})
    assert [problem.where for problem in caught.value.problems] == ["column 'c'"]


class Interrupted(dict[str, Any]):
    """Columns of a step; Ctrl-C comes when the last one is about to be copied."""

    def __init__(self, columns: dict[str, Any], last: str, looks_before: int) -> None:
        super().__init__(columns)
        self._last, self._looks = last, looks_before

    def __getitem__(self, name: str) -> Any:
        if name == self._last:
            self._looks -= 1
            if self._looks < 0:
                raise KeyboardInterrupt
        return super().__getitem__(name)


@pytest.mark.parametrize("looks_before", [0, 1, 2])
def test_a_step_that_is_interrupted_leaves_no_half_row(looks_before: int) -> None:
    """Looks at the columns of a first step, to reserve memory, come before the copies."""
    types = {"a": "bigint", "v": "array<int>", "s": "string", "p": "string", "n": "double", "z": "bigint"}
    schema = trace_schema(types)
    builder, columns = BlockBuilder(schema, block_bytes=1 << 20), Columns(schema)
    step = {"a": [1, 2], "v": [[1, 2], None], "s": ["x", None], "p": ["y", ""], "n": [0.5, None], "z": [7, 8]}
    is_first = looks_before > 0
    if not is_first:
        builder.append(*columns.prepare(step))
    prepared, rows = columns.prepare(step)
    with pytest.raises(KeyboardInterrupt):
        builder.append(Interrupted(prepared, "z", looks_before), rows)
    builder.append(*columns.prepare(step))
    times = 1 if is_first else 2
    assert builder.rows == 2 * times
    assert pa.Table.from_batches(builder.batches()).to_pydict() == {
        name: list(values) * times for name, values in step.items()
    }
