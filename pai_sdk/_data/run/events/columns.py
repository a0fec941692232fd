"""Growing columns: the points of one tag in one file, and the summary of a tag."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.series import Integers, Point, Series, TagSummary

_GROWTH = 1.5
_MIN_CAPACITY = 16
_FEW = 8  # points that Python counts faster than numpy
_MAX_STACKED = 4096  # points; larger series are not copied into a matrix


class SeriesStats(NamedTuple):
    """The statistics of the points of one series that columns and summaries need."""

    points: int  # their number, at least one
    first_step: int
    last: Point  # the point with the largest step; of several, the last one
    is_sorted: bool
    min_value: float  # the smallest finite value; infinity where there is none
    max_value: float  # the largest finite value; minus infinity where there is none
    nan_count: int
    inf_count: int


def series_stats(batch: Sequence[Series]) -> list[SeriesStats]:
    """Returns the statistics of each series; series with equally many points are computed in one pass."""
    stats: dict[int, SeriesStats] = {}
    alike: dict[tuple[int, str], list[int]] = {}
    for at, series in enumerate(batch):
        count = len(series.step)
        if count <= _FEW:
            stats[at] = _small_stats(series)
            continue
        kind = series.value.dtype.char if count <= _MAX_STACKED else str(at)
        alike.setdefault((count, kind), []).append(at)
    for indices in alike.values():
        stats |= zip(indices, _stacked_stats([batch[at] for at in indices]), strict=True)
    return [stats[at] for at in range(len(batch))]


def _small_stats(series: Series) -> SeriesStats:
    walls, steps, values = series.wall.tolist(), series.step.tolist(), series.value.tolist()
    last = max(range(len(steps)), key=lambda at: (steps[at], at))
    finite = [value for value in values if math.isfinite(value)]
    nan_count = sum(map(math.isnan, values))
    return SeriesStats(
        len(steps),
        min(steps),
        Point(walls[last], steps[last], values[last]),
        all(before <= after for before, after in itertools.pairwise(steps)),
        min(finite, default=math.inf),
        max(finite, default=-math.inf),
        nan_count,
        len(values) - len(finite) - nan_count,
    )


def _stacked_stats(batch: Sequence[Series]) -> Iterator[SeriesStats]:
    """Yields the statistics of series with equally many points."""
    step: Integers
    value: npt.NDArray[Any]
    if len(batch) == 1:
        step, value = batch[0].step[None], batch[0].value[None]
    else:
        step, value = np.stack([series.step for series in batch]), np.stack([series.value for series in batch])
    count = step.shape[1]
    is_sorted = (step[:, 1:] >= step[:, :-1]).all(axis=1)
    if is_sorted.all():
        first, last = step[:, 0], np.full(len(step), count - 1)
    else:
        first, last = step.min(axis=1), count - 1 - step[:, ::-1].argmax(axis=1)
    is_finite = np.isfinite(value)
    if is_finite.all():
        min_value, max_value = value.min(axis=1), value.max(axis=1)
        nan_count = inf_count = np.zeros(len(step), np.int64)
    else:
        min_value = np.min(value, axis=1, initial=math.inf, where=is_finite)
        max_value = np.max(value, axis=1, initial=-math.inf, where=is_finite)
        nan_count = np.isnan(value).sum(axis=1)
        inf_count = count - is_finite.sum(axis=1) - nan_count
    lasts: list[int] = last.tolist()
    points = [
        Point(float(series.wall[at]), int(series.step[at]), float(series.value[at]))
        for series, at in zip(batch, lasts, strict=True)
    ]
    columns = (column.tolist() for column in (is_sorted, min_value, max_value, nan_count, inf_count))
    for first_step, point, stats in zip(first.tolist(), points, zip(*columns, strict=True), strict=True):
        yield SeriesStats(count, first_step, point, *stats)


class GrowingSeries:
    """The points of one tag in one file, in the order of the file. Memory is allocated in large steps."""

    def __init__(self, series: Series, stats: SeriesStats) -> None:
        self._columns: list[npt.NDArray[Any]] = [series.wall, series.step, series.value]
        self._count = len(series)
        self._owns = False  # the columns are shared with the chunk that was read, until they have to grow
        self._is_sorted = stats.is_sorted
        self.first_step, self.last_step = stats.first_step, stats.last.step  # the range; `forget` keeps it

    @property
    def nbytes(self) -> int:
        """Returns the memory of the columns, in bytes."""
        return sum(column.nbytes for column in self._columns)

    def append(self, series: Series) -> None:
        """Appends points."""
        count = self._count + len(series)
        if series.value.dtype == np.float64 and self._columns[2].dtype != np.float64:
            self._columns[2] = self._columns[2].astype(np.float64)
        if not self._owns or count > len(self._columns[0]):
            room = max(int(count * _GROWTH), _MIN_CAPACITY)
            for at, column in enumerate(self._columns):
                self._columns[at] = np.empty(room, column.dtype)
                self._columns[at][: self._count] = column[: self._count]
            self._owns = True
        for column, added in zip(self._columns, (series.wall, series.step, series.value), strict=True):
            column[self._count : count] = added
        self._count = count

    def series(self, tag: str) -> Series:
        """Returns the points so far, sorted by step; points of one step are in the order of the file."""
        wall, step, value = (column[: self._count] for column in self._columns)
        series = Series(tag, wall, step, value)
        return series if self._is_sorted else series[np.argsort(series.step, kind="stable")]

    def forget(self) -> None:
        """Frees the columns; only the range of steps remains."""
        self._columns = [column[:0].copy() for column in self._columns]
        self._count = 0
        self._owns = False

    def record_steps(self, stats: SeriesStats) -> None:
        """Records the steps of further points, whether these are stored or not."""
        self._is_sorted = self._is_sorted and stats.is_sorted and stats.first_step >= self.last_step
        self.first_step = min(self.first_step, stats.first_step)
        self.last_step = max(self.last_step, stats.last.step)


class GrowingSummary:
    """Computes the summary of a tag point by point, equal to `Series.summary` of all points."""

    def __init__(self, tag: str, kind: str = "scalar") -> None:
        self.tag, self.kind = tag, kind
        self.count = self.nan_count = self.inf_count = self.replaced = 0
        self.first_step: int | None = None
        self.last: Point | None = None
        self.min_value, self.max_value = math.inf, -math.inf

    def add(self, stats: SeriesStats) -> None:
        """Adds the points of a series, in any order."""
        self.count += stats.points
        self.nan_count += stats.nan_count
        self.inf_count += stats.inf_count
        self.min_value, self.max_value = min(self.min_value, stats.min_value), max(self.max_value, stats.max_value)
        self.first_step = stats.first_step if self.first_step is None else min(self.first_step, stats.first_step)
        if self.last is None or stats.last.step >= self.last.step:  # of points with one step, the one read last
            self.last = stats.last

    def summary(self) -> TagSummary:
        """Returns the summary of the points so far."""
        has_finite = self.min_value <= self.max_value
        return TagSummary(
            self.tag,
            self.kind,
            count=self.count,
            first_step=self.first_step,
            last=self.last,
            min=self.min_value if has_finite else None,
            max=self.max_value if has_finite else None,
            nan_count=self.nan_count if self.kind == "scalar" else 0,
            inf_count=self.inf_count,
            replaced=self.replaced,
        )
