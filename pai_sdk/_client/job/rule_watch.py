"""Applies rules to a job from outside, by its log, metrics and use: for services that have no rules themselves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pai_sdk._client.job.follow.polling import may_appear_later
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._data.rules.codec import default_rules, merged, rules_of_variables
from pai_sdk._data.rules.evaluator import RuleEvaluator
from pai_sdk._data.rules.log_lines import metric_lines
from pai_sdk._data.rules.rules import Rule
from pai_sdk._data.rules.signals import Finding, InstanceSample, Point, Sample
from pai_sdk._wire.pai.record import InstanceUsage, JobRecord, MetricPoint
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk._wire.pai.wire import seconds_of
from pai_sdk._wire.progress import max_running_s, overall_progress, remaining_s
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)

_PAGE_LINES = 1000
_MAX_PAGES = 20  # of one log in one sample
_PATIENCE_S = 600.0

_R = TypeVar("_R")


class RuleWatch:
    """Watches one job until it finishes. CPU and disk are not measured: `unmeasured_s` of `NoProgress` applies.

    Args:
        job: the job.
        rules: they replace those of the job, and these the default ones of their kind.
        interval_s: between two samples.
        now: a monotonic clock.
        sleep: waits.
    """

    def __init__(
        self,
        job: TrainingJob,
        rules: Sequence[Rule] = (),
        *,
        interval_s: float = 30.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._job, self._interval_s, self._now, self._sleep = job, interval_s, now, sleep
        variables = {name: str(value) for name, value in (job.record.environments or {}).items()}
        self.rules = merged(default_rules(), rules_of_variables(variables), rules)
        self._evaluator = RuleEvaluator(self.rules, interval_s=interval_s)
        self._lines: dict[str, int] = {}  # the number of the next line of each log
        self._bytes: dict[str, int] = {}
        self._since: str | None = None
        self._last_points: set[tuple[object, ...]] = set()
        self._failing_since_s: float | None = None

    def findings(self) -> Iterator[Finding]:
        """Yields findings until the job finishes.

        Raises:
            PaiError: the service does not respond for ten minutes.
        """
        while True:
            record = self._attempt(self._job.refresh)
            if record is not None:
                if record.status.is_terminal:
                    return
                if record.status == JobStatus.RUNNING:
                    sample = self._attempt(lambda: self._sample(record))  # noqa: B023 - called at once
                    if sample is not None:
                        yield from self._evaluator.observe(sample)
            self._sleep(self._interval_s)

    def _attempt(self, read: Callable[[], _R]) -> _R | None:
        """Returns None after an error that may pass; the next sample tries again."""
        try:
            value = read()
        except PaiError as error:
            now_s = self._now()
            if self._failing_since_s is None:
                self._failing_since_s = now_s
                logger.warning("watching job %s: %s; trying again", self._job.id, error)
            if not error.retryable or now_s - self._failing_since_s > _PATIENCE_S:
                raise
            return None
        self._failing_since_s = None
        return value

    def _sample(self, record: JobRecord) -> Sample:
        usage = {each.instance: each for each in self._usage()}
        names = record.instance_names or [""]
        instances = {name: self._instance(name, usage.get(name)) for name in names}
        return Sample(
            self._now(),
            instances,
            self._points(),
            elapsed_s=record.duration,
            fraction=overall_progress(record),
            remaining_s=remaining_s(record),
            max_run_s=max_running_s(record),
        )

    def _usage(self) -> Sequence[InstanceUsage]:
        try:
            return self._job.usage()
        except PaiError:  # not measured, or a service without this action
            return ()

    def _instance(self, name: str, usage: InstanceUsage | None) -> InstanceSample:
        lines: list[str] = []
        for _ in range(_MAX_PAGES):
            try:
                start = self._lines.get(name, 0)
                page = self._job.backend.read_log(self._job.id, name, start=start, limit=_PAGE_LINES)
            except PaiError as error:
                if may_appear_later(error):  # it has not started to write
                    break
                raise
            self._lines[name] = start + page.missing + len(page.lines)
            lines += page.lines
            if len(page.lines) < _PAGE_LINES:
                break
        self._bytes[name] = self._bytes.get(name, 0) + sum(map(len, lines))
        flooded = metric_lines("\n".join(lines[:-_PAGE_LINES]).encode())
        states = [state for line in lines[-_PAGE_LINES:] for state in line.split("\r")]
        return InstanceSample(
            self._bytes[name], [*flooded, *states], gpu_percent=usage.gpu_percent if usage else None
        )

    def _points(self) -> list[Point]:
        """Returns the values since the last call."""
        if self._job.backend.capabilities.api == "dlc":
            return []  # it would read the complete logs again; the rules read printed values themselves
        try:
            values = list(self._job.backend.metrics(self._job.id, since=self._since))
        except PaiError:
            return []
        new = [value for value in values if _identity(value) not in self._last_points]
        times = [value.timestamp for value in values if value.timestamp]
        if times:
            self._since = max(times)
            self._last_points = {_identity(value) for value in values if value.timestamp == self._since}
        return [_point(value) for value in new]


def _identity(value: MetricPoint) -> tuple[object, ...]:
    return value.name, value.instance, value.rank, value.step, value.timestamp, value.value


def _point(value: MetricPoint) -> Point:
    wall_s = seconds_of(value.timestamp) if value.timestamp else None
    return Point(
        value.name or "", float(value.value or 0.0), value.instance or "", value.rank or 0, value.step, wall_s
    )
