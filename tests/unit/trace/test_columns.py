"""Values of a step: types, lengths, nulls: TRC-16; TRC-B4, B14, B15."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk.errors import InvalidInputError
from pai_sdk.trace.block import BlockBuilder
from pai_sdk.trace.columns import Columns
from pai_sdk.trace.types import trace_schema


def stored(types: dict[str, str], *steps: dict[str, object], missing: str = "error") -> dict[str, list]:
    schema = trace_schema(types)
    builder, columns = BlockBuilder(schema), Columns(schema, missing=missing)
    for step in steps:
        builder.append(*columns.prepare(step))
    batch = builder.build()
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
        ("double", {"a": 1}, "is of type dict; give a tensor"),
        ("double", object(), "is of type object"),
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
    with pytest.raises(InvalidInputError) as caught:
        stored({"a": "bigint", "b": "bigint", "c": "double"}, {"a": [1, 2], "c": [1.0], "bb": [1]})
    assert [problem.where for problem in caught.value.problems] == ["column 'bb'", "column 'b'", "columns"]
    assert "did you mean 'b'" in str(caught.value)
    assert "a: 2, c: 1" in str(caught.value)


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
    with pytest.raises(InvalidInputError, match="'error' or 'null'"):
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
    schema = trace_schema({"id": "bigint", "loss": "double", "label": "string"})
    builder, columns = BlockBuilder(schema, block_bytes=1 << 20), Columns(schema)
    buffers = [column._buffer for column in builder._columns.values() if hasattr(column, "_buffer")]
    while builder.size_bytes < 1 << 20:
        builder.append(*columns.prepare({"id": np.arange(1000), "loss": np.ones(1000), "label": "a"}))
    after = [column._buffer for column in builder._columns.values() if hasattr(column, "_buffer")]
    assert [id(buffer) for buffer in after] == [id(buffer) for buffer in buffers]
    assert builder.build().num_rows == builder.rows
