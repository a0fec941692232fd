"""The course of a metric: as a small picture with its scale, and as a row of blocks in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pai_sdk.run.plots.pictures import small_curve
from pai_sdk.schemas.record import MetricPoint

_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_POINTS = 200


@dataclass
class MetricCurve:
    """The values of one metric, oldest first.

    Attributes:
        values: finite ones; the oldest half is thinned out when there are too many.
        first_step: the step of the first value, where steps are known.
        last_step: likewise of the last value.
    """

    values: list[float] = field(default_factory=list)
    first_step: int | None = None
    last_step: int | None = None
    _last: tuple[int | None, str | None, float] | None = None

    def add(self, point: MetricPoint) -> None:
        """Add a value, unless it is the last one once more."""
        if point.value is None or not math.isfinite(point.value):
            return
        key = point.step, point.timestamp, point.value
        if key == self._last:
            return
        self._last = key
        self.values.append(point.value)
        self.first_step = point.step if self.first_step is None else self.first_step
        self.last_step = point.step
        if len(self.values) > 2 * _MOST_POINTS:
            del self.values[1:-1:2]  # the ends stay

    def svg(self) -> str:
        """The curve with its scale, as inline SVG: largest and smallest value, first and last step.

        Example:
            >>> "polyline" in MetricCurve([3.0, 1.0, 2.0], 0, 2).svg(), MetricCurve([3.0]).svg()
            (True, '')
        """
        return small_curve(self.values, self.first_step, self.last_step)

    def blocks(self, width: int = 12) -> str:
        """The last values as a row of blocks, scaled to their range.

        Example:
            >>> MetricCurve([0.0, 1.0, 2.0, 4.0]).blocks(), MetricCurve([1.0]).blocks()
            ('▁▂▄█', '')
        """
        return blocks_of(self.values, width)


def blocks_of(values: Sequence[float], width: int = 12, scale: tuple[float, float] | None = None) -> str:
    """The last values as a row of blocks; a value that is not finite is a gap.

    Args:
        values: oldest first.
        width: the most blocks.
        scale: the values of the lowest and of the highest block; those of the row otherwise.

    Example:
        >>> blocks_of([0.0, float("nan"), 4.0]), blocks_of([0.0, 1.0], scale=(0.0, 2.0))
        ('▁ █', '▁▄')
    """
    shown = values[-width:]
    finite = [value for value in shown if math.isfinite(value)]
    if len(shown) < 2 or not finite:
        return ""
    low, high = scale or (min(finite), max(finite))
    height = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[int((value - low) * height)] if math.isfinite(value) else " " for value in shown)


def curves_of(points: Iterable[MetricPoint]) -> dict[str, MetricCurve]:
    """The curve of each metric. Of a metric that several instances report, the first instance is drawn.

    Args:
        points: oldest first.
    """
    curves: dict[str, MetricCurve] = {}
    drawn: dict[str, str | None] = {}
    for point in points:
        if point.name and drawn.setdefault(point.name, point.instance) == point.instance:
            curves.setdefault(point.name, MetricCurve()).add(point)
    return curves


def metrics_text(latest: Sequence[MetricPoint], curves: Mapping[str, MetricCurve], *, most: int = 4) -> str:
    """The last values on one line: `loss 0.25 ▄▃▁  accuracy 0.9`; empty without any.

    Args:
        latest: the last value of each metric.
        curves: metric to its course; drawn where it is known.
        most: how many metrics.
    """
    parts = []
    for point in latest[:most]:
        if point.name and point.value is not None:
            blocks = curves[point.name].blocks() if point.name in curves else ""
            parts.append(f"{point.name} {point.value:.5g}{' ' + blocks if blocks else ''}")
    return "  ".join(parts)
