"""Every line once, in order per instance, to the last one: across faults, slow ends and crowds of instances."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any

import pytest

from pai_sdk._client.api.responses import api_error
from pai_sdk._client.job.follow.follower import Follower
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.stream import LogStream
from pai_sdk._client.job.follow.workers import Workers
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.record import JobRecord, LogLine, LogPage
from pai_sdk.errors import ConnectionFailedError, InvalidInputError
from tests.support.fake_backend import FAST, FakeBackend
from tests.support.messages import refused
from tests.support.simulated_time import SimulatedTime
from tests.support.waiting import PATIENCE_S, until
from tests.unit.client.job.simulated_service import Instance, SimulatedBackend, SimulatedService


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
    backend.lines = {f"train1-worker-{number}": [] for number in range(120)}
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


def test_the_job_is_reported_between_the_lines(fake_backend: FakeBackend) -> None:
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


def test_patience_ends_and_the_last_fault_is_reported() -> None:
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
    before = {*threading.enumerate()}
    for _ in LogStream(fake_backend, "train1", follow=True, policy=replace(FAST, schedule=Workers())):
        break
    started = {one for one in threading.enumerate() if one.name.startswith("pai-log")} - before
    assert started
    until(lambda: not any(one.is_alive() for one in started))


def test_short_pages_are_not_waited_between_while_there_is_more() -> None:
    class Stingy(FakeBackend):
        """Grants 5 lines, however many are asked for."""

        def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
            return super().read_log(job_id, instance, start=start, limit=5, wait_s=wait_s)

    backend = Stingy()
    backend.lines = {"train1-master-0": [str(number) for number in range(1000)]}
    backend.status = "Succeed"
    clock = SimulatedTime()
    assert len(list(LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock)))) == 1000
    assert clock.time == 0, "with the pauses it would be minutes"


def test_closing_does_not_wait_for_each_thread() -> None:
    backend = FakeBackend()
    backend.lines = {f"train1-worker-{number}": [] for number in range(8)}
    over, begun, answered = threading.Event(), threading.Semaphore(0), []

    def hang() -> None:
        begun.release()
        answered.append(over.wait(PATIENCE_S))

    class Impatient(Workers):
        """Its time is up as soon as all are being read."""

        def wait(self, news: threading.Condition, is_there: Any, timeout_s: float | None) -> bool:
            return not all(begun.acquire(timeout=PATIENCE_S) for _ in backend.lines)

    backend.on_read = hang
    stream = LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=Impatient()))
    try:
        assert list(stream.updates()) == []
        assert answered == []
    finally:
        over.set()


class TimedBackend(FakeBackend):
    """Its job prints by a timetable: (second, instance, text), and ends at a time."""

    def __init__(
        self, time: SimulatedTime, timetable: list[tuple[float, str, str]], ends_at: float, **more
    ) -> None:
        super().__init__(**more)
        self._time, self._timetable, self._ends_at = time, sorted(timetable), ends_at
        self.lines = {instance: [] for _, instance, _ in self._timetable}
        self.out_of_reach: list[tuple[float, float]] = []
        self.questions = 0

    def _maybe_fail(self) -> None:
        self.questions += 1
        while self._timetable and self._timetable[0][0] <= self._time.time:
            _, instance, text = self._timetable.pop(0)
            self.lines[instance].append(text)
        if self._time.time >= self._ends_at:
            self.status = "Succeed"
        if any(begin <= self._time.time < end for begin, end in self.out_of_reach):
            raise ConnectionFailedError("the cable is out", endpoint="fake")
        super()._maybe_fail()


@pytest.mark.parametrize("seed", range(8))
def test_quiet_minutes_bursts_and_outages_cost_no_line(seed: int) -> None:
    dice, clock = random.Random(seed), SimulatedTime()
    names = ["train1-master-0", "train1-worker-0", "train1-worker-1"]
    timetable: list[tuple[float, str, str]] = []
    moment = 0.0
    while moment < 1500:
        moment += dice.choice([0.01, 1, 60, 600])
        timetable += [
            (moment, name, f"{name} at {moment:.2f} #{n:03d}") for name in names for n in range(dice.randrange(50))
        ]
    backend = TimedBackend(clock, timetable, moment, says_complete=seed % 2 == 0, faults=0.2, seed=seed)
    backend.out_of_reach = [(begin, begin + 500) for begin in (100, moment - 100)]
    stream = LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock))
    seen: dict[str, list[str]] = {name: [] for name in names}
    for line in stream:
        seen[line.instance].append(line.text)
    for name in names:
        assert seen[name] == [text for _, instance, text in sorted(timetable) if instance == name]
    assert clock.time - moment < 500 + 60, "the end is seen soon after"
    assert backend.questions < 5 * clock.time, "a quiet job is not asked about all the time"


def test_patience_is_counted_from_the_last_answer() -> None:
    clock = SimulatedTime()
    backend = TimedBackend(clock, [(0, "train1-master-0", "a")], 2000)
    backend.out_of_reach = [(10, 500), (510, 1000), (1010, 1500)]
    assert [
        line.text for line in LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock))
    ] == ["a"]
    backend.out_of_reach, clock.time, backend.status = [(0, 10_000)], 0, "Running"
    with pytest.raises(ConnectionFailedError):
        list(LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock)))
    assert 600 < clock.time < 660


@pytest.mark.parametrize("first", [[], ["train1-master-0"]])
def test_an_instance_that_is_listed_after_the_end_is_read(first: list[str]) -> None:
    """As it may be on a service that writes down a short job's end before its instances."""
    clock = SimulatedTime()
    late = "train1-worker-0"
    backend = TimedBackend(clock, [(0, name, "said all") for name in first], 0, says_complete=False)
    backend.extra = {"ComputeResource": {"InstanceCount": len(first) + 1}}
    stream = LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock))
    said = []
    clock.call_later(lambda: backend.lines.update({late: ["said all"]}), 1.5)
    for update in stream.updates():
        said += [update.instance] if isinstance(update, LogLine) else []
    assert said == [*first, late]
    assert clock.time < 8, "and the wait is not much longer than for the last lines of others"


