"""Buckets of x on an absolute grid, and the exact extremes, counts and means of a series in each bucket.

Needs numpy, from the extras `watch` and `service`. The functions are pure: columns in, columns out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.series import Floats, Integers, Values

MAX_BUCKETS = 100_000
_MIN_WIDTH = 1e-290
# Points of a bucket. Up to so many, one pass for the n-th point of all buckets is faster than `reduceat`.
_FEW_POINTS = 16


@dataclass(frozen=True, eq=False)
class Buckets:
    """The values of one series in each bucket. All columns have one entry for each bucket."""

    min: Floats  # the smallest finite value; NaN where there is none
    max: Floats
    last: Floats  # the value with the largest x, finite or not; NaN where the bucket is empty
    count: Integers  # the number of values, finite or not
    nan_count: Integers
    inf_count: Integers


@dataclass(frozen=True, eq=False)
class SharedX:
    """Several series that have the same x."""

    x: Floats  # ascending
    rows: Values  # the values, a row for each series


def bucket_edges(x_min: float, x_max: float, buckets: int = 250) -> Floats:
    """Returns the edges of at most `buckets` buckets, which contain all x from `x_min` to `x_max`."""
    if not 2 <= buckets <= MAX_BUCKETS:
        raise ValueError(f"buckets={buckets}: from 2 to {MAX_BUCKETS:,} are possible")
    if not (math.isfinite(x_min) and math.isfinite(x_max)):
        raise ValueError(f"x from {x_min} to {x_max}: both must be finite")
    x_max = max(x_min, x_max)
    # Neighbouring edges must differ as float64, so the width is at least a few units in the last place.
    min_width = max(x_max / buckets - x_min / buckets, 4 * math.ulp(max(abs(x_min), abs(x_max))), _MIN_WIDTH)
    power = math.floor(math.log10(min_width)) if x_min < x_max else 0
    # The width is 1, 2 or 5 times a power of ten, and each edge a multiple of it: a view that moves keeps its
    # edges.
    while True:
        for digit in (1, 2, 5):
            edges = _edges(x_min, x_max, digit, power, buckets)
            if edges is not None:
                return edges
        power += 1


def _edges(x_min: float, x_max: float, digit: int, power: int, buckets: int) -> Floats | None:
    """Returns the edges for a width of `digit` times ten to the `power`; None where they are too many."""
    first = math.floor(_divided(x_min, digit, power))
    last = math.floor(_divided(x_max, digit, power))
    if last - first >= buckets + 1:
        return None
    number = np.arange(first - 1, last + 3, dtype=np.float64) * digit
    edges = number / 10.0**-power if power < 0 else number * 10.0**power
    # Rounding can put x into a neighbour of the bucket that the division gives, so one edge more is computed.
    start = int(np.searchsorted(edges, x_min, side="right")) - 1
    end = int(np.searchsorted(edges, x_max, side="right"))
    if end - start > buckets or (np.diff(edges[start : end + 1]) <= 0).any():
        return None
    return edges[start : end + 1]


def _divided(x: float, digit: int, power: int) -> float:
    return x * 10.0**-power / digit if power < 0 else x / 10.0**power / digit


class _Ranges:
    """The ranges of the points of each bucket that has points."""

    # `reduceat` returns the element itself for an empty range, so empty buckets are left out. No point lies
    # between two filled buckets, so each range ends at the start of the next one.

    def __init__(self, x: npt.NDArray[np.number], edges: Floats) -> None:
        indices = np.searchsorted(x, edges)
        self.count: Integers = indices[1:] - indices[:-1]
        self.filled = np.flatnonzero(self.count)
        self.starts, self.end = indices[self.filled], int(indices[-1])
        self.lasts = indices[self.filled + 1] - 1

    def spread(self, values: npt.NDArray[Any], missing: float) -> npt.NDArray[Any]:
        """Returns a column for all buckets: `values` for those with points, `missing` for empty ones."""
        if len(self.filled) == len(self.count):
            return values
        column = np.full((*values.shape[:-1], len(self.count)), missing, values.dtype)
        column[..., self.filled] = values
        return column

    def extremes(self, y: Values) -> tuple[Floats, Floats]:
        """Returns the minimum and maximum of each bucket that are not NaN; NaN where there is none."""
        max_points = int((self.lasts - self.starts).max()) + 1
        if max_points <= _FEW_POINTS and max_points * len(self.starts) <= 2 * y.shape[-1]:
            lowest = y.take(self.starts, axis=-1)
            highest = lowest.copy()
            for offset in range(1, max_points):  # a bucket with fewer points repeats its last one
                points = y.take(np.minimum(self.starts + offset, self.lasts), axis=-1)
                np.fmin(lowest, points, out=lowest)
                np.fmax(highest, points, out=highest)
        else:
            lowest = np.fmin.reduceat(y, self.starts, axis=-1)
            highest = np.fmax.reduceat(y, self.starts, axis=-1)
        return self.spread(lowest.astype(np.float64), np.nan), self.spread(highest.astype(np.float64), np.nan)


def bucketed(x: npt.NDArray[np.number], y: Values, edges: Floats) -> Buckets:
    """Returns the values of a series in each bucket; `x` and `edges` ascend.

    A bucket includes its lower edge, and not its upper one; values outside of the edges are left out. NaN and
    infinities are counted, but are not extremes. Several series with one x are rows of `y`; the columns of the
    result then have a row for each series.
    """
    ranges = _Ranges(x, edges)
    starts, within = ranges.starts, y[..., : ranges.end]
    shape = (*y.shape[:-1], len(ranges.count))
    none = np.zeros(shape, np.int64)
    if not len(starts):
        nothing = np.full(shape, np.nan)
        return Buckets(nothing, nothing, nothing, none, none, none)
    count = ranges.count + none
    last = ranges.spread(within.take(ranges.lasts, axis=-1).astype(np.float64, copy=False), np.nan)
    is_finite = np.isfinite(within)
    nan_count = inf_count = none
    if not is_finite[..., starts[0] :].all():
        is_nan = np.isnan(within)
        nan_count = ranges.spread(np.add.reduceat(is_nan, starts, axis=-1, dtype=np.int64), 0)
        inf_count = ranges.spread(np.add.reduceat(~is_finite & ~is_nan, starts, axis=-1, dtype=np.int64), 0)
        within = np.where(is_finite, within, within.dtype.type(np.nan))
    lowest, highest = ranges.extremes(within)
    return Buckets(lowest, highest, last, count, nan_count, inf_count)


def bucketed_rows(shared: Sequence[SharedX], edges: Floats) -> Buckets:
    """Returns the values of several series in each bucket; the columns have a row for each series."""
    parts = [bucketed(some.x, some.rows, edges) for some in shared]
    if len(parts) == 1:
        return parts[0]
    columns = ((part.min, part.max, part.last, part.count, part.nan_count, part.inf_count) for part in parts)
    return Buckets(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def bucket_means(shared: Sequence[SharedX], edges: Floats) -> Floats:
    """Returns the mean of the finite values of each series in each bucket; a row for each series."""
    return np.concatenate([_means(_Ranges(some.x, edges), some.rows) for some in shared])


def _means(ranges: _Ranges, y: Values) -> Floats:
    within = y[..., : ranges.end].astype(np.float64, copy=False)
    if not len(ranges.starts):
        return ranges.spread(np.empty((*y.shape[:-1], 0)), np.nan)
    is_finite = np.isfinite(within)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if is_finite.all():
            total = np.add.reduceat(within, ranges.starts, axis=-1)
            return ranges.spread(total / ranges.count[ranges.filled], np.nan)
        total = np.add.reduceat(np.where(is_finite, within, 0.0), ranges.starts, axis=-1)
        return ranges.spread(total / np.add.reduceat(is_finite, ranges.starts, axis=-1, dtype=np.int64), np.nan)
