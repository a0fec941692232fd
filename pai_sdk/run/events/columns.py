"""Columns that grow: what was read of one tag in one file, and the summary of a tag."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pai_sdk.run.events.series import Point, Series, TagSummary

__all__ = ["GrowingSeries", "GrowingSummary"]

_GROWTH = 1.5
_LEAST_ROOM = 16
_FEW = 8  # points that Python counts faster than numpy


class GrowingSeries:
    """The points of one tag in one file, in the order of the file. Memory is taken in large steps.

    Args:
        series: the first points; at least one.

    Attributes:
        first_step: the least step.
        last_step: the largest one.
    """

    def __init__(self, series: Series) -> None:
        self._columns: list[npt.NDArray[Any]] = [series.wall, series.step, series.value]
        self._count = len(series)
        self._owns = False  # the columns are those of the chunk that was read, until they have to grow
        self._is_sorted = True
        self.first_step = self.last_step = int(series.step[0])
        self.see(series)

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

    def see(self, series: Series) -> None:
        """Note the steps of points, whether they are kept or not."""
        step = series.step
        is_sorted = len(step) == 1 or not bool((step[1:] < step[:-1]).any())
        first, last = (step[0], step[-1]) if is_sorted else (step.min(), step.max())
        self._is_sorted = self._is_sorted and is_sorted and int(first) >= self.last_step
        self.first_step, self.last_step = min(self.first_step, int(first)), max(self.last_step, int(last))


class GrowingSummary:
    """The summary of a tag, point by point: what `Series.summary` finds in all of them."""

    def __init__(self, tag: str, kind: str = "scalar") -> None:
        self.tag, self.kind = tag, kind
        self.count = self.nan_count = self.inf_count = 0
        self.first_step: int | None = None
        self.last: Point | None = None
        self.least, self.largest = math.inf, -math.inf

    def add(self, series: Series) -> None:
        """Add points, in any order."""
        if not len(series):
            return
        if len(series) <= _FEW:
            for point in zip(series.wall.tolist(), series.step.tolist(), series.value.tolist(), strict=True):
                self._add_point(Point(*point))
            return
        # Of the points with the largest step, the last one in the file counts.
        last = len(series) - 1 - int(series.step[::-1].argmax())
        point = Point(float(series.wall[last]), int(series.step[last]), float(series.value[last]))
        self._see(int(series.step.min()), point)
        self.count += len(series)
        finite, is_finite = series.value, np.isfinite(series.value)
        if not is_finite.all():
            finite = series.value[is_finite]
            nan_count = int(np.isnan(series.value).sum())
            self.nan_count += nan_count
            self.inf_count += len(series) - len(finite) - nan_count
        if len(finite):
            self.least, self.largest = min(self.least, float(finite.min())), max(self.largest, float(finite.max()))

    def _add_point(self, point: Point) -> None:
        self._see(point.step, point)
        self.count += 1
        value = point.value
        if math.isfinite(value):
            self.least, self.largest = min(self.least, value), max(self.largest, value)
        elif math.isnan(value):
            self.nan_count += 1
        else:
            self.inf_count += 1

    def _see(self, first_step: int, last: Point) -> None:
        self.first_step = first_step if self.first_step is None else min(self.first_step, first_step)
        if self.last is None or last.step >= self.last.step:
            self.last = last

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
        )
