"""The rules about values of metrics: `NonFiniteMetric` and `MetricJump`."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pai_sdk._data.rules.rules import MetricJump, NonFiniteMetric, Rule
from pai_sdk._data.rules.signals import Condition, Point

# Overflows in healthy jobs too: the first steps of mixed precision, a best value before the first evaluation.
_OFTEN_INFINITE = re.compile(r"grad|norm|scale|best|ppl|perplex|\bmin|\bmax|eta\b", re.IGNORECASE)
_LOSS = re.compile(r"loss", re.IGNORECASE)
_WINDOW = 100
_MIN_POINTS = 30
_MAX_SERIES = 200
_CURVE_POINTS = 40


@dataclass
class _Series:
    """The recent points of one metric of one rank."""

    name: str
    instance: str
    values: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))  # without those of a jump
    curve: deque[tuple[int | None, float]] = field(default_factory=lambda: deque(maxlen=_CURVE_POINTS))
    not_finite: int = 0  # consecutive points
    beyond: int = 0
    limit: float = math.inf
    step: int = -1

    @property
    def source(self) -> str:
        """Returns the instance for a message."""
        return f" of {self.instance}" if self.instance else ""

    @property
    def key(self) -> str:
        """Returns the key of its conditions: a metric that is reported and printed is reported once."""
        return f"{self.instance}/{self.name}"


class FigureRules:
    """Follows the metrics of one job."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules
        self._series: dict[str, _Series] = {}

    def observe(self, point: Point) -> None:
        """Adds a point."""
        # A value that a metric definition matches is also read from its line, without a step: it counts once.
        source = "line" if point.step is None else point.rank
        key = f"{point.instance}/{source}/{point.name}"
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= _MAX_SERIES and not self._has_room(point):
                return
            series = self._series[key] = _Series(point.name, point.instance)
        if point.step is not None and point.step < series.step:  # it continues from a checkpoint
            series.values.clear()
            series.beyond = 0
        series.step = -1 if point.step is None else point.step
        series.curve.append((point.step, point.value))
        if not math.isfinite(point.value):
            series.not_finite += 1
            return
        series.not_finite = 0
        rule = self._rules.get(MetricJump.code)
        if isinstance(rule, MetricJump) and _applies(rule.metrics, point.name, is_default=_is_loss(point.name)):
            self._compare(series, point.value, rule)

    def _has_room(self, point: Point) -> bool:
        """Makes room for a value that is not finite: a finite series is dropped."""
        if math.isfinite(point.value):
            return False
        unremarkable = (key for key, each in self._series.items() if not each.not_finite and not each.beyond)
        return self._series.pop(next(unremarkable, ""), None) is not None

    @staticmethod
    def _compare(series: _Series, value: float, rule: MetricJump) -> None:
        values = sorted(series.values)
        if len(values) >= _MIN_POINTS:
            middle = median(values)
            spread = values[int(0.9 * (len(values) - 1))] - values[int(0.1 * (len(values) - 1))]
            series.limit = middle + rule.factor * max(spread, 0.05 * abs(middle), 1e-9)
            if value > series.limit:
                series.beyond += 1
                if series.beyond < _WINDOW:
                    return
                series.values.clear()  # the new level: it is no jump any more
        series.beyond = 0
        series.values.append(value)

    def conditions(self) -> Iterator[Condition]:
        """Yields what the rules observe now."""
        not_finite, jump = self._rules.get(NonFiniteMetric.code), self._rules.get(MetricJump.code)
        for series in self._series.values():
            is_default = not _OFTEN_INFINITE.search(series.name)
            if (
                isinstance(not_finite, NonFiniteMetric)
                and series.not_finite >= max(1, not_finite.points)
                and _applies(not_finite.metrics, series.name, is_default=is_default)
            ):
                step, value = series.curve[-1]
                at = "" if step is None else f" at step {step}"
                message = (
                    f"the metric {series.name!r}{series.source} is {value}{at}, {series.not_finite} times in a row"
                )
                yield Condition(not_finite.code, message, series.instance or None, _curve(series), key=series.key)
            if isinstance(jump, MetricJump) and series.beyond >= max(1, jump.points):
                _, value = series.curve[-1]
                recent = f"its recent values are below {series.limit:.6g}"
                message = f"the metric {series.name!r}{series.source} jumped to {value:.6g}; {recent}"
                yield Condition(jump.code, message, series.instance or None, _curve(series), key=series.key)

    def to_json(self) -> dict[str, Any]:
        """Returns the state as JSON."""
        return {
            key: [
                each.name,
                each.instance,
                [*each.values],
                [*each.curve][-5:],
                each.not_finite,
                each.beyond,
                each.step,
            ]
            for key, each in self._series.items()
        }

    @classmethod
    def from_json(cls, rules: Mapping[str, Rule], state: Mapping[str, Any]) -> FigureRules:
        """Returns the state of `to_json`, with the current rules."""
        figures = cls(rules)
        for key, (name, instance, values, curve, not_finite, beyond, step) in state.items():
            series = figures._series[key] = _Series(name, instance)
            series.values.extend(values)
            series.curve.extend((at, value) for at, value in curve)
            series.not_finite, series.beyond, series.step = not_finite, beyond, step
        return figures


def _applies(names: tuple[str, ...], name: str, *, is_default: bool) -> bool:
    return name in names if names else is_default


def _is_loss(name: str) -> bool:
    return bool(_LOSS.search(name)) and not _OFTEN_INFINITE.search(name)


def _curve(series: _Series) -> dict[str, Any]:
    # Text where a value is not finite: JSON has no such numbers.
    points = [[step, value if math.isfinite(value) else str(value)] for step, value in series.curve]
    return {"metric": series.name, "curve": points}
