"""Rules applied from outside, to the log and the metrics of a job on another service; with a fake clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pai_sdk._client.job.rule_watch import RuleWatch
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._data.rules.rules import NonFiniteMetric, NoProgress, Rule
from tests.support.fake_backend import FakeBackend

WORKER = "train1-worker-0"


@dataclass
class Clock:
    """A clock that a script moves: at each pause, the job does something."""

    step: Callable[[int], None]
    now_s: float = 0.0
    pauses: int = field(default=0)

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses += 1
        self.step(self.pauses)


def _watch(step: Callable[[FakeBackend, int], None], *rules: Rule) -> tuple[list[tuple[float, str]], FakeBackend]:
    backend = FakeBackend()
    backend.lines[WORKER] = []
    clock = Clock(lambda pause: step(backend, pause))
    job = TrainingJob("train1", backend)  # type: ignore[arg-type]
    watch = RuleWatch(job, rules, interval_s=30, now=clock.now, sleep=clock.sleep)
    return [(clock.now_s, finding.text) for finding in watch.findings()], backend


def test_a_quiet_log_is_reported_after_the_limit_of_unmeasured_jobs() -> None:
    def step(backend: FakeBackend, pause: int) -> None:
        if pause <= 20:
            backend.lines[WORKER].append(f"step {pause} loss=0.5")
        elif pause == 120:
            backend.status = "Succeed"

    findings, _ = _watch(step, NoProgress())
    assert [text.partition(":")[0] for _, text in findings] == ["NoProgress"]
    assert 600 + 1800 <= findings[0][0] <= 600 + 1800 + 60


def test_nan_in_the_log_is_reported() -> None:
    def step(backend: FakeBackend, pause: int) -> None:
        backend.lines[WORKER].append(f"step {pause} loss={'nan' if pause > 5 else 0.5}")
        if pause == 12:
            backend.status = "Failed"

    findings, _ = _watch(step, NonFiniteMetric())
    assert len(findings) == 1
    assert findings[0][1].startswith("NonFiniteMetric: the metric 'loss' of train1-worker-0 is nan")


def test_a_healthy_log_has_no_findings() -> None:
    def step(backend: FakeBackend, pause: int) -> None:
        if pause % 10 == 0:  # every five minutes
            backend.lines[WORKER].append(f"step {pause} loss={1 / pause}")
        if pause == 300:
            backend.status = "Succeed"

    assert _watch(step)[0] == []
