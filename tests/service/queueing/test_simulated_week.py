"""A week of 20 users on one service, by a simulated clock.

Ten users have more work than the service can do, some of it in jobs that need all of it; six submit a job a
day; four have quotas and more work than these allow.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict, deque
from dataclasses import dataclass, field

import pytest

from pai_sdk._service.services.jobs.host_resources import Capacity, Need
from pai_sdk._service.services.jobs.queueing.fair_share import HALF_LIFE_S, Allocation, Use
from pai_sdk._service.services.jobs.queueing.queue import Head, decide
from pai_sdk._service.services.jobs.queueing.quota_checks import NO_QUOTA, Quota

HOUR = 3600.0
WEEK = 7 * 24 * HOUR
LONGEST_JOB = 4 * HOUR
CAPACITY = Capacity(slots=48, cpus=96.0, gpus=16)
BUSY = [f"busy-{number}" for number in range(10)]
OCCASIONAL = [f"occasional-{number}" for number in range(6)]
LIMITED = {f"limited-{number}": Quota(cpus=8 + number, gpus=1, running=2) for number in range(4)}

JOBS_OF_OCCASIONAL = 8  # of each of them, in the week

MOST_DEVIATION = 0.15  # of a busy user's use from the mean of all busy users
LONGEST_WAIT_AS_HEAD = 2 * HALF_LIFE_S  # of a job that is the first of its line and within its quota
LONGEST_WAIT_OF_OCCASIONAL = 6 * LONGEST_JOB


@dataclass
class Waiting:
    head: Head
    submitted: float
    duration: float
    first_since: float | None = None  # since when it is first in its line and within its quota


@dataclass
class Week:
    """The queue under test, with everything around it simulated."""

    seed: int
    now: float = 0.0
    lines: dict[str, deque[Waiting]] = field(default_factory=lambda: defaultdict(deque))
    held: dict[str, Allocation] = field(default_factory=dict)
    uses: dict[str, Use] = field(default_factory=dict)
    used_h: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # the dominant resource
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    waits_as_head: list[float] = field(default_factory=list)
    ends: list[tuple[float, str]] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def submit(self, owner: str) -> None:
        self.number += 1
        need, duration = self._job(owner)
        head = Head(f"job-{self.number}", self.number, owner, need)
        self.lines[owner].append(Waiting(head, self.now, duration))

    def _job(self, owner: str) -> tuple[Need, float]:
        duration = self.random.uniform(0.05, 1.0) * LONGEST_JOB
        if owner in LIMITED:
            return Need(1, cpus=self.random.choice([2, 4, 8]), gpus=self.random.choice([0, 1])), duration
        if owner in BUSY and self.random.random() < 0.02:
            return Need(CAPACITY.slots, cpus=96, gpus=16), HOUR
        instances = self.random.randint(1, 3)
        return Need(instances, cpus=instances * self.random.choice([1, 2, 4]), gpus=instances), duration

    def run(self) -> None:
        submitters = OCCASIONAL * JOBS_OF_OCCASIONAL
        upcoming = deque(sorted((self.random.uniform(0, WEEK), owner) for owner in submitters))
        while self.now < WEEK:
            for owner in (*BUSY, *LIMITED):
                while len(self.lines[owner]) < 3:
                    self.submit(owner)
            self._admit()
            self._check_limits()
            times = [WEEK, *(arrival[0] for arrival in [*upcoming][:1]), *(end[0] for end in self.ends[:1])]
            self.now = min(times)
            while upcoming and upcoming[0][0] <= self.now:
                self.submit(upcoming.popleft()[1])
            while self.ends and self.ends[0][0] <= self.now:
                self._end(heapq.heappop(self.ends)[1])

    def _admit(self) -> None:
        while True:
            heads = [line[0].head for line in self.lines.values() if line]
            held = list(self.held.values())
            decision = decide(heads, held, self.uses, LIMITED, lambda: CAPACITY, self.now)
            at_quota = {head.owner for head, _ in decision.at_quota}
            for owner, line in self.lines.items():
                if line and owner in at_quota:
                    line[0].first_since = None
                elif line and line[0].first_since is None:
                    line[0].first_since = self.now
            if decision.next is None or decision.lacking:
                return
            self._begin(self.lines[decision.next.owner].popleft())

    def _begin(self, job: Waiting) -> None:
        owner, need = job.head.owner, job.head.need
        self.held[job.head.job_id] = Allocation(owner, need, self.now)
        heapq.heappush(self.ends, (self.now + job.duration, job.head.job_id))
        self.waits[owner].append(self.now - job.submitted)
        assert job.first_since is not None
        self.waits_as_head.append(self.now - job.first_since)

    def _end(self, job_id: str) -> None:
        one = self.held.pop(job_id)
        need = one.need
        before = self.uses.get(one.owner, Use())
        self.uses[one.owner] = before.with_use(need, start=one.since, end=self.now)
        assert CAPACITY.cpus is not None
        assert CAPACITY.gpus is not None
        part = max(need.instances / CAPACITY.slots, need.cpus / CAPACITY.cpus, need.gpus / CAPACITY.gpus)
        self.used_h[one.owner] += part * (self.now - one.since) / HOUR

    def _check_limits(self) -> None:
        assert not list(CAPACITY.lacks(Need(0), [one.need for one in self.held.values()]))
        needs = [one.need for one in self.held.values()]
        assert sum(need.instances for need in needs) <= CAPACITY.slots
        assert sum(need.cpus for need in needs) <= (CAPACITY.cpus or 0)
        assert sum(need.gpus for need in needs) <= (CAPACITY.gpus or 0)
        for owner, quota in LIMITED.items():
            own = [one.need for one in self.held.values() if one.owner == owner]
            assert quota != NO_QUOTA
            assert sum(need.cpus for need in own) <= (quota.cpus or 0)
            assert sum(need.gpus for need in own) <= (quota.gpus or 0)
            assert len(own) <= (quota.running or 0)

    def waiting_now(self) -> list[float]:
        """How long the first jobs of the lines wait already."""
        heads = [line[0] for line in self.lines.values() if line]
        return [self.now - job.first_since for job in heads if job.first_since is not None]


@pytest.fixture(scope="module", params=[1, 2, 3])
def week(request: pytest.FixtureRequest) -> Week:
    found = Week(request.param)
    found.run()
    return found


def test_no_job_starves(week: Week) -> None:
    assert max([*week.waits_as_head, *week.waiting_now()]) <= LONGEST_WAIT_AS_HEAD


def test_busy_users_get_the_same(week: Week) -> None:
    used = [week.used_h[owner] for owner in BUSY]
    mean = sum(used) / len(used)
    assert all(abs(each - mean) <= MOST_DEVIATION * mean for each in used), used


def test_the_few_jobs_of_occasional_users_do_not_wait_behind_the_lines_of_busy_ones(week: Week) -> None:
    waits = [wait for owner in OCCASIONAL for wait in week.waits[owner]]
    assert len(waits) >= 0.95 * JOBS_OF_OCCASIONAL * len(OCCASIONAL)
    assert max(waits) <= LONGEST_WAIT_OF_OCCASIONAL
    assert sorted(waits)[len(waits) // 2] <= HOUR


def test_users_with_quotas_work_all_the_week(week: Week) -> None:
    assert all(len(week.waits[owner]) >= 40 for owner in LIMITED)


def test_the_same_week_is_decided_in_the_same_way() -> None:
    first, second = Week(4), Week(4)
    first.run()
    second.run()
    assert first.waits == second.waits
