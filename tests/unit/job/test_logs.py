"""Every line once, in order per instance, to the last one: across faults, slow ends and crowds of instances."""

from __future__ import annotations

import threading
import time
from itertools import islice

import pytest

from pai_sdk.errors import ConnectionFailedError, api_error
from pai_sdk.job.logs import LogLine, LogStream
from pai_sdk.job.record import JobRecord, LogPage
from tests.unit.job.fake_backend import FAST, FakeBackend


def write_in_background(backend: FakeBackend, lines: int, *, status: str = "Succeed") -> threading.Thread:
    """Grow all logs a little at a time, then end the job."""

    def write() -> None:
        for number in range(lines):
            for instance, log in backend.lines.items():
                log.append(f"{instance} {number}")
            if number % 50 == 0:
                time.sleep(0.002)
        backend.status = status

    thread = threading.Thread(target=write)
    thread.start()
    return thread


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("says_complete", [True, False])
def test_every_line_once_and_in_order_whatever_fails(seed: int, says_complete: bool) -> None:
    backend = FakeBackend(says_complete=says_complete, faults=0.3, seed=seed)
    backend.lines = {"train1-master-0": [], "train1-worker-0": [], "train1-worker-1": []}
    writer = write_in_background(backend, 400)

    seen: dict[str, list[LogLine]] = {name: [] for name in backend.lines}
    for line in LogStream(backend, "train1", follow=True, policy=FAST):
        seen[line.instance].append(line)

    writer.join()
    for instance, lines in seen.items():
        assert [line.text for line in lines] == [f"{instance} {number}" for number in range(400)]
        assert [line.number for line in lines] == [*range(400)]


def test_more_instances_than_threads_are_all_read() -> None:
    backend = FakeBackend()
    backend.lines = {f"train1-worker-{number}": [] for number in range(25)}
    writer = write_in_background(backend, 30)
    seen = [line.instance for line in LogStream(backend, "train1", follow=True, policy=FAST)]
    writer.join()
    assert {name: seen.count(name) for name in backend.lines} == dict.fromkeys(backend.lines, 30)


def test_a_stream_goes_on_where_another_stopped(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": [str(number) for number in range(10)]}
    fake_backend.status = "Succeed"
    first = LogStream(fake_backend, "train1", follow=True, policy=FAST)
    taken = [line.text for line in islice(first, 4)]
    rest = [line.text for line in LogStream(fake_backend, "train1", follow=True, start=first.cursor, policy=FAST)]
    assert taken + rest == [str(number) for number in range(10)]


def test_without_follow_it_stops_at_the_last_line_written(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["a", "b"], "train1-worker-0": ["c"]}
    assert [line.text for line in LogStream(fake_backend, "train1")] == ["a", "b", "c"]
    assert [line.text for line in LogStream(fake_backend, "train1", instance="worker-0")] == ["c"]


def test_the_job_is_told_between_the_lines(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["only"]}
    fake_backend.status = "Succeed"
    updates = [*LogStream(fake_backend, "train1", follow=True, policy=FAST).updates()]
    assert [type(update) for update in updates] == [JobRecord, LogLine]


def test_a_log_that_may_not_be_read_is_an_error_at_once(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": []}

    def refuse() -> None:
        raise api_error("no", code="Forbidden", status_code=403, request_id="r")

    fake_backend.on_read = refuse
    with pytest.raises(Exception, match="Forbidden"):
        list(LogStream(fake_backend, "train1", follow=True, policy=FAST))


def test_a_bug_in_a_thread_is_raised_not_waited_for(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": []}

    def crash() -> None:
        raise RuntimeError("a bug of ours")

    fake_backend.on_read = crash
    with pytest.raises(RuntimeError, match="a bug of ours"):
        list(LogStream(fake_backend, "train1", follow=True, policy=FAST))


def test_patience_ends_and_the_last_fault_is_told() -> None:
    backend = FakeBackend(faults=0.0)
    backend.lines = {"train1-master-0": []}

    def unreachable() -> None:
        raise ConnectionFailedError("refused", endpoint="fake")

    backend.on_read = unreachable
    impatient = type(FAST)(patience_s=0.05, pause_s=0.01, retry=FAST.retry)
    with pytest.raises(ConnectionFailedError):
        list(LogStream(backend, "train1", follow=True, policy=impatient))


def test_nothing_is_left_running_when_the_reader_goes_away(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["a"]}
    for _ in LogStream(fake_backend, "train1", follow=True, policy=FAST):
        break
    deadline = time.monotonic() + 2
    while any(t.name.startswith("pai-log") for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [t.name for t in threading.enumerate() if t.name.startswith("pai-log")] == []


def test_short_pages_are_not_waited_between_while_there_is_more() -> None:
    class Stingy(FakeBackend):
        """Grants 5 lines, however many are asked for."""

        def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
            return super().read_log(job_id, instance, start=start, limit=5, wait_s=wait_s)

    backend = Stingy()
    backend.lines = {"train1-master-0": [str(number) for number in range(1000)]}
    backend.status = "Succeed"
    slow = type(FAST)(hold_s=0.0, pause_s=0.5, retry=FAST.retry)
    started = time.monotonic()
    assert len(list(LogStream(backend, "train1", follow=True, policy=slow))) == 1000
    assert time.monotonic() - started < 5


def test_closing_does_not_wait_for_each_thread() -> None:
    backend = FakeBackend()
    backend.lines = {f"train1-worker-{number}": [] for number in range(8)}
    backend.on_read = lambda: time.sleep(2)
    stream = LogStream(backend, "train1", follow=True, policy=FAST)
    started = time.monotonic()
    list(stream.updates(deadline=started + 0.1))
    assert time.monotonic() - started < 0.8