def test_a_job_that_lists_fewer_instances_than_were_asked_for_is_waited_for_a_moment_only() -> None:
    clock = SimulatedTime()
    backend = TimedBackend(clock, [(0, "train1-master-0", "said all")], 0, says_complete=False)
    backend.extra = {"ComputeResource": {"InstanceCount": 2}}
    stream = LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock))
    assert [line.text for line in stream] == ["said all"]
    assert clock.time < 8


def test_a_log_that_nobody_calls_complete_ends_when_it_has_been_quiet() -> None:
    clock = SimulatedTime()
    late = [(100 + 0.9 * n, "train1-master-0", f"late {n}") for n in range(5)]
    backend = TimedBackend(clock, late, 100, says_complete=False)
    stream = LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock))
    assert len(list(stream)) == 5, "lines that the service finds after the end are waited for"
    assert clock.time < 110


def test_an_answer_that_was_long_on_its_way_does_not_tell_that_a_log_is_quiet() -> None:
    clock = SimulatedTime()

    class Slow(TimedBackend):
        """One answer takes long: the line that comes meanwhile is not in it."""

        def read_log(self, *args: Any, **more: Any) -> LogPage:
            page = super().read_log(*args, **more)
            clock.time += 10 if 101 <= clock.time < 103 else 0
            return page

    backend = Slow(clock, [(0, "train1-master-0", "first"), (103, "train1-master-0", "last")], 100)
    backend.says_complete = False
    stream = LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock))
    assert [line.text for line in stream] == ["first", "last"]


def test_an_end_with_nothing_more_to_say_is_not_waited_for() -> None:
    clock = SimulatedTime()
    backend = TimedBackend(clock, [(0, "train1-master-0", "only")], 600)
    stream = LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock))
    assert [line.text for line in stream] == ["only"]
    assert clock.time < 600 + 1.1, "one pause between two looks, and no more"


