"""Strings of steps that are kept as one bytes object; buffers that a thread of the writer creates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._data.trace.block import BlockBuilder, SpareBuffers
from pai_sdk._data.trace.columns import Columns
from pai_sdk._data.trace.strings import PackedStrings, pack_strings
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk._data.trace.types import trace_schema
from pai_sdk.errors import InvalidInputError
from tests.unit.data.trace.fake_sink import FakeSink

pytestmark = pytest.mark.interpreter


class Label(str):
    __slots__ = ()

    def __len__(self) -> int:
        return 1

    def __str__(self) -> str:
        return "not the value"


def stored(steps: list[object]) -> list[str | None]:
    schema = trace_schema({"s": "string"})
    builder, columns = BlockBuilder(schema), Columns(schema)
    for step in steps:
        builder.append(*columns.prepare({"s": step}))
    table = pa.Table.from_batches(builder.batches())
    table.validate(full=True)
    values: list[str | None] = table["s"].to_pylist()
    return values


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@given(st.lists(st.lists(st.one_of(TEXTS, st.sampled_from(["", "\0", "é", "語", None, Label("ab")])), max_size=6)))
def test_strings_come_back_as_they_were(steps: list[list[str | None]]) -> None:
    assert stored(steps) == [value for step in steps for value in step]


@pytest.mark.parametrize("steps", [300, 600])
def test_the_strings_of_many_steps_are_joined_in_their_order(steps: int) -> None:
    values = [[f"{step}-{row}" for row in range(3)] for step in range(steps)]
    values[steps // 2][1] = None  # type: ignore[call-overload]
    assert stored(values) == [value for step in values for value in step]


@pytest.mark.parametrize("dtype", [object, "U8"])
def test_strings_of_an_array_are_packed(dtype: object) -> None:
    array = np.array(["a", "", "é"], dtype)  # type: ignore[call-overload]
    packed = pack_strings(array)
    assert isinstance(packed, PackedStrings)
    assert stored([array, array[::2]]) == ["a", "", "é", "a", "é"]


@pytest.mark.parametrize("wrong", [7, 0.5, ["x"], object(), "\ud800"])
def test_a_wrong_item_of_a_long_list_is_refused_and_nothing_of_the_step_is_stored(wrong: object) -> None:
    sink = FakeSink()
    with TraceWriter({"id": "bigint", "name": "string"}, sink) as writer:
        writer.write(id=[1], name=["first"])
        names: list[object] = [f"row {number}" for number in range(1000)]
        names[999] = wrong
        with pytest.raises(InvalidInputError) as caught:
            writer.write(id=np.arange(1000), name=names)
        assert [problem.where for problem in caught.value.problems] == ["column 'name'"]
        assert writer.stats().rows_fed == 1
        writer.write(id=[2], name=["second"])
    assert sink.visible(writer.schema).to_pydict() == {"id": [1, 2], "name": ["first", "second"]}


def test_the_caller_may_change_its_list_or_array_of_strings_at_once() -> None:
    sink = FakeSink()
    names, array = ["", ""], np.array(["", ""], object)
    with TraceWriter({"a": "string", "b": "string"}, sink) as writer:
        for step in range(20):
            names[:] = array[:] = [f"{step} first", f"{step} second"]
            writer.write(a=names, b=array)
            names[:] = array[:] = ["changed", "changed"]
    expected = [f"{step} {which}" for step in range(20) for which in ("first", "second")]
    assert sink.visible(writer.schema).to_pydict() == {"a": expected, "b": expected}


def test_memory_of_packed_strings_is_that_of_the_arrow_array_at_least() -> None:
    schema = trace_schema({"s": "string"})
    builder, columns = BlockBuilder(schema), Columns(schema)
    builder.append(*columns.prepare({"s": ["four"] * 1000}))
    assert builder.size_bytes >= builder.batches()[0].nbytes >= 8000


# ---- spare buffers

STEP = {"id": np.arange(1000), "vector": np.ones((1000, 32))}


def steps_of(spares: SpareBuffers, count: int) -> tuple[list[int], BlockBuilder]:
    """The steps after which buffers are requested; they are created at once."""
    schema = trace_schema({"id": "bigint", "vector": "array<double>"})
    columns = Columns(schema)
    builder = BlockBuilder(schema, block_bytes=64 << 20, spares=spares)
    requested_after = []
    for number in range(count):
        builder.append(*columns.prepare({**STEP, "id": STEP["id"] + 1000 * number}))
        if spares.is_requested:
            requested_after.append(number)
            spares.add(spares.create(spares.claim()))
    return requested_after, builder


def test_a_part_takes_the_spare_buffers_which_are_requested_once_when_the_last_one_is_half_full() -> None:
    requested_after, builder = steps_of(SpareBuffers(1 << 30), 80)
    assert len(requested_after) == 3
    assert requested_after[0] > 10
    builder.trim()
    table = pa.Table.from_batches(builder.drain())
    table.validate(full=True)
    assert table["id"].to_pylist() == list(range(80_000))
    assert table["vector"][79_999].as_py() == [1.0] * 32


def test_no_spare_buffers_beyond_a_share_of_the_memory() -> None:
    spares = SpareBuffers(1 << 20)
    assert steps_of(spares, 40)[0] == []
    assert spares.size_bytes == 0


def test_a_block_that_ends_early_keeps_its_rows_when_the_rest_of_its_buffers_is_released() -> None:
    _, builder = steps_of(SpareBuffers(), 3)
    builder.trim()
    table = pa.Table.from_batches(builder.batches())
    table.validate(full=True)
    assert table["id"].to_pylist() == list(range(3000))
    assert table["vector"][2999].as_py() == [1.0] * 32
