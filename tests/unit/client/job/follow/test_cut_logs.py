"""A service counts more lines of a log than its pages return: they are read by time, missing ones are counted."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest

from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.stream import LogStream
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.record import LogLine
from tests.support.simulated_time import SimulatedTime
from tests.unit.client.job.simulated_service import JOB, Instance, SimulatedBackend, SimulatedService

HOUR = 3600.0
MASTER = f"{JOB}-master-0"
Read = Callable[..., list[LogLine]]


def ended(
    *counts: int, within_s: float = HOUR, at: float = 72 * HOUR, **more: Any
) -> tuple[SimulatedService, list[Instance]]:
    """A job that has ended long ago; each instance has written lines of its own, some of them alike."""
    names = [MASTER, *(f"{JOB}-worker-{number}" for number in range(len(counts) - 1))]
    instances = [
        Instance(name, lines=[(n * within_s / count, f"{name} {n}" if n % 3 else "again") for n in range(count)])
        for name, count in zip(names, counts, strict=True)
    ]
    clock = SimulatedTime()
    clock.time = at
    defaults: dict[str, Any] = {"most_lines": 10_000, "refuses_deep_pages": True, "ends_at": within_s}
    made = SimulatedService(clock, random.Random(1), is_ours=False, instances=instances, **{**defaults, **more})
    return made, instances


def read(
    service: SimulatedService, *, follow: bool = False, start: Mapping[str, int] | None = None
) -> list[LogLine]:
    return list(stream(service, follow=follow, start=start))


def read_async(service: SimulatedService) -> list[LogLine]:
    async def lines() -> list[LogLine]:
        return [line async for line in stream(service)]

    return asyncio.run(lines())


def stream(
    service: SimulatedService,
    *,
    follow: bool = False,
    start: Mapping[str, int] | None = None,
    tail: int | None = None,
) -> LogStream:
    clock = service.clock
    retry = RetryPolicy(sleep=clock.sleep, clock=clock.now)
    policy = FollowPolicy(schedule=clock, retry=retry) if follow else None
    return LogStream(SimulatedBackend(service), JOB, follow=follow, start=start, tail=tail, policy=policy)


def texts(lines: list[LogLine]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        assert line.number == len(found[line.instance])
        found[line.instance].append(line.text)
    return found


def written(instances: list[Instance]) -> dict[str, list[str]]:
    return {one.name: [text for _, text in one.lines] for one in instances}


@pytest.mark.parametrize("reading", [read, read_async, lambda service: read(service, follow=True)])
@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "empty"])
def test_a_job_that_has_ended_is_read_beyond_the_pages_that_are_given(reading: Read, refuses: bool) -> None:
    service, instances = ended(30_000, 12_345, 10_000, 7, refuses_deep_pages=refuses)
    assert texts(reading(service)) == written(instances)


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("count", [10_000, 25_000])
def test_so_is_one_whose_count_is_cut_too(follow: bool, count: int) -> None:
    service, instances = ended(count, count_is_cut=True)
    assert texts(read(service, follow=follow)) == written(instances)
    assert len(service.asked) < 200


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("lag_s", [3.0, 600.0])
@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "empty"])
def test_counts_may_be_behind_the_lines(follow: bool, lag_s: float, refuses: bool) -> None:
    service, instances = ended(30_000, 12_345, at=HOUR + 1, count_lag_s=lag_s, refuses_deep_pages=refuses)
    assert texts(read(service, follow=follow)) == written(instances)


def test_an_error_during_the_search_does_not_end_it() -> None:
    service, instances = ended(30_000, fault_rate=0.3)
    assert texts(read(service, follow=True)) == written(instances)


@pytest.mark.parametrize("follow", [False, True])
def test_a_tail_and_a_cursor_far_behind_the_pages_that_are_given(follow: bool) -> None:
    service, instances = ended(30_000)
    (wanted,) = written(instances).values()
    for lines in (
        stream(service, follow=follow, tail=5000),
        stream(service, follow=follow, start={MASTER: 25_000}),
    ):
        assert [(line.number, line.text) for line in lines] == [*enumerate(wanted)][25_000:]


@pytest.mark.parametrize("follow", [False, True])
def test_lines_that_cannot_be_had_are_counted_in_their_place(follow: bool) -> None:
    service, (master,) = ended(20_000)
    burst = [(1200.5, f"burst {n}") for n in range(15_000)]
    place = sum(1 for at, _ in master.lines if at <= 1200.5)
    master.lines[place:place] = burst
    lines = read(service, follow=follow)
    (notice,) = [line for line in lines if line.missing]
    assert notice.missing > 5000
    assert f"{notice.missing:,} lines are missing" in notice.text
    wanted = [text for _, text in master.lines]
    for line, after in pairwise(lines):
        assert after.number == line.next_number
        assert line.missing or line.text == wanted[line.number]
    assert lines[-1].next_number == len(wanted)
    assert notice.missing == len(wanted) - len(lines) + 1

    again = read(service, follow=follow, start={MASTER: notice.next_number})
    assert again == lines[lines.index(notice) + 1 :], "from a cursor behind the missing lines"
    assert read(service, follow=follow, start={MASTER: notice.number}) == lines[lines.index(notice) :]


@pytest.mark.parametrize("follow", [False, True])
def test_a_second_reader_of_the_same_session_gets_the_same(follow: bool) -> None:
    service, (master,) = ended(20_000)
    master.lines[9_000:9_000] = [(master.lines[9_000][0], f"burst {n}") for n in range(12_000)]
    shared = stream(service, follow=follow)
    first = list(shared)
    assert list(LogStream(shared._backend, JOB, follow=follow, policy=shared._policy)) == first


@pytest.mark.parametrize("follow", [False, True])
def test_a_service_that_ignores_times_is_said_to_return_too_few_lines(
    follow: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service, (master,) = ended(30_000)
    monkeypatch.setattr("tests.unit.client.job.simulated_service._time", lambda text, default: default)
    *lines, notice = read(service, follow=follow)
    assert texts(lines) == {MASTER: [text for _, text in master.lines[:10_000]]}
    assert (notice.number, notice.missing, notice.next_number) == (10_000, 20_000, 30_000)
    assert "30000 lines" in caplog.text
    assert len(service.asked) < 250


def test_a_count_that_is_ahead_for_a_moment_is_no_missing_line() -> None:
    service, (master,) = ended(500, within_s=60.0, at=50.0, count_is_ahead=True)
    master.lines += [(66.5, "the last one, late")]
    service.ends_at = 60.0
    assert texts(read(service, follow=True)) == written([master])


def test_a_running_job_that_writes_more_than_is_given_is_read_on_and_no_line_is_lost_in_silence() -> None:
    service, (master,) = ended(15_000, within_s=600.0, at=0.0, most_lines=1500)
    lines = read(service, follow=True)
    assert texts(lines) == written([master])


def test_the_search_is_made_in_many_speeds_of_writing() -> None:
    dice = random.Random(7)
    for _ in range(12):
        moments: list[float] = []
        now = 0.0
        while len(moments) < 8000:
            now += dice.choice([0.001, 1.0, 100.0, 3000.0])
            for _ in range(dice.choice([1, 30, 400])):
                now += dice.choice([0.0, 0.01, 0.2])
                moments.append(now)
        service, (master,) = ended(1, most_lines=dice.choice([1500, 2000]), largest_page=dice.choice([100, 1000]))
        master.lines = [(at, dice.choice(["", "again", f"line {n}"])) for n, at in enumerate(moments)]
        service.ends_at, service.clock.time = now, now + dice.choice([0.0, 30.0, 24 * HOUR])
        lines = read(service, follow=dice.random() < 0.5)
        wanted = [text for _, text in master.lines]
        assert all(line.missing or line.text == wanted[line.number] for line in lines)
        assert [0, *(line.next_number for line in lines)] == [*(line.number for line in lines), len(wanted)]
        assert sum(line.missing for line in lines) == 0


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("limit", [1_000, 1_500, 1_510, 2_345, 9_999, 10_010])
@pytest.mark.parametrize("count", [3_000, 30_000])
def test_a_page_across_the_limit_is_refused(follow: bool, limit: int, count: int) -> None:
    """The lines before the limit are read in smaller pages, and those behind it by time."""
    service, instances = ended(count, most_lines=limit, refuses_across=True)
    assert texts(read(service, follow=follow)) == written(instances)
    assert len(service.asked) < 100 * (1 + count // limit)
