"""Rules over recorded signals with a fake clock: no healthy job alarms, and each fault is named in time."""

from __future__ import annotations

import pytest

from pai_sdk._data.rules.codec import default_rules
from tests.support.recorded_jobs import FAULTS, HEALTHY
from tests.support.recorded_signals import WAITS, recording

_SEEDS = 30  # of each of the 15 kinds: 450 replays


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_jobs_do_not_alarm(kind: str) -> None:
    for seed in range(_SEEDS):
        found = [(at_s, f.text) for at_s, f in HEALTHY[kind](seed).replay(default_rules()) if f.code != "IdleCpu"]
        assert found == [], f"seed {seed}"


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_are_reported_in_time_with_their_rank(kind: str) -> None:
    job, code, instance = FAULTS[kind]
    for seed in range(8):
        recorded = job(seed)
        raised = [(at_s, f) for at_s, f in recorded.replay(default_rules()) if f.status == "raised"]
        assert raised, f"seed {seed}"
        at_s, first = next((at_s, f) for at_s, f in raised if f.code == code)
        assert first.instance == instance
        # The limit is 300 s, or follows the steps of at most 5 s; those of the slow rank take 40 s.
        limit_s = 300 + 2 * (40 if kind == "slow_rank" else 5) + 30
        assert at_s - recorded.fault_at_s <= limit_s
        assert len([f for _, f in raised if f.code == code]) == 1


@pytest.mark.parametrize("kind", ["stuck_loader", "deadlocked_lock", "stopped_process", "nan_loss"])
def test_a_restart_of_the_watcher_neither_repeats_nor_loses(kind: str) -> None:
    job, code, _ = FAULTS[kind]
    recorded = job(3)
    times = [
        recorded.fault_at_s - 50,
        recorded.fault_at_s + 60,
        recorded.fault_at_s + 400,
        recorded.fault_at_s + 900,
    ]
    codes = [f.code for _, f in recorded.replay(default_rules(), restarts=times) if f.status == "raised"]
    assert codes.count(code) == 1


def test_a_job_that_continues_clears_its_finding() -> None:
    r = recording(1)
    r.train(200, 1.0)
    r.hang(1000, None, **{f"r{rank}": WAITS for rank in range(4)})
    r.train(100, 1.0)
    findings = [f for _, f in r.replay(default_rules()) if f.code == "NoProgress"]
    assert [f.status for f in findings] == ["raised", "cleared"]
    assert findings[0].evidence["last_lines"]["worker-0"]


def test_unmeasured_jobs_have_a_longer_limit() -> None:
    r = recording(1, is_measured=False, has_stacks=False)
    r.train(200, 1.0)
    r.hang(4000)
    at_s = next(at_s for at_s, f in r.replay(default_rules()) if f.code == "NoProgress")
    assert 1790 <= at_s - r.fault_at_s <= 1830
