"""The curve of a metric: as a small image with its scale, and as a row of blocks in a terminal."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from pai_sdk._data.run.events.sources import point_order
from pai_sdk._data.run.plots.pictures import small_curve
from pai_sdk._wire.pai.record import JobRecord, MetricPoint
from pai_sdk._wire.pai.wire import seconds_of, wire_time
from pai_sdk.errors import PaiError

_PointKey: TypeAlias = tuple[str | None, str | None, int | None, int | None, str | None, float | None]

_BLOCKS = "▁▂▃▄▅▆▇█"
_READ_INTERVAL_S = 1.0
_MAX_TIME_SHARE = 0.05  # of the time of a wait that is spent on reading points
# A point may become readable this long after its time, because instances flush their files now and then.
_MAX_LATENESS_S = 60.0


@dataclass
class MetricCurve:
    """The finite values of one metric, oldest first."""

    values: list[float] = field(default_factory=list)
    first_step: int | None = None  # None if the first value has none
    last_step: int | None = None  # None if the last value has none
    _last: tuple[int | None, str | None, float] | None = None

    def add(self, point: MetricPoint) -> None:
        """Adds a value, unless it repeats the last one."""
        if point.value is None or not math.isfinite(point.value):
            return
        key = point.step, point.timestamp, point.value
        if key == self._last:
            return
        self._last = key
        self.values.append(point.value)
        self.first_step = point.step if self.first_step is None else self.first_step
        self.last_step = point.step

    def svg(self) -> str:
        """Returns the curve with its scale, as inline SVG: maximum and minimum, first and last step."""
        return small_curve(self.values, self.first_step, self.last_step)

    def blocks(self, width: int = 12) -> str:
        """Returns the last values as a row of blocks, scaled to their range; empty for a single value."""
        return blocks_of(self.values, width)


def blocks_of(values: Sequence[float], width: int = 12, scale: tuple[float, float] | None = None) -> str:
    """Returns the last values as a row of blocks (a gap if not finite); `scale` is (lowest, highest)."""
    last_values = values[-width:]
    finite = [value for value in last_values if math.isfinite(value)]
    if len(last_values) < 2 or not finite:
        return ""
    low, high = scale or (min(finite), max(finite))
    # Halves, because the difference of two finite numbers may be infinite.
    height = (len(_BLOCKS) - 1) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.0
    return "".join(
        _BLOCKS[int((value / 2 - low / 2) * height + 1e-9)] if math.isfinite(value) else " "
        for value in last_values
    )


class MetricCurves(dict[str, MetricCurve]):
    """The curve of each metric, from the instance to which its plain name refers (`run.events.sources`)."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: dict[str, tuple[Any, ...]] = {}

    def add(self, points: Iterable[MetricPoint]) -> None:
        """Adds points, oldest first."""
        for point in points:
            if not point.name:
                continue
            order = point_order(point)
            drawn = self._drawn.setdefault(point.name, order)
            if order < drawn:  # the preferred instance has reported later than another one
                self._drawn[point.name] = order
                self.pop(point.name, None)
            if order <= drawn:
                self.setdefault(point.name, MetricCurve()).add(point)


def curves_of(points: Iterable[MetricPoint]) -> MetricCurves:
    """Returns the curve of each metric, from points in the order of time."""
    curves = MetricCurves()
    curves.add(points)
    return curves


class Reporting(Protocol):
    """A source of metric values; a `TrainingJob` is one."""

    def metrics(self, name: str | None = None, *, since: str | None = None) -> Iterable[MetricPoint]:
        """Returns the values of its metrics, oldest first; all of them, or those since a time."""
        ...


class PointReader:
    """Reads the metric points of a running job as they arrive, each once. A snapshot has only the last ones."""

    def __init__(self, job: Reporting | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job
        self._clock = clock
        # Guards all fields below; held during the request, so that two callers do not read the same points.
        self._lock = threading.Lock()
        self._latest: Sequence[MetricPoint] = []
        self._due_at = float("-inf")
        self._since: str | None = None
        self._counts: Counter[_PointKey] = Counter()

    def read_new(self, record: JobRecord) -> Sequence[MetricPoint]:
        """Returns the points since the last call, oldest first; empty if the next read is not due."""
        latest = record.latest_metrics
        with self._lock:
            if self._job is None or latest == self._latest or self._clock() < self._due_at:
                return ()
            started_at = self._clock()
            new_points: Sequence[MetricPoint] = ()
            with suppress(PaiError):  # the display is worth more than its curves
                new_points = self._new_points(self._job)
                self._latest = latest
            took_s = (
                self._clock() - started_at
            )  # slow requests are made less often: a twentieth of the time at most
            self._due_at = started_at + max(_READ_INTERVAL_S, took_s / _MAX_TIME_SHARE)
            return new_points

    def read_all(self, record: JobRecord) -> MetricCurves | None:
        """Returns the complete curves of a job; None if they cannot be read."""
        if self._job is None or not record.latest_metrics:
            return None
        with suppress(PaiError):
            return curves_of(self._job.metrics())
        return None

    def _new_points(self, job: Reporting) -> list[MetricPoint]:
        points = [*(job.metrics(since=self._since) if self._since else job.metrics())]
        times = [seconds_of(point.timestamp) for point in points]
        finite_times = [time_s for time_s in times if time_s is not None]
        since_s = (
            max(0.0, max(finite_times) - _MAX_LATENESS_S)
            if finite_times and len(finite_times) == len(points)
            else None
        )
        counts, recent, new_points = Counter[_PointKey](), Counter[_PointKey](), []
        for point, time_s in zip(points, times, strict=True):
            key = point.name, point.instance, point.rank, point.step, point.timestamp, point.value
            counts[key] += 1
            if counts[key] > self._counts[key]:
                new_points.append(point)
            if since_s is None or (time_s or 0.0) >= since_s:
                recent[key] += 1
        self._since, self._counts = wire_time(since_s), recent  # the next read returns the recent ones again
        return new_points


def metrics_text(latest: Sequence[MetricPoint], curves: Mapping[str, MetricCurve], *, limit: int = 4) -> str:
    """Formats the last values as one line: `loss 0.25 ▄▃▁  accuracy 0.9`; empty without any."""
    parts = []
    for point in latest[:limit]:
        if point.name and point.value is not None:
            blocks = curves[point.name].blocks() if point.name in curves else ""
            parts.append(f"{point.name} {point.value:.5g}{' ' + blocks if blocks else ''}")
    return "  ".join(parts)
