"""The writer against a sink whose calls fail, and whose answers get lost.

TRC-01, 06 to 10; TRC-B2, B3, B5 to B7, B10 to B13, B16.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.trace import trace_writer
from pai_sdk._data.trace.trace_writer import TraceWriter, WaitLimits
from pai_sdk.errors import InvalidInputError, PaiError, TraceError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until
from tests.unit.data.trace.fake_sink import FakeSink, PicklableSink, Transient

pytestmark = pytest.mark.interpreter

SCHEMA = pa.schema([("step", pa.int64()), ("loss", pa.float64())])
FAST = RetryPolicy(deadline_s=5.0, first_pause_s=0.0, longest_pause_s=0.0)


def rows_of(sink: FakeSink, schema: pa.Schema = SCHEMA) -> list[tuple[int, float]]:
    table = sink.visible(schema)
    return sorted(zip(table["step"].to_pylist(), table["loss"].to_pylist(), strict=True))


def feed(writer: TraceWriter, steps: int, rows: int = 10) -> list[tuple[int, float]]:
    fed = []
    for step in range(steps):
        losses = [step + row / 100 for row in range(rows)]
        writer.write(step=step, loss=losses)
        fed += [(step, loss) for loss in losses]
    return fed


def test_every_row_is_stored_once_in_blocks() -> None:
    sink = FakeSink()
    with TraceWriter(SCHEMA, sink, block_bytes=1000, workers=3, retry=FAST) as writer:
        fed = feed(writer, 100)
        assert rows_of(sink) == []  # nothing is visible before a commit
    assert rows_of(sink) == fed
    assert len(sink.sessions) == 1
    assert sink.calls["write"] > 10
    assert writer.stats().rows_committed == writer.stats().rows_fed == 1000


def test_flush_makes_rows_visible_and_the_writer_goes_on() -> None:
    sink = FakeSink()
    with TraceWriter(SCHEMA, sink, retry=FAST) as writer:
        writer.write(step=1, loss=[0.5])
        assert writer.flush() == 1
        assert rows_of(sink) == [(1, 0.5)]
        writer.write(step=2, loss=[0.25])
    assert rows_of(sink) == [(1, 0.5), (2, 0.25)]
    assert len(sink.sessions) == 2


def test_a_writer_without_rows_makes_no_call() -> None:
    sink = FakeSink()
    with TraceWriter(SCHEMA, sink):
        pass
    assert not sink.calls


def test_a_session_that_is_full_is_committed_while_the_next_one_grows() -> None:
    sink = FakeSink(max_blocks=4)
    with TraceWriter(SCHEMA, sink, block_bytes=160, retry=FAST) as writer:
        fed = feed(writer, 50)
    assert rows_of(sink) == fed
    assert len(sink.sessions) >= 12
    assert all(len(session.blocks) <= 4 for session in sink.sessions)


def test_a_session_that_is_old_is_renewed() -> None:
    sink = FakeSink(max_age_s=0.0)
    with TraceWriter(SCHEMA, sink, block_bytes=160, retry=FAST) as writer:
        fed = feed(writer, 5)
    assert rows_of(sink) == fed
    assert len(sink.sessions) == 5


def test_rows_become_visible_by_themselves_with_an_interval() -> None:
    sink = FakeSink()
    with TraceWriter(SCHEMA, sink, flush_interval_s=0.01, retry=FAST) as writer:
        writer.write(step=1, loss=[0.5])
        deadline = time.monotonic() + 30
        while not rows_of(sink) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rows_of(sink) == [(1, 0.5)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_lost_answers_and_failed_calls_neither_lose_nor_double_rows(seed: int, workers: int) -> None:
    chance = random.Random(seed)

    def fail(operation: str, number: int) -> None:
        if chance.random() < 0.25:
            raise Transient(f"{operation} {number}")

    sink = FakeSink(before=fail, after=fail, max_blocks=5)
    with TraceWriter(SCHEMA, sink, block_bytes=400, workers=workers, retry=FAST) as writer:
        fed = feed(writer, 60)
    assert rows_of(sink) == fed
    assert writer.stats().retries > 0


def test_a_failure_reaches_the_next_call_with_its_cause() -> None:
    def refuse(operation: str, number: int) -> None:
        if operation == "write":
            raise PaiError("the table is gone")

    writer = TraceWriter(SCHEMA, FakeSink(before=refuse), block_bytes=100, retry=FAST)
    writer.write(step=1, loss=[0.5] * 100)
    until(lambda: not writer.is_usable, "the failure")
    with refused(TraceError) as caught:
        writer.write(step=2, loss=[0.5])
    assert isinstance(caught.value.__cause__, PaiError)
    assert caught.value.rows_committed == 0
    assert caught.value.rows_fed > 0
    with refused(TraceError):
        writer.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("trace-")]
    assert not writer.is_usable


def test_close_says_what_is_missing_when_the_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()

    def hang(operation: str, number: int) -> None:
        if operation == "commit":
            go_on.wait(PATIENCE_S)

    writer = TraceWriter(SCHEMA, FakeSink(before=hang), block_bytes=160, retry=FAST)
    writer.waits = WaitLimits(silent_s=0.0)
    feed(writer, 1)
    until(lambda: writer._sender.counts["blocks_stored"])
    with refused(TraceError):
        writer.close(deadline_s=0.3)
    go_on.set()
    assert not writer.is_usable
    assert "waiting for 10 rows to be stored, for up to 0 s; Ctrl-C ends the wait" in caplog.text


def test_an_exception_waits_for_the_sink_only_while_it_stores(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, ahead_s = threading.Event(), 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s)
    monkeypatch.setattr(trace_writer, "time", clock)

    def slow(operation: str, number: int) -> None:
        nonlocal ahead_s
        if operation == "write":
            ahead_s += 25  # longer in all than the time without progress
        while operation == "commit" and not go_on.wait(0.01):
            ahead_s += 25

    sink = FakeSink(before=slow)

    def train() -> None:
        with TraceWriter(SCHEMA, sink, block_bytes=160, workers=1, retry=FAST) as writer:
            writer.waits = WaitLimits(stop_s=1e6, stalled_s=60)
            feed(writer, 6)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert sink.calls["write"] == 6
    assert "60 of 60 rows are not stored: the sink has stored nothing for 60 s" in caplog.text
    assert "(blocks: 0 not sent, 6 sent and not committed)" in caplog.text
    go_on.set()


def test_a_closed_writer_says_so() -> None:
    writer = TraceWriter(SCHEMA, FakeSink())
    writer.close()
    writer.close()
    with refused(TraceError):
        writer.write(step=1, loss=[1.0])


def test_the_caller_may_change_its_arrays_at_once() -> None:
    sink = FakeSink()
    schema = {"ids": "bigint", "scores": "array<float>", "ok": "boolean", "name": "string"}
    ids = np.arange(1000)
    scores = np.ones((1000, 4), np.float32)
    ok = np.zeros(1000, bool)
    with TraceWriter(schema, sink, block_bytes=100_000, retry=FAST) as writer:
        for step in range(20):
            ids[:] = step
            scores[:] = step
            ok[:] = step % 2
            writer.write(ids=ids, scores=scores, ok=ok, name=str(step))
            ids[:] = -1
            scores[:] = -1
            ok[:] = ~ok
    found = sink.visible(writer.schema).to_pydict()
    assert all(scores == [number] * 4 for number, scores in zip(found["ids"], found["scores"], strict=True))
    assert found["ok"] == [bool(number % 2) for number in found["ids"]]
    assert sorted(found["ids"]) == sorted(step for step in range(20) for _ in range(1000))


def test_memory_is_bounded_and_waiting_is_visible() -> None:
    go_on = threading.Event()

    def slow(operation: str, number: int) -> None:
        if operation == "write":
            go_on.wait(30)

    sink = FakeSink(before=slow)
    writer = TraceWriter(SCHEMA, sink, block_bytes=1600, memory_bytes=3200, workers=1, retry=FAST)
    fed: list[int] = []

    def train() -> None:
        for step in range(10):
            writer.write(step=step, loss=[0.5] * 100)
            fed.append(step)

    thread = threading.Thread(target=train)
    thread.start()
    deadline = time.monotonic() + 30
    while writer.stats().waiting_bytes < 3200 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(fed) < 10
    assert writer.stats().waiting_bytes <= 3200
    go_on.set()
    thread.join(30)
    writer.close()
    assert len(rows_of(sink)) == 1000
    assert writer.stats().blocked_s > 0
    assert writer.stats().waiting_bytes == 0


def test_two_writers_take_their_own_rows() -> None:
    sinks = FakeSink(), FakeSink()
    with TraceWriter(SCHEMA, sinks[0]) as one, TraceWriter(SCHEMA, sinks[1]) as other:
        one.write(step=1, loss=[0.5])
        other.write(step=2, loss=[0.25])
    assert [rows_of(sink) for sink in sinks] == [[(1, 0.5)], [(2, 0.25)]]


def test_the_run_is_in_each_row_where_the_sink_wants_it() -> None:
    sink = FakeSink(run_column="run_id")
    with TraceWriter(SCHEMA, sink, run_id="train-1") as writer:
        writer.write(step=1, loss=[0.5, 0.25])
    assert sink.visible(sink.prepare(SCHEMA, ""))["run_id"].to_pylist() == ["train-1", "train-1"]


def test_wrong_sizes_are_refused_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        TraceWriter(SCHEMA, FakeSink(), block_bytes=0, workers=True)
    assert [problem.where for problem in caught.value.problems] == ["block_bytes", "workers"]


def test_a_pickled_writer_is_a_new_one_with_the_same_settings() -> None:
    with TraceWriter(SCHEMA, PicklableSink(), block_bytes=77, run_id="r1") as writer:
        with pickle.loads(pickle.dumps(writer)) as other:
            assert other.schema == SCHEMA
            assert other.run_id == "r1"
            other.write(step=1, loss=[1.0])
        assert other.sink is not writer.sink
        assert len(rows_of(other.sink)) == 1


def write_in_child(writer: TraceWriter, answers: multiprocessing.Queue) -> None:
    try:
        writer.write(step=1, loss=[1.0])
        writer.close()
        answers.put(len(rows_of(writer.sink)))
    except TraceError as error:
        answers.put(str(error))


@pytest.mark.parametrize(("method", "answer"), [("spawn", 1), ("forkserver", 1)])
def test_a_writer_can_be_sent_to_another_process(method: str, answer: object) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("not on this system")
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    with TraceWriter(SCHEMA, PicklableSink()) as writer:
        child = context.Process(target=write_in_child, args=(writer, answers))
        child.start()
        assert answers.get(timeout=60) == answer
        child.join(60)


def child_writes(writer: TraceWriter) -> None:
    writer.close()
    try:
        writer.write(step=1, loss=[1.0])
    except TraceError as error:
        os._exit(7 if "another process" in str(error) else 8)
    os._exit(9)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own_writer() -> None:
    with TraceWriter(SCHEMA, FakeSink()) as writer:
        with writer._changed:  # as when a thread of the writer is at work at this moment
            child = os.fork()
        if child == 0:  # nothing of pytest may run here
            signal.alarm(round(PATIENCE_S))
            writer._changed = threading.Condition()
            writer._changed.acquire()
            threading.Thread(target=child_writes, args=(writer,)).start()
            time.sleep(2 * PATIENCE_S)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_session_that_grows_old_is_committed_while_no_rows_come() -> None:
    """TRC-B12: MaxCompute forgets a session after 24 hours, so one must not stay open until the next row."""
    sink = FakeSink(max_age_s=0.05)
    with TraceWriter(SCHEMA, sink, block_bytes=160, retry=FAST) as writer:
        fed = feed(writer, 1)
        until(lambda: rows_of(sink) == fed, "the commit of the old session")


def test_a_session_is_as_old_as_its_first_block() -> None:
    sink = FakeSink(max_age_s=30.0)
    with TraceWriter(SCHEMA, sink, block_bytes=160, retry=FAST) as writer:
        writer._sender._session.started_at = time.monotonic() - 60.0  # as if it had waited for its first row
        feed(writer, 3)
    assert len(sink.sessions) == 1


def test_retries_do_not_multiply() -> None:
    """TRC-B10: a store below a sink has a policy of its own, which makes one attempt only here."""
    calls: list[int] = []

    def fail(operation: str, number: int) -> None:
        def attempt() -> None:
            calls.append(number)
            raise Transient("busy")

        if operation == "write":
            RetryPolicy(max_attempts=5, first_pause_s=0.0).call(attempt, is_transient=lambda error: True)

    writer = TraceWriter(SCHEMA, FakeSink(before=fail), retry=RetryPolicy(max_attempts=3, first_pause_s=0.0))
    writer.write(step=1, loss=[0.5])
    with pytest.raises(TraceError, match="busy"):
        writer.close()
    assert len(calls) == 3
