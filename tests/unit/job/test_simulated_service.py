"""Waiting for jobs on services of many kinds, on made-up time: what holds whatever goes wrong.

`PAI_SIMULATIONS=2000` draws more services than the few of every day.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict

import pytest

from pai_sdk.display.base import Silent
from pai_sdk.errors import JobFailed, NotFoundError
from pai_sdk.job.follow import FollowPolicy
from pai_sdk.job.record import JobRecord, LogLine
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.retry import RetryPolicy
from tests.unit.job.simulated import SimulatedTime
from tests.unit.job.simulated_service import JOB, Instance, SimulatedBackend, SimulatedService, draw

SEEDS = range(int(os.environ.get("PAI_SIMULATIONS", "60")))


class Shown(Silent):
    """Keeps what a display was told."""

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
def test_whatever_goes_wrong_each_line_comes_once_and_the_end_is_told_soon(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimulatedTime()
    service, shown = draw(seed, clock), Shown()
    monkeypatch.setattr("pai_sdk.retry.random", random.Random(seed))  # a seed is the same run again
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
    assert clock.time - reachable < 120, "the end is told soon after it can be known"
    assert _most_in_a_minute(service) < _fair(service)


def _most_in_a_minute(service: SimulatedService) -> int:
    return max(Counter(int(at // 60) for at, _ in service.asked).values())


def _fair(service: SimulatedService) -> float:
    """One question a second for the job and each log, short pauses at the beginning, and what is there to read.

    Ours tells each line as it comes, as long as they do not come too fast.
    """
    pages = sum(len(one.lines) / 20 for one in service.instances)
    return (600 if service.is_ours else 100) * (1 + len(service.instances)) + 2 * pages


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_job_that_is_deleted_while_it_is_followed_is_told_as_such(is_ours: bool) -> None:
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