def test_an_instance_that_never_starts_hides_nobodys_lines() -> None:
    clock = SimulatedTime()
    backend = TimedBackend(clock, [(5, "train1-master-0", "no route to worker-0")], 100)
    backend.lines["train1-worker-0"] = []
    named = {"train1-master-0": "Running", "train1-worker-0": "Pending"}
    backend.extra = {"Instances": [{"Name": name, "Status": status} for name, status in named.items()]}
    stream = iter(LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock)))
    assert next(stream).text == "no route to worker-0"
    assert clock.time < 7
    assert list(stream) == []


def test_a_quiet_job_costs_one_question_for_itself_and_one_for_each_open_log() -> None:
    clock, asked = SimulatedTime(), Counter[str]()

    class Counted(TimedBackend):
        """Its first worker ends at once, the rest of it goes on for an hour."""

        def get(self, job_id: str, **more: Any) -> JobRecord:
            asked["the job"] += 1
            return super().get(job_id, **more)

        def read_log(self, job_id: str, instance: str, **more: Any) -> LogPage:
            asked[instance.removeprefix("train1-")] += 1
            page = super().read_log(job_id, instance, **more)
            return replace(page, complete=True) if instance == "train1-worker-0" else page

    timetable = [(0.0, "train1-master-0", "a"), (0.0, "train1-worker-0", "b")]
    backend = Counted(clock, timetable, 3600, says_complete=False)
    stream = LogStream(backend, "train1", follow=True, policy=FollowPolicy(schedule=clock))
    assert sorted(line.text for line in stream) == ["a", "b"]
    assert asked["the job"] == pytest.approx(3600 / 8, abs=20)
    assert asked["master-0"] == pytest.approx(3600 / 8, abs=20)
    assert asked["worker-0"] == 1, "what has been read to its end is not asked for again"


def test_many_jobs_share_a_few_threads_and_none_waits_for_another() -> None:
    before = {*threading.enumerate()}
    backends = [FakeBackend() for _ in range(50)]
    for backend in backends:
        backend.lines = {"train1-master-0": ["first"], "train1-worker-0": ["first"]}
    policy = FollowPolicy(hold_s=0.2, pause_s=0.05, retry=FAST.retry, schedule=Workers(8, spare=2))
    streams = [iter(LogStream(backend, "train1", follow=True, policy=policy)) for backend in backends]
    for stream in streams:
        assert next(stream).text == "first"
    assert len({*threading.enumerate()} - before) <= 8
    for backend in backends:
        backend.lines["train1-worker-0"].append("second")
        backend.status = "Succeed"
    for stream in streams:
        assert [line.text for line in stream if line.text != "first"] == ["second"]


def test_many_silent_jobs_whose_answers_are_held_back_keep_no_other_job_waiting() -> None:
    over, let_go = threading.Event(), []

    def hold(wait_s: float) -> None:
        if wait_s:
            let_go.append(over.wait(wait_s))

    class Holding(FakeBackend):
        def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
            hold(wait_s)
            return super().get(job_id)

        def read_log(self, job_id: str, instance: str, *, wait_s: float = 0.0, **more: Any) -> LogPage:
            page = super().read_log(job_id, instance, **more)
            if not page.lines:
                hold(wait_s)
            return page if page.lines else super().read_log(job_id, instance, **more)

    policy = FollowPolicy(hold_s=PATIENCE_S, pause_s=0.05, retry=FAST.retry, schedule=Workers(8, spare=2))
    backends = [Holding() for _ in range(30)]
    for backend in backends:
        backend.lines = {"train1-master-0": ["first"]}
    streams = [iter(LogStream(backend, "train1", follow=True, policy=policy)) for backend in backends]
    try:
        for stream in streams:
            assert next(stream).text == "first"
        assert let_go == [], "none of them waited until an answer was let go"
    finally:
        over.set()
        for backend in backends:
            backend.status = "Succeed"
        assert [line for stream in streams for line in stream] == []


