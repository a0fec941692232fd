"""What a picture or a response has of curves. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

XAxis: TypeAlias = Literal["step", "relative_step", "relative_time", "wall"]
"""The x axis: the step, the steps since the first one, the seconds since the first point, or since 1970."""

Band: TypeAlias = Literal["std", "range", "quantile"]
"""The band around the line of a group: one standard deviation, smallest to largest, or the middle half."""

_METRIC = "metric:"


@dataclass(frozen=True)
class CurveView:
    """The x axis of curves, the range and the resolution of a view, and the smoothing."""

    x: XAxis | str = "step"  # or `metric:TAG`, the value of another metric at the same step
    start: float | None = None  # the smallest x of the view; None for that of the data
    end: float | None = None  # the largest x of the view; None for that of the data
    buckets: int = 250  # the maximum
    smooth: float = 0.0  # the weight of TensorBoard's smoothing, from 0 to less than 1
    half_life: float | None = None  # smooth by distance instead, in units of x


def metric_of(x: str) -> str | None:
    """Returns the tag of an x axis that is a metric, `metric:TAG`; None for another axis."""
    return x.removeprefix(_METRIC) if x.startswith(_METRIC) and x != _METRIC else None


def tags_of_axis(tag: str, x: str) -> list[str]:
    """Returns the metrics whose points curves of a metric need: its own, and that of the x axis if it is one."""
    x_tag = metric_of(x)
    return [tag] if x_tag is None else [tag, x_tag]
