"""Values collected within a step, and the hooks that write them: TRC-02, 03, 13 to 15; TRC-B3, B4, B8, B17."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from pai_sdk._data.trace import hook as hook_module
from pai_sdk._data.trace.hook import TraceHook, add_to_trace, clear_trace_map, get_trace_map, trace
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk.errors import InvalidInputError, PaiError, TraceError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until
from tests.unit.data.trace.fake_sink import FakeSink, PicklableSink

pytestmark = pytest.mark.interpreter


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
    with refused(ValueError, "trace 'loss'"):
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
    with refused(InvalidInputError, "trace 'los'"):
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


def in_thread(function: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function).result()


def in_task(function: Callable[[], object]) -> None:
    async def call() -> None:
        function()

    async def main() -> None:
        await asyncio.create_task(call())

    asyncio.run(main())


def in_thread_of_task(function: Callable[[], object]) -> None:
    asyncio.run(asyncio.to_thread(function))


ELSEWHERE = pytest.mark.parametrize("elsewhere", [in_thread, in_task, in_thread_of_task])


@ELSEWHERE
def test_rows_of_other_threads_and_tasks_count(elsewhere: Callable[[Callable[[], object]], None]) -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double", id="bigint")
    for step in range(3):
        trace("id", [step])
        elsewhere(lambda step=step: trace("loss", [float(step)]))  # half of the loop's step
        hook.after_step()
    for step in range(3, 6):

        def both(step: int = step) -> None:
            add_to_trace("loss", [float(step)])
            add_to_trace("id", [step])

        elsewhere(both)  # all of it, twice
        elsewhere(both)
        hook.after_step()
    elsewhere(lambda: (both(6), hook.after_step()))  # and the loop itself
    hook.end()
    found = sink.visible(hook.writer.schema).to_pydict()
    assert found["id"] == [0, 1, 2, 3, 3, 4, 4, 5, 5, 6]
    assert found["loss"] == found["id"]


@ELSEWHERE
def test_a_misspelt_name_raises_in_other_threads_too(elsewhere: Callable[[Callable[[], object]], None]) -> None:
    hook = hook_of(FakeSink(), loss="double")
    with refused(InvalidInputError, "trace 'los'"):
        elsewhere(lambda: trace("los", [1.0]))
    with refused(InvalidInputError, "trace 'los'"):
        elsewhere(lambda: hook.trace("los", [1.0]))
    hook.end()


def test_threads_with_steps_of_their_own_do_not_mix_them() -> None:
    sink = FakeSink()
    hook = hook_of(sink, id="bigint", loss="double")
    ready = threading.Barrier(4)

    def loop(number: int) -> None:
        for step in range(200):
            trace("id", [number * 1000 + step])
            if step == 0:
                ready.wait(30)  # each thread is within its first step
            trace("loss", [float(number * 1000 + step)])
            hook.after_step()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(loop, range(4)))
    hook.end()
    found = sink.visible(hook.writer.schema).to_pydict()
    assert found["loss"] == found["id"]
    assert sorted(found["id"]) == [number * 1000 + step for number in range(4) for step in range(200)]


def test_tasks_with_steps_of_their_own_do_not_mix_them() -> None:
    sink = FakeSink()
    hook = hook_of(sink, id="bigint", loss="double")

    async def loop(number: int) -> None:
        for step in range(20):
            trace("id", [number * 1000 + step])
            await asyncio.sleep(0)
            trace("loss", [float(number * 1000 + step)])
            await asyncio.sleep(0)
            hook.after_step()

    async def main() -> None:
        await asyncio.gather(*map(loop, range(4)))

    asyncio.run(main())
    hook.end()
    found = sink.visible(hook.writer.schema).to_pydict()
    assert found["loss"] == found["id"]
    assert sorted(found["id"]) == [number * 1000 + step for number in range(4) for step in range(20)]


def test_batches_of_an_executor_count_although_threads_are_reused() -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: trace("loss", [float(number)]), range(20)))
    hook.after_step()
    hook.end()
    assert sorted(column(sink, "loss", pa.float64())) == list(map(float, range(20)))


def test_trainings_in_two_threads_are_kept_apart() -> None:
    sinks, hooks = [FakeSink(), FakeSink()], {}
    both_made, both_done = threading.Barrier(3), threading.Barrier(3)

    def train(number: int) -> None:
        hooks[number] = hook_of(sinks[number], loss="double")
        both_made.wait(30)
        for step in range(5):
            trace("loss", [100.0 * number + step])
            hooks[number].after_step()
        both_done.wait(30)

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    both_made.wait(30)
    with refused(InvalidInputError, "trace 'loss'"):
        trace("loss", [7.0])
    with hooks[1].bound() as hook:
        trace("loss", [7.0])
        assert list(get_trace_map()) == ["loss"]
        hook.after_step()
    both_done.wait(30)
    for thread in threads:
        thread.join(30)
    for hook in hooks.values():
        hook.end()
    found = [sorted(column(sink, "loss", pa.float64())) for sink in sinks]
    assert found == [[0.0, 1.0, 2.0, 3.0, 4.0], [7.0, 100.0, 101.0, 102.0, 103.0, 104.0]]


def test_half_a_step_that_another_thread_took_is_not_silent() -> None:
    hook = TraceHook(TraceWriter({"a": "int", "b": "int"}, FakeSink(), missing="null"))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(trace, "a", [1]).result()
        hook.after_step()  # takes it for the values of a helper
        pool.submit(trace, "b", [1]).result()
        with refused(TraceError):
            pool.submit(hook.after_step).result()
    hook.end()


def test_values_after_the_last_step_are_stored_by_end_in_another_thread(caplog: pytest.LogCaptureFixture) -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double")
    trace("loss", [1.0])
    hook.after_step()
    trace("loss", [2.0])
    with caplog.at_level(logging.WARNING):
        in_thread(hook.end)
    assert "after the last after_step()" in caplog.text
    assert column(sink, "loss", pa.float64()) == [1.0, 2.0]
    with refused(TraceError):
        hook.after_step()
    with refused(TraceError):
        hook.trace("loss", [3.0])


def test_steps_while_another_thread_ends_the_hook_are_stored_or_raise() -> None:
    is_ending, go_on = threading.Event(), threading.Event()

    def slow(operation: str, number: int) -> None:
        is_ending.set()
        go_on.wait(30)

    sink = FakeSink(before=slow)
    hook = hook_of(sink, loss="double")
    trace("loss", [1.0])
    hook.after_step()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(hook.end)
        assert is_ending.wait(30)
        trace("loss", [2.0])  # no hook takes it
        with refused(TraceError):
            hook.after_step()
        go_on.set()
        ended.result()
    assert hook.has_ended
    assert column(sink, "loss", pa.float64()) == [1.0]


def test_two_threads_may_end_a_hook_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    both_checked = threading.Barrier(2)

    class Hooks(list):
        def __contains__(self, ref: object) -> bool:
            result = super().__contains__(ref)
            with contextlib.suppress(threading.BrokenBarrierError):
                both_checked.wait(1.0)  # both threads check before either removes
            return result

    sink = FakeSink()
    hook = hook_of(sink, loss="double")
    trace("loss", [1.0])
    hook.after_step()
    monkeypatch.setattr(hook_module, "_active", Hooks(hook_module._active))
    with ThreadPoolExecutor(2) as pool:
        for ended in [pool.submit(hook.end) for _ in range(2)]:
            ended.result()
    assert hook.has_ended
    assert column(sink, "loss", pa.float64()) == [1.0]


def test_half_a_step_at_the_end_is_an_error_and_all_else_is_stored() -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double", id="bigint")
    trace("loss", [1.0])
    trace("id", [1])
    hook.after_step()
    trace("loss", [2.0])
    with refused(InvalidInputError, "column 'id'"):
        hook.end()
    assert column(sink, "loss", pa.float64()) == [1.0]


def test_a_failed_training_shows_its_own_error_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    hook = hook_of(FakeSink(), loss="double", id="bigint")

    def train() -> None:
        try:
            trace("loss", [2.0])
            raise KeyboardInterrupt
        finally:
            hook.end()

    with pytest.raises(KeyboardInterrupt):
        train()
    assert "column 'id': is missing" in caplog.text


def test_a_break_loses_no_step() -> None:
    sink = FakeSink()
    hook = hook_of(sink, loss="double")
    for batch in hook.steps([[1.0], [2.0], [3.0]]):
        trace("loss", batch)
        if batch == [2.0]:
            break
    assert column(sink, "loss", pa.float64()) == [1.0, 2.0]


def test_a_break_with_half_a_step_is_told_by_the_next_call(caplog: pytest.LogCaptureFixture) -> None:
    hook = hook_of(FakeSink(), loss="double", id="bigint")
    for batch in hook.steps([[1.0]]):
        trace("loss", batch)
        break
    assert "column 'id': is missing" in caplog.text
    with refused(InvalidInputError, "column 'id'"):
        hook.end()


def test_a_step_of_a_failed_writer_raises_also_when_it_is_empty() -> None:
    def refuse(operation: str, number: int) -> None:
        raise PaiError("the table is gone")

    hook = TraceHook(TraceWriter({"loss": "double"}, FakeSink(before=refuse), block_bytes=8))
    trace("loss", [1.0])
    hook.after_step()
    until(lambda: not hook.check_alive(), "the failure")
    with refused(TraceError):
        hook.after_step()
    with refused(TraceError):
        hook.end()


def test_the_hook_as_a_context() -> None:
    sink = FakeSink()
    with hook_of(sink, loss="double") as hook:
        trace("loss", [1.0])
        hook.after_step()
    assert column(sink, "loss", pa.float64()) == [1.0]
    with pytest.raises(ZeroDivisionError), hook_of(sink, loss="double") as hook:
        1 / 0  # noqa: B018
    assert not hook.check_alive()


def test_hooks_that_are_gone_take_nothing() -> None:
    hook_of(FakeSink(), loss="double").writer.close()
    in_thread(lambda: trace("other", [1.0]))
    sink = FakeSink()
    with TraceWriter({"loss": "double"}, sink) as writer:
        hook = TraceHook(writer)
    trace("other", [1.0])  # the hook did not end, but its writer is closed
    with refused(TraceError):
        hook.after_step()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_cannot_trace_into_the_hook() -> None:
    hook = hook_of(FakeSink(), loss="double")
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        signal.alarm(20)
        try:
            trace("loss", [1.0])
        except TraceError as error:
            os._exit(7 if "another process" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    hook.end()


def test_the_end_has_a_deadline() -> None:
    go_on = threading.Event()
    hook = TraceHook(TraceWriter({"loss": "double"}, FakeSink(before=lambda *_: go_on.wait(30) and None)))
    trace("loss", [1.0])
    hook.after_step()
    with refused(TraceError):
        hook.end(deadline_s=0.05)
    go_on.set()


def test_a_pickled_hook_is_a_new_one() -> None:
    hook = TraceHook(TraceWriter({"loss": "double"}, PicklableSink()), when="both")
    trace("loss", [1.0])
    other = pickle.loads(pickle.dumps(hook))
    assert (other.when, other.writer.schema) == ("both", hook.writer.schema)
    for each in hook, other:
        each.after_step()
        each.end()
    assert column(hook.writer.sink, "loss", pa.float64()) == [1.0]
    assert not other.writer.sink.sessions


@pytest.mark.parametrize("is_loop", [False, True])
def test_two_hooks_of_one_thread_that_two_threads_feed_have_their_own_rows(is_loop: bool) -> None:
    sinks = [FakeSink(), FakeSink()]
    hooks = [hook_of(sink, n="bigint") for sink in sinks]
    turns = threading.Barrier(2)

    def train(number: int) -> None:
        batches = [number * 100 + step for step in range(20)]
        if is_loop:
            for batch in hooks[number].steps(batches):
                trace("n", [batch])
                turns.wait(PATIENCE_S)
        else:
            for batch in batches:
                trace("n", [batch])
                turns.wait(PATIENCE_S)
                hooks[number].after_step()
            hooks[number].end()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, range(2)))
    for number in range(2):
        assert sorted(column(sinks[number], "n", pa.int64())) == [number * 100 + step for step in range(20)]


def test_two_hooks_of_one_thread_one_training_after_the_other() -> None:
    sinks = [FakeSink(), FakeSink()]
    hooks = [hook_of(sink, n="bigint") for sink in sinks]

    def train(number: int) -> None:
        for step in range(3):
            trace("n", [number * 100 + step])
            hooks[number].after_step()
        hooks[number].end()

    for number in range(2):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(train, number).result()
    for number in range(2):
        assert sorted(column(sinks[number], "n", pa.int64())) == [number * 100 + step for step in range(3)]


def test_helpers_of_two_hooks_whose_loop_is_another_thread() -> None:
    """One thread ends the steps of both: those of helpers are not lost."""
    sinks = [FakeSink(), FakeSink()]
    hooks = [hook_of(sink, when, n="bigint") for sink, when in zip(sinks, ("train", "eval"), strict=True)]

    def train() -> None:
        with ThreadPoolExecutor(1) as helper:
            for step in range(4):
                helper.submit(trace, "n", [step]).result()
                for hook in hooks:
                    hook.after_step(is_train=step % 2 == 0)
        for hook in hooks:
            hook.end(is_train=hook.when == "train")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(train).result()
    assert [sorted(column(sink, "n", pa.int64())) for sink in sinks] == [[0, 2], [1, 3]]