@pytest.mark.parametrize("is_silent", [True, False])
def test_an_endpoint_that_is_down_stops_no_log_of_another(is_silent: bool) -> None:
    """Neither by answers that never come, nor by the pauses of the backend's own retries."""
    over = threading.Event()
    retry = RetryPolicy(sleep=lambda seconds: over.wait(PATIENCE_S) and None)

    def fail() -> JobRecord:
        if is_silent:
            over.wait(PATIENCE_S)
        raise api_error("out of service", code="ServiceUnavailable", status_code=503, request_id="r")

    class Down(FakeBackend):
        endpoint = "https://down.example"

        def get(self, job_id: str, **more: Any) -> JobRecord:
            return retry.call(fail, is_transient=lambda error: True)

    policy = FollowPolicy(retry=FAST.retry, schedule=Workers(6, spare=2))
    followers = [Follower(Down(), "train1", lambda record: [], {}, policy) for _ in range(20)]
    for follower in followers:
        assert list(follower.updates(deadline=policy.schedule.now() + 0.001)) == []
    well = FakeBackend()
    well.lines, well.status = {"train1-master-0": ["fine"]}, "Succeed"
    stream = LogStream(well, "train1", follow=True, policy=policy)
    try:
        seen = [*stream.updates(deadline=policy.schedule.now() + PATIENCE_S)]
        assert [update.text for update in seen if isinstance(update, LogLine)] == ["fine"]
    finally:
        for follower in followers:
            follower.close()
        over.set()


def test_a_consumer_that_pauses_stops_the_reading_and_not_the_other_jobs() -> None:
    backend, other = FakeBackend(), FakeBackend()
    backend.lines = {"train1-master-0": [str(n) for n in range(300_000)]}
    other.lines = {"train1-master-0": ["fine"]}
    backend.status = other.status = "Succeed"
    policy = FollowPolicy(hold_s=0.2, pause_s=0.01, retry=FAST.retry, schedule=Workers(1, spare=0))
    stream = iter(LogStream(backend, "train1", follow=True, policy=policy))
    assert next(stream).text == "0"
    reads: list[int] = []
    backend.on_read = lambda: reads.append(1)
    assert [line.text for line in LogStream(other, "train1", follow=True, policy=policy)] == ["fine"]
    assert len(reads) <= 6
    assert 1 + sum(1 for _ in stream) == 300_000


def test_lines_that_wait_are_weighed_and_not_only_counted() -> None:
    clock, backend = SimulatedTime(), FakeBackend()
    backend.lines = {"train1-master-0": ["x" * 1_000_000] * 1000}
    backend.status = "Succeed"
    read: list[int] = []

    class Narrow(FakeBackend):
        def read_log(self, *args: Any, **more: Any) -> LogPage:
            page = backend.read_log(*args, **{**more, "limit": 10})
            read.append(len(page.lines))
            return page

    narrow = Narrow()
    narrow.lines, narrow.status = backend.lines, backend.status
    stream = iter(LogStream(narrow, "train1", follow=True, policy=FollowPolicy(schedule=clock)))
    next(stream)
    while clock.due:  # all that would be read while the consumer does something else
        clock.step()
    assert sum(read) < 100, "a hundred million characters at most"
    assert 1 + sum(1 for _ in stream) == 1000


@pytest.mark.parametrize("follow", [False, True])
def test_a_start_may_name_an_instance_by_its_ending(follow: bool) -> None:
    backend = FakeBackend()
    backend.status = "Succeed"
    backend.lines = {"train1-master-0": ["a", "b", "c"], "train1-worker-0": ["d", "e"]}
    stream = LogStream(backend, "train1", follow=follow, start={"master-0": 2, "train1-worker-0": 1}, policy=FAST)
    assert sorted(line.text for line in stream) == ["c", "e"]
    assert stream.cursor == {"train1-master-0": 3, "train1-worker-0": 2}


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("says_total", [False, True])
def test_a_tail_is_the_last_lines_of_each_instance(follow: bool, says_total: bool) -> None:
    class Service(FakeBackend):
        def read_log(self, *args: Any, **more: Any) -> LogPage:
            page = super().read_log(*args, **more)
            return page if says_total else replace(page, total=None)

    backend = Service()
    backend.status = "Succeed"
    backend.lines = {"train1-master-0": [str(n) for n in range(30)], "train1-worker-0": ["a"]}
    stream = LogStream(backend, "train1", follow=follow, tail=2, start={"master-0": 27}, policy=FAST)
    assert sorted(line.text for line in stream) == ["27", "28", "29", "a"], "a start wins"
    stream = LogStream(backend, "train1", follow=follow, tail=2, policy=FAST)
    assert sorted(line.text for line in stream) == ["28", "29", "a"]
    with refused(InvalidInputError, "tail"):
        LogStream(backend, "train1", tail=-1)


