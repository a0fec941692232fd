"""Values collected within a step, and the hooks that write them: TRC-02, 03, 13 to 15; TRC-B3, B4, B8, B17."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pytest

from pai_sdk.errors import InvalidInputError
from pai_sdk.trace import add_to_trace, clear_trace_map, get_trace_map, trace
from pai_sdk.trace.hook import TraceHook
from pai_sdk.trace.trace_writer import TraceWriter
from tests.unit.trace.fake_sink import FakeSink


@pytest.fixture(autouse=True)
def _empty_map() -> None:
    clear_trace_map()


def hook_of(sink: FakeSink, when: str = "train", **types: str) -> TraceHook:
    return TraceHook(TraceWriter(types, sink), when=when)


def column(sink: FakeSink, name: str, type_: pa.DataType) -> list:
    return sink.visible(pa.schema([(name, type_)]))[name].to_pylist()


def test_steps_of_training_are_written_and_those_of_evaluation_are_not() -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double")
    hook.before_train()
    for step in range(3):
        trace("loss", [float(step)])
        hook.after_step()
    trace("loss", [99.0])
    hook.after_step(is_train=False)
    hook.end()
    assert column(sink, "loss", pa.float64()) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(("when", "found"), [("eval", [2.0]), ("both", [1.0, 2.0])])
def test_other_kinds_of_steps(when: str, found: list[float]) -> None:
    sink = FakeSink()
    hook = hook_of(sink, when, loss="double")
    trace("loss", [1.0])
    hook.after_step(True)
    trace("loss", [2.0])
    hook.after_step(False)
    hook.end()
    assert column(sink, "loss", pa.float64()) == found


def test_two_hooks_take_their_own_columns() -> None:
    sinks = FakeSink(), FakeSink()
    one, other = hook_of(sinks[0], loss="double"), hook_of(sinks[1], score="bigint")
    for step in range(3):
        trace("loss", [float(step)])
        trace("score", [step])
        one.after_step()
        other.after_step()
    one.end()
    other.end()
    assert column(sinks[0], "loss", pa.float64()) == [0.0, 1.0, 2.0]
    assert column(sinks[1], "score", pa.int64()) == [0, 1, 2]


def test_two_hooks_with_one_column_both_get_it() -> None:
    sinks = FakeSink(), FakeSink()
    hooks = [hook_of(sink, loss="double") for sink in sinks]
    trace("loss", [1.0])
    for hook in hooks:
        hook.after_step()
        hook.end()
    assert [column(sink, "loss", pa.float64()) for sink in sinks] == [[1.0], [1.0]]


def test_the_first_step_may_be_empty() -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double")
    hook.after_step()
    trace("loss", [1.0])
    hook.after_step()
    hook.end()
    assert column(sink, "loss", pa.float64()) == [1.0]


def test_values_are_copied_when_they_are_given() -> None:
    sink = FakeSink()
    hook = hook_of(sink, ids="bigint", names="string")
    ids, names = np.arange(3), ["a", "b", "c"]
    trace("ids", ids)
    trace("names", names)
    ids[:] = -1
    names[:] = "xyz"
    hook.after_step()
    hook.end()
    assert sink.visible(hook.writer.schema).to_pydict() == {"ids": [0, 1, 2], "names": ["a", "b", "c"]}


@pytest.mark.parametrize("value", [None, 7, 0.5, "text", {"a": 1}, {1, 2}])
def test_only_tensors_arrays_and_lists_are_taken(value: object) -> None:
    with pytest.raises(ValueError, match=f"is of type {type(value).__name__}"):
        add_to_trace("loss", value)


def test_the_last_value_of_a_step_counts(caplog: pytest.LogCaptureFixture) -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double")
    with caplog.at_level(logging.WARNING):
        trace("loss", [1.0])
        trace("loss", [2.0])
        trace("loss", [2.0])
    assert caplog.text.count("given twice") == 2
    hook.after_step()
    hook.end()
    assert column(sink, "loss", pa.float64()) == [2.0]


def test_a_name_that_no_hook_has() -> None:
    hook = hook_of(FakeSink(), loss="double")
    with pytest.raises(InvalidInputError, match="did you mean 'loss'"):
        trace("los", [1.0])
    hook.end()


def test_the_map_of_a_step() -> None:
    add_to_trace("a", [1])
    before = get_trace_map()
    assert before == {"a": [1]}
    clear_trace_map()
    assert get_trace_map() == {}
    assert before == {"a": [1]}  # what was taken before stays as it was


def test_the_map_is_empty_after_the_step() -> None:
    hook = hook_of(FakeSink(), loss="double")
    trace("loss", [1.0])
    assert list(get_trace_map()) == ["loss"]
    hook.after_step()
    assert get_trace_map() == {}
    hook.end()


def test_a_loop_over_batches_ends_the_hook() -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double")
    for batch in hook.steps([[1.0], [2.0]]):
        trace("loss", batch)
    assert not hook.check_alive()
    assert column(sink, "loss", pa.float64()) == [1.0, 2.0]


def test_a_wrong_kind_of_steps() -> None:
    with TraceWriter({"a": "int"}, FakeSink()) as writer, pytest.raises(InvalidInputError, match="'eval'"):
        TraceHook(writer, when="test")


def test_two_values_without_a_hook(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        trace("loss", [1.0])
        trace("loss", [2.0])
    assert caplog.text.count("given twice") == 1
    assert get_trace_map() == {"loss": [2.0]}


def test_a_loop_calls_the_whole_protocol() -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double")
    hook.before_train(True)
    hook.before_epoch(is_train=True)
    hook.before_step(is_train=True, step=1)
    trace("loss", [1.0])
    hook.after_step(True, 1, loss=0.5)
    hook.after_epoch(True)
    hook.after_train()
    hook.before_evaluate()
    trace("loss", [2.0])
    hook.after_step(False)
    hook.after_evaluate()
    assert hook.check_alive()
    hook.end(is_train=True)
    assert not hook.check_alive()
    assert column(sink, "loss", pa.float64()) == [1.0]
