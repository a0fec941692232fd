"""Waiting for jobs on services of many kinds, on made-up time: what holds whatever goes wrong.

`PAI_SIMULATIONS=2000` draws more services than the few of every day.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from pai_sdk._client.display.base import Silent
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.record import JobRecord, LogLine
from pai_sdk.errors import JobFailed, NotFoundError
from tests.support.messages import refused
from tests.support.simulated_time import SimulatedTime
from tests.unit.client.job.simulated_service import (
    JOB,
    NOT_YET,
    TRACEBACK,
    Instance,
    SimulatedBackend,
    SimulatedService,
    draw,
)

SEEDS = range(int(os.environ.get("PAI_SIMULATIONS", "60")))


class Shown(Silent):
    """Keeps what a display was given."""

    def __init__(self) -> None:
        self.lines: dict[str, list[LogLine]] = defaultdict(list)
        self.notices: list[str] = []
        self.changes = 0

    def changed(self, record: JobRecord) -> None:
        self.changes += 1

    def line(self, line: LogLine) -> None:
        self.lines[line.instance].append(line)

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_goes_wrong_each_line_comes_once_and_the_end_is_reported_soon(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimulatedTime()
    service, shown = draw(seed, clock), Shown()
    monkeypatch.setattr("pai_sdk._core.retry.random", random.Random(seed))  # a seed is the same run again
    with_log = service.dice.random() < 0.8
    failed: JobFailed | None = None
    try:
        TrainingJob(JOB, SimulatedBackend(service)).wait(
            3600,
            show_logs=with_log,
            display=shown,
            policy=FollowPolicy(hold_s=2, schedule=clock, retry=RetryPolicy(sleep=clock.sleep, clock=clock.now)),
        )
    except JobFailed as failure:
        failed = failure

    assert shown.notices == []
    for instance in service.instances:
        lines = shown.lines[instance.name]
        assert not with_log or [line.text for line in lines] == [text for _, text in instance.lines]
        assert [line.number for line in lines] == [*range(len(lines))]

    assert (failed is not None) == (service.ends_as == "Failed")
    if failed is not None:
        broken = next(one for one in service.instances if one.ends_as == "Failed")
        assert failed.instance == broken.name
        assert [*failed.log_tail] == [text for _, text in broken.lines][-200:]

    reachable = max([service.ends_at, *(end for _, end, _ in service.out_of_reach)])
    assert clock.time - reachable < 120, "the end is reported soon after it can be known"
    assert _most_in_a_minute(service) < _fair(service)


def _most_in_a_minute(service: SimulatedService) -> int:
    return max(Counter(int(at // 60) for at, _ in service.asked).values())


def _fair(service: SimulatedService) -> float:
    """One question a second for each log that grows, few for the job, and what is there to read.

    Ours tells each line as it comes, as long as they do not come too fast.
    """
    pages = sum(len(one.lines) / 20 for one in service.instances)
    return (600 if service.is_ours else 80) * (1 + len(service.instances)) + 2 * pages


@pytest.mark.parametrize("instances", [1, 3])
def test_a_quiet_job_costs_few_requests_and_its_end_is_seen_soon(instances: int) -> None:
    clock, shown = SimulatedTime(), Shown()
    said = [(0.0, "begun"), (1800.0, "half of it"), (3600.0, "done")]
    workers = [Instance(f"{JOB}-worker-{number}", lines=said) for number in range(instances)]
    service = SimulatedService(clock, random.Random(3), is_ours=False, instances=workers, ends_at=3600.0)
    TrainingJob(JOB, SimulatedBackend(service)).wait(display=shown, policy=FollowPolicy(schedule=clock))
    assert [[line.text for line in shown.lines[one.name]] for one in workers] == [
        ["begun", "half of it", "done"]
    ] * instances
    assert 5 < 3600 / len(service.asked) * (1 + instances) < 10, "seconds between two requests for the same"
    assert clock.time < 3600 + 8 + 5 + 3, "the longest pause, the quiet at the end, and the answers' own time"


def test_a_slow_service_without_long_polls_is_not_asked_all_the_time() -> None:
    clock = SimulatedTime()

    class Slow(SimulatedService):
        def call(self, *args: Any, **more: Any) -> Any:
            self.clock.time += 0.3
            return super().call(*args, **more)

    service = Slow(clock, random.Random(3), is_ours=False, instances=[], ends_at=800.0)
    TrainingJob(JOB, SimulatedBackend(service)).wait(show_logs=False, policy=FollowPolicy(schedule=clock))
    assert len(service.asked) < 800 / 8 + 20


@pytest.mark.parametrize(
    ("master", "has_etags", "most"),
    [
        (Instance(f"{JOB}-master-0"), False, 18),
        (Instance(f"{JOB}-master-0"), True, 18),
        (Instance(f"{JOB}-master-0", lines=[(0.0, "begun")]), False, 18),
        (Instance(f"{JOB}-master-0", listed_at=10.0), False, 20),
        (Instance(f"{JOB}-master-0", log_from=100.0, refused_with=NOT_YET[1]), False, 20),
        (Instance(f"{JOB}-master-0", log_from=100.0, refused_with=NOT_YET[2]), False, 25),
    ],
    ids=["no line", "etags", "one line", "listed late", "refused: 404", "refused: 400"],
)
def test_the_first_half_minute_of_a_quiet_job_costs_few_requests(
    master: Instance, has_etags: bool, most: int
) -> None:
    """They were 26, and 45 where a log that is not there yet is refused with 400."""
    clock = SimulatedTime()
    service = SimulatedService(
        clock, random.Random(3), is_ours=False, instances=[master], ends_at=600.0, has_etags=has_etags
    )
    TrainingJob(JOB, SimulatedBackend(service)).wait(display=Shown(), policy=FollowPolicy(schedule=clock))
    assert sum(at <= 30 for at, _ in service.asked) <= most


@pytest.mark.parametrize("written_at", [0.3, 2.0, 7.0, 20.0, 60.0, 300.0])
def test_a_new_line_is_shown_soon_the_sooner_the_shorter_it_was_quiet(written_at: float) -> None:
    clock = SimulatedTime()
    master = Instance(f"{JOB}-master-0", lines=[(written_at, "new")])
    service = SimulatedService(clock, random.Random(3), is_ours=False, instances=[master], ends_at=600.0)
    shown: list[float] = []

    class Timed(Silent):
        def line(self, line: LogLine) -> None:
            shown.append(clock.time)

    TrainingJob(JOB, SimulatedBackend(service)).wait(display=Timed(), policy=FollowPolicy(schedule=clock))
    assert shown[0] - written_at < min(8.0, max(1.0, 0.35 * written_at)) + 0.3


def test_what_others_call_an_etag_is_no_sign_of_our_own_service() -> None:
    clock = SimulatedTime()
    late = Instance(f"{JOB}-worker-0", listed_at=61.0, lines=[(59.0, "all")])
    there = [Instance(f"{JOB}-master-0", lines=[(1.0, "all")]), late]
    service = SimulatedService(
        clock, random.Random(3), is_ours=False, instances=there, ends_at=60.0, has_etags=True
    )
    shown = Shown()
    TrainingJob(JOB, SimulatedBackend(service)).wait(display=shown, policy=FollowPolicy(schedule=clock))
    assert {name: [line.text for line in lines] for name, lines in shown.lines.items()} == {
        one.name: ["all"] for one in there
    }


@pytest.mark.parametrize("code", NOT_YET)
def test_a_log_that_is_refused_for_minutes_is_read_when_it_is_there(code: tuple[str, int]) -> None:
    clock, shown = SimulatedTime(), Shown()
    lines = [(float(second), f"second {second}") for second in range(400)]
    slow = Instance(f"{JOB}-master-0", log_from=300.0, lines=lines, refused_with=code)
    service = SimulatedService(clock, random.Random(5), is_ours=False, instances=[slow], ends_at=400.0)
    TrainingJob(JOB, SimulatedBackend(service)).wait(display=shown, policy=FollowPolicy(schedule=clock))
    assert [line.text for line in shown.lines[slow.name]] == [text for _, text in lines]
    assert shown.notices == []


def test_a_log_that_stays_refused_is_reported_and_does_not_keep_the_job_waiting() -> None:
    clock, shown = SimulatedTime(), Shown()
    never = Instance(f"{JOB}-worker-0", log_from=float("inf"), refused_with=NOT_YET[1])
    there = Instance(f"{JOB}-master-0", lines=[(30.0, "all")])
    service = SimulatedService(clock, random.Random(5), is_ours=False, instances=[there, never], ends_at=60.0)
    TrainingJob(JOB, SimulatedBackend(service)).wait(display=shown, policy=FollowPolicy(schedule=clock))
    assert [line.text for line in shown.lines[there.name]] == ["all"]
    assert [notice.partition(":")[0] for notice in shown.notices] == ["the log of worker-0 cannot be shown"]
    assert clock.time < 60 + 8 + 30


@pytest.mark.parametrize("show_logs", [True, False])
@pytest.mark.parametrize(("late_s", "is_told"), [(7.0, True), (14.0, True), (40.0, False)])
def test_a_traceback_that_comes_late_is_waited_for_and_if_it_does_not_come_that_is_said(
    show_logs: bool, late_s: float, is_told: bool
) -> None:
    clock, shown = SimulatedTime(), Shown()
    broken = Instance(f"{JOB}-master-0", lines=[(50.0, "epoch 1")], ends_as="Failed")
    broken.lines += [(60.0 + late_s, text) for text in TRACEBACK]
    service = SimulatedService(
        clock, random.Random(5), is_ours=False, instances=[broken], ends_at=60.0, ends_as="Failed"
    )
    with refused(JobFailed) as caught:
        TrainingJob(JOB, SimulatedBackend(service)).wait(
            show_logs=show_logs, display=shown, policy=FollowPolicy(schedule=clock)
        )
    assert bool(caught.value.traceback) == is_told
    assert clock.time < 60 + 8 + 15 + 10, "and it is waited for once"


def test_a_log_that_shows_the_reason_is_not_waited_for_any_longer_than_another() -> None:
    clock = SimulatedTime()
    broken = Instance(f"{JOB}-master-0", lines=[(59.0, text) for text in TRACEBACK], ends_as="Failed")
    service = SimulatedService(
        clock, random.Random(5), is_ours=False, instances=[broken], ends_at=60.0, ends_as="Failed"
    )
    with refused(JobFailed):
        TrainingJob(JOB, SimulatedBackend(service)).wait(display=Shown(), policy=FollowPolicy(schedule=clock))
    assert clock.time < 60 + 8 + 5 + 3


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_job_that_is_deleted_while_it_is_followed_is_reported_as_such(is_ours: bool) -> None:
    clock, shown = SimulatedTime(), Shown()
    lines = [(float(second), f"second {second}") for second in range(100)]
    instance = Instance(f"{JOB}-master-0", lines=lines)
    service = SimulatedService(clock, random.Random(7), is_ours, [instance], ends_at=200, deleted_at=50)
    with pytest.raises(NotFoundError):
        TrainingJob(JOB, SimulatedBackend(service)).wait(
            display=shown, policy=FollowPolicy(hold_s=2, schedule=clock)
        )
    assert clock.time < 60
    seen = [line.text for line in shown.lines[instance.name]]
    assert 48 <= len(seen) <= 50
    assert seen == [text for _, text in lines[: len(seen)]]


@pytest.mark.parametrize("show_logs", [True, False])
def test_an_end_in_a_status_that_is_not_known_ends_the_wait(show_logs: bool) -> None:
    clock, shown = SimulatedTime(), Shown()
    there = Instance(f"{JOB}-master-0", lines=[(59.0, "all")])
    service = SimulatedService(clock, random.Random(5), is_ours=False, instances=[there], ends_at=60.0)
    service.ends_as, service.tells_transitions = "Evicted", True
    job = TrainingJob(JOB, SimulatedBackend(service))
    with refused(JobFailed) as caught:
        job.wait(7200, show_logs=show_logs, display=shown, policy=FollowPolicy(schedule=clock))
    assert caught.value.status == "Evicted"
    assert clock.time < 60 + 60
    assert not show_logs or [line.text for line in shown.lines[there.name]] == ["all"]


def test_a_status_that_is_not_known_ends_no_wait_when_another_follows_it() -> None:
    """A service may note the end of a status a moment before it notes the next one."""
    clock = SimulatedTime()
    service = SimulatedService(clock, random.Random(5), is_ours=False, instances=[], ends_at=60.0)
    service.ends_as, service.tells_transitions = "Dequeued", True

    def go_on() -> None:
        service.ends_as, service.ends_at = "Succeed", 600.0

    clock.call_later(go_on, 63.0)
    TrainingJob(JOB, SimulatedBackend(service)).wait(
        7200, show_logs=False, policy=FollowPolicy(pause_s=1, schedule=clock)
    )
    assert clock.time > 600