@pytest.mark.parametrize("follow", [False, True])
def test_lines_with_the_times_at_which_they_were_written(follow: bool) -> None:
    backend = FakeBackend()
    backend.status, backend.says_times = "Succeed", True
    backend.lines = {"train1-master-0": ["a", "b", "c"]}
    stream = LogStream(backend, "train1", follow=follow, times=True, start={"master-0": 1}, policy=FAST)
    assert [(line.text, line.written_at) for line in stream] == [
        ("b", "2026-11-22T05:00:01.000Z"),
        ("c", "2026-11-22T05:00:02.000Z"),
    ]
    backend.says_times = False
    with refused(InvalidInputError, "times"):
        list(LogStream(backend, "train1", follow=follow, times=True, policy=FAST))


@pytest.mark.parametrize(("second", "first"), [(0, 0), (7, 7), (7.5, 8), (59, 59), (60, 60)])
def test_a_log_since_a_moment_begins_with_its_first_line(second: float, first: int) -> None:
    asked: list[int] = []

    class Timed(FakeBackend):
        """Its lines were written a second apart."""

        def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> list[str | None]:
            asked.append(count)
            return [f"2026-11-22T05:00:{start + place:02}.000Z" for place in range(count)]

    backend = Timed()
    backend.lines = {"train1-master-0": [str(number) for number in range(60)], "train1-worker-0": []}
    moment = datetime(2026, 11, 22, 5) + timedelta(seconds=second)
    for since in (moment, moment.replace(tzinfo=timezone(timedelta(hours=8))) + timedelta(hours=8)):
        stream = LogStream(backend, "train1", since=since)
        assert [line.text for line in stream] == [str(number) for number in range(first, 60)]
    assert asked == [1] * len(asked), "a search, which reads no log"
    assert len(asked) <= 14
    assert len([*LogStream(backend, "train1", since=moment, start={"master-0": 58})]) == 2
    with refused(InvalidInputError, "since"):
        LogStream(backend, "train1", since="5m")  # type: ignore[arg-type]


def test_a_line_whose_time_is_not_known_yet_is_a_new_one() -> None:
    class Behind(FakeBackend):
        """It does not know yet when the last line was written."""

        def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> list[str | None]:
            return [None if start + place == 9 else "2026-11-22T05:00:00Z" for place in range(count)]

    backend = Behind()
    backend.lines = {"train1-master-0": [str(number) for number in range(10)]}
    assert [line.text for line in LogStream(backend, "train1", since=datetime(2027, 1, 1))] == ["9"]


def test_a_line_a_second_costs_one_question_a_second_where_no_answer_can_be_held_back() -> None:
    class NoSlots(SimulatedTime):
        """Other jobs have all long polls."""

        @contextmanager
        def long_poll_slot(self, endpoint: str = "", *, keep_free: int = 0) -> Iterator[bool]:
            yield False

    clock = NoSlots()
    lines = [(float(second), f"line {second}") for second in range(1, 61)]
    service = SimulatedService(clock, random.Random(1), True, [Instance("train1-master-0", lines=lines)], 62.0)
    stream = LogStream(
        SimulatedBackend(service), "train1", follow=True, policy=FollowPolicy(schedule=clock, hold_s=0.0)
    )
    assert [line.text for line in stream] == [text for _, text in lines]
    assert sum(action == "ListTrainingJobLogs" for _, action in service.asked) < 90
