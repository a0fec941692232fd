"""Columns that grow: what was read of one tag in one file, and the summary of a tag."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pai_sdk.run.events.series import Integers, Point, Series, TagSummary

__all__ = ["GrowingSeries", "GrowingSummary", "SeriesFacts", "facts_of"]

_GROWTH = 1.5
_LEAST_ROOM = 16
_FEW = 8  # points that Python counts faster than numpy
_MOST_STACKED = 4096  # points of a series; one with more is looked at where it is


class SeriesFacts(NamedTuple):
    """The facts about the points of one series that columns and summaries need.

    Attributes:
        points: how many there are; at least one.
        first_step: the least step.
        last: the point with the largest step; of several, the last one.
        is_sorted: whether the points are by step.
        least: the least finite value; infinity where there is none.
        largest: the largest one; minus infinity where there is none.
        nan_count: how many values are NaN.
        inf_count: how many values are infinite.
    """

    points: int
    first_step: int
    last: Point
    is_sorted: bool
    least: float
    largest: float
    nan_count: int
    inf_count: int


def facts_of(series: Sequence[Series]) -> list[SeriesFacts]:
    """Returns the facts about each series; of those with equally many points, in one pass.

    Example:
        >>> loss = Series("loss", np.array([10.0, 11.0]), np.array([1, 2]), np.array([0.5, np.nan]))
        >>> facts_of([loss])[0].least, facts_of([loss])[0].nan_count
        (0.5, 1)
    """
    found: dict[int, SeriesFacts] = {}
    alike: dict[tuple[int, str], list[int]] = {}
    for at, one in enumerate(series):
        count = len(one.step)
        if count <= _FEW:
            found[at] = _facts_of_few(one)
            continue
        kind = one.value.dtype.char if count <= _MOST_STACKED else str(at)
        alike.setdefault((count, kind), []).append(at)
    for places in alike.values():
        found |= zip(places, _facts_of_rows([series[at] for at in places]), strict=True)
    return [found[at] for at in range(len(series))]


def _facts_of_few(series: Series) -> SeriesFacts:
    walls, steps, values = series.wall.tolist(), series.step.tolist(), series.value.tolist()
    last = max(range(len(steps)), key=lambda at: (steps[at], at))
    finite = [value for value in values if math.isfinite(value)]
    nan_count = sum(map(math.isnan, values))
    return SeriesFacts(
        len(steps),
        min(steps),
        Point(walls[last], steps[last], values[last]),
        all(before <= after for before, after in itertools.pairwise(steps)),
        min(finite, default=math.inf),
        max(finite, default=-math.inf),
        nan_count,
        len(values) - len(finite) - nan_count,
    )


def _facts_of_rows(series: Sequence[Series]) -> Iterator[SeriesFacts]:
    """The facts about series with equally many points."""
    step: Integers
    value: npt.NDArray[Any]
    if len(series) == 1:
        step, value = series[0].step[None], series[0].value[None]
    else:
        step, value = np.stack([one.step for one in series]), np.stack([one.value for one in series])
    count = step.shape[1]
    is_sorted = (step[:, 1:] >= step[:, :-1]).all(axis=1)
    if is_sorted.all():
        first, last = step[:, 0], np.full(len(step), count - 1)
    else:
        first, last = step.min(axis=1), count - 1 - step[:, ::-1].argmax(axis=1)
    is_finite = np.isfinite(value)
    if is_finite.all():
        least, largest = value.min(axis=1), value.max(axis=1)
        nan_count = inf_count = np.zeros(len(step), np.int64)
    else:
        least = np.min(value, axis=1, initial=math.inf, where=is_finite)
        largest = np.max(value, axis=1, initial=-math.inf, where=is_finite)
        nan_count = np.isnan(value).sum(axis=1)
        inf_count = count - is_finite.sum(axis=1) - nan_count
    lasts: list[int] = last.tolist()
    points = [
        Point(float(one.wall[at]), int(one.step[at]), float(one.value[at]))
        for one, at in zip(series, lasts, strict=True)
    ]
    columns = (column.tolist() for column in (is_sorted, least, largest, nan_count, inf_count))
    for begin, point, facts in zip(first.tolist(), points, zip(*columns, strict=True), strict=True):
        yield SeriesFacts(count, begin, point, *facts)


class GrowingSeries:
    """The points of one tag in one file, in the order of the file. Memory is taken in large steps.

    Args:
        series: the first points; at least one.
        facts: about them.

    Attributes:
        first_step: the least step.
        last_step: the largest one.
    """

    def __init__(self, series: Series, facts: SeriesFacts) -> None:
        self._columns: list[npt.NDArray[Any]] = [series.wall, series.step, series.value]
        self._count = len(series)
        self._owns = False  # the columns are those of the chunk that was read, until they have to grow
        self._is_sorted = facts.is_sorted
        self.first_step, self.last_step = facts.first_step, facts.last.step

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return sum(column.nbytes for column in self._columns)

    def append(self, series: Series) -> None:
        """Keep points behind those that are there."""
        count = self._count + len(series)
        if series.value.dtype == np.float64 and self._columns[2].dtype != np.float64:
            self._columns[2] = self._columns[2].astype(np.float64)
        if not self._owns or count > len(self._columns[0]):
            room = max(int(count * _GROWTH), _LEAST_ROOM)
            for at, column in enumerate(self._columns):
                self._columns[at] = np.empty(room, column.dtype)
                self._columns[at][: self._count] = column[: self._count]
            self._owns = True
        for column, added in zip(self._columns, (series.wall, series.step, series.value), strict=True):
            column[self._count : count] = added
        self._count = count

    def series(self, tag: str) -> Series:
        """The points so far, by step; points of one step are in the order of the file."""
        wall, step, value = (column[: self._count] for column in self._columns)
        found = Series(tag, wall, step, value)
        return found if self._is_sorted else found[np.argsort(found.step, kind="stable")]

    def forget(self) -> None:
        """Free the columns; only the steps are known then."""
        self._columns = [column[:0].copy() for column in self._columns]
        self._count = 0
        self._owns = False

    def see(self, facts: SeriesFacts) -> None:
        """Note the steps of further points, whether they are kept or not."""
        self._is_sorted = self._is_sorted and facts.is_sorted and facts.first_step >= self.last_step
        self.first_step = min(self.first_step, facts.first_step)
        self.last_step = max(self.last_step, facts.last.step)


class GrowingSummary:
    """The summary of a tag, point by point: what `Series.summary` finds in all of them."""

    def __init__(self, tag: str, kind: str = "scalar") -> None:
        self.tag, self.kind = tag, kind
        self.count = self.nan_count = self.inf_count = self.replaced = 0
        self.first_step: int | None = None
        self.last: Point | None = None
        self.least, self.largest = math.inf, -math.inf

    def add(self, facts: SeriesFacts) -> None:
        """Add the points of a series, in any order."""
        self.count += facts.points
        self.nan_count += facts.nan_count
        self.inf_count += facts.inf_count
        self.least, self.largest = min(self.least, facts.least), max(self.largest, facts.largest)
        self.first_step = facts.first_step if self.first_step is None else min(self.first_step, facts.first_step)
        if self.last is None or facts.last.step >= self.last.step:  # of those of one step, the one read last
            self.last = facts.last

    def summary(self) -> TagSummary:
        """Returns the summary of the points so far."""
        has_finite = self.least <= self.largest
        return TagSummary(
            self.tag,
            self.kind,
            count=self.count,
            first_step=self.first_step,
            last=self.last,
            min=self.least if has_finite else None,
            max=self.largest if has_finite else None,
            nan_count=self.nan_count if self.kind == "scalar" else 0,
            inf_count=self.inf_count,
            replaced=self.replaced,
        )
