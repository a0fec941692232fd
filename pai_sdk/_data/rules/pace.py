"""The pace of a job: gaps between signs of progress, and times of steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pai_sdk._data.rules.rules import NoProgress
from pai_sdk._data.rules.signals import PRINTED, Point

_MAX_GAPS = 256
_RECENT_STEPS = 3
_MIN_STEPS = 20
_MIN_GAPS = 3
_UNKNOWN_PACE_FACTOR = 2.0


class Pace:
    """How often a job has made progress, in observed time: pauses of the observer do not count."""

    def __init__(self) -> None:
        self.quiet_s = 0.0  # since the last progress
        self.max_gap_s = 0.0  # after the first metric
        self.has_metric = False
        self._gaps: deque[float] = deque(maxlen=_MAX_GAPS)
        self._step_times: deque[float] = deque(maxlen=_MAX_GAPS)
        self._source = ""  # of the steps that are timed
        self._is_printed = False
        self._last_step: tuple[int, float] | None = None

    def advance(self, observed_s: float, *, has_progress: bool, has_metric: bool) -> None:
        """Adds a stretch of observed time, with or without progress at its end."""
        self.quiet_s += observed_s
        if not has_progress:
            return
        # Startup is no gap between two steps: it would make every later limit longer.
        if self.has_metric:
            self._gaps.append(self.quiet_s)
            self.max_gap_s = max(self.max_gap_s, self.quiet_s)
        self.has_metric = self.has_metric or has_metric
        self.quiet_s = 0.0

    def add_points(self, points: Sequence[Point]) -> None:
        """Adds times of steps, from the points of one metric of one rank; reported ones are preferred."""
        timed = [point for point in points if point.step is not None and point.wall_s is not None]
        for point in timed:
            if not self._source or (self._is_printed and point.rank != PRINTED):
                self._source, self._is_printed = _source_of(point), point.rank == PRINTED
                self._last_step = None
                self._step_times.clear()
        same_source = [point for point in timed if _source_of(point) == self._source]
        # Times of lines are only sampled: many have the same time, so a mean of them counts.
        for point in same_source[-1:] if self._is_printed else same_source:
            step, wall_s = point.step or 0, point.wall_s or 0.0
            if self._last_step is not None:
                steps, elapsed_s = step - self._last_step[0], wall_s - self._last_step[1]
                if steps > 0 and elapsed_s >= 0:
                    self._step_times.append(elapsed_s / steps)
            self._last_step = step, wall_s

    def limit_s(self, rule: NoProgress) -> float:
        """Returns how long the job may be quiet."""
        if not self.has_metric:
            return max(rule.first_step_s, rule.min_s)
        # After the first metric, the next one may come as late as it does in a job that prints every N steps.
        min_s = rule.min_s * (_UNKNOWN_PACE_FACTOR if len(self._gaps) < _MIN_GAPS else 1.0)
        gap_s = median(self._gaps) if self._gaps else 0.0
        return max(min_s, rule.factor * gap_s, rule.max_gap_factor * self.max_gap_s)

    @property
    def slowdown(self) -> float:
        """Returns how many times longer the last steps took than those before them; 1 without enough steps."""
        times = [*self._step_times]
        if len(times) < _MIN_STEPS + _RECENT_STEPS:
            return 1.0
        before_s = median(times[:-_RECENT_STEPS])
        # The smallest of the last steps: one long pause is no slow pace.
        return min(times[-_RECENT_STEPS:]) / before_s if before_s > 0 else 1.0

    @property
    def step_s(self) -> float | None:
        """Returns the median time of a step."""
        return median(self._step_times) if self._step_times else None

    def to_json(self) -> dict[str, Any]:
        """Returns the state as JSON."""
        return {
            "quiet_s": self.quiet_s,
            "max_gap_s": self.max_gap_s,
            "has_metric": self.has_metric,
            "gaps": [*self._gaps],
            "step_times": [*self._step_times],
            "source": self._source,
            "is_printed": self._is_printed,
            "last_step": self._last_step,
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Pace:
        """Returns the pace of `to_json`."""
        pace = cls()
        pace.quiet_s, pace.max_gap_s = float(state["quiet_s"]), float(state["max_gap_s"])
        pace.has_metric, pace._source = bool(state["has_metric"]), str(state["source"])
        pace._is_printed = bool(state["is_printed"])
        pace._gaps.extend(map(float, state["gaps"]))
        pace._step_times.extend(map(float, state["step_times"]))
        if state["last_step"] is not None:
            step, wall_s = state["last_step"]
            pace._last_step = int(step), float(wall_s)
        return pace


def _source_of(point: Point) -> str:
    return f"{point.instance}/{point.rank}/{point.name}"
