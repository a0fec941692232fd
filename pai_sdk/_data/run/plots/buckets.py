"""Curves of many runs on shared buckets of x: with exact extremes, smoothed, and in groups.

Needs numpy, from the extras `watch` and `service`. The functions are pure: columns in, columns out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import get_args

import numpy as np

from pai_sdk._core.names.hints import wrong_value
from pai_sdk._data.run.events.series import Floats, Integers, Series, Values
from pai_sdk._data.run.plots.bucketing import (
    MAX_BUCKETS,
    Buckets,
    SharedX,
    bucket_edges,
    bucket_means,
    bucketed_rows,
)
from pai_sdk._data.run.plots.curve_view import Band, CurveView, XAxis
from pai_sdk._data.run.plots.drawing import Curve
from pai_sdk._data.run.plots.figures import Comparison
from pai_sdk._data.run.plots.smoothing import smoothed_together, smoothed_together_by_x
from pai_sdk.errors import InvalidInputError

_DEFAULT_VIEW = CurveView()
_LARGEST_X = 1e300
_RAW_POINTS_PER_BUCKET = 2


def compared(
    series: Sequence[Series],
    view: CurveView = _DEFAULT_VIEW,
    *,
    names: Sequence[str] = (),  # of the curves; the tags of the series by default
    # The group of each series. A group becomes one curve, in buckets: the mean of the means of its members in each
    # bucket, or the median with the band `quantile`.
    groups: Sequence[str] = (),
    band: Band | None = None,  # of a group; `range` has the exact extremes of all points
) -> Comparison:
    """Returns curves of many series over one x axis.

    A view with at most two points a bucket has all its points. Otherwise each curve has, for each bucket, the
    smallest, the largest and the last value, so no extreme is lost. Smoothing runs first, over all points of a
    series, also those outside of the view. An InvalidInputError has all problems of the arguments.
    """
    _check(len(series), view, names, groups, band)
    shared = _shared(series, view.x)
    if view.half_life is not None or view.smooth:
        shared = _smoothed(shared, view)
    edges = _view_edges([some.x for some in shared if len(some.x)], view)
    shared = [_viewed(some, view) for some in shared]
    points = sum(some.rows.size for some in shared)
    names = list(names) or [item.tag for item in series]
    tags = tuple(dict.fromkeys(item.tag for item in series))
    if not groups and all(len(some.x) <= _RAW_POINTS_PER_BUCKET * view.buckets for some in shared):
        lines = [(some.x, row) for some in shared for row in some.rows]
        raw = tuple(_raw(name, *line, at) for at, (name, line) in enumerate(zip(names, lines, strict=True)))
        return Comparison(view.x, edges, raw, points, points, True, tags)
    binned, middle = bucketed_rows(shared, edges), (edges[:-1] + edges[1:]) / 2
    if groups:
        members: dict[str, list[int]] = {}
        for at, group in enumerate(groups):
            members.setdefault(group, []).append(at)
        means = bucket_means(shared, edges)
        curves = [_group_curve(name, at, binned, means[at], middle, band) for name, at in members.items()]
        entries = sum(int(np.count_nonzero(curve.count)) for curve in curves)
    else:
        curves, entries = _curves(names, binned, middle), int(np.count_nonzero(binned.count))
    return Comparison(view.x, edges, tuple(curves), points, entries, False, tags)


def _check(count: int, view: CurveView, names: Sequence[str], groups: Sequence[str], band: Band | None) -> None:
    x, buckets, smooth, half_life = view.x, view.buckets, view.smooth, view.half_life
    checks = [
        (x in get_args(XAxis), "x", x, f"one of {', '.join(get_args(XAxis))}, or metric:TAG"),
        (2 <= buckets <= MAX_BUCKETS, "buckets", buckets, f"an integer from 2 to {MAX_BUCKETS:,}"),
        (0 <= smooth < 1, "smooth", smooth, "a number from 0 to less than 1"),
        (half_life is None or 0 < half_life < math.inf, "half_life", half_life, "a number above 0"),
        (not names or len(names) == count, "names", len(names), f"{count} names for {count} series"),
        (not groups or len(groups) == count, "groups", len(groups), f"{count} groups for {count} series"),
        (band is None or band in get_args(Band), "band", band, f"one of {', '.join(get_args(Band))}"),
        (band is None or bool(groups), "band", band, "None without groups"),
    ]
    problems = [wrong_value(where, value, expected) for is_right, where, value, expected in checks if not is_right]
    if problems:
        raise InvalidInputError(problems)


def _shared(series: Sequence[Series], x: str) -> list[SharedX]:
    """Returns the series, successive ones with equal x together."""
    groups, at = [], 0
    columns = [item.step if x in ("step", "relative_step") else item.wall for item in series]
    while at < len(series):
        content, end = columns[at].tobytes(), at + 1
        while end < len(series) and columns[end].nbytes == len(content) and columns[end].tobytes() == content:
            end += 1
        column: Floats | Integers = columns[at]
        rows: Values = np.stack([item.value for item in series[at:end]])  # type: ignore[assignment]
        if x in ("wall", "relative_time") and not (is_time := np.isfinite(column)).all():
            column, rows = column[is_time], rows[:, is_time]  # files of other programs can have any time
        column = _from_first(column) if x.startswith("relative") and len(column) else column.astype(np.float64)
        if x in ("wall", "relative_time") and (np.diff(column) < 0).any():
            order = np.argsort(column, kind="stable")  # a restart writes earlier steps at later times
            column, rows = column[order], rows[:, order]
        groups.append(SharedX(column, rows))
        at = end
    return groups


def _from_first(x: Floats | Integers) -> Floats:
    """Returns the differences from the first x, clipped so that they are finite."""
    if x.dtype.kind == "i" and int(x[-1]) - int(x[0]) < 2**63:
        exact: Floats = (x - x[0]).astype(np.float64)  # exact, which differences of floats may not be
        return exact
    bounded: Floats = np.clip(x.astype(np.float64), -_LARGEST_X, _LARGEST_X)
    differences: Floats = bounded - bounded[0]
    return differences


def _smoothed(shared: Sequence[SharedX], view: CurveView) -> list[SharedX]:
    values = [some.rows for some in shared]
    if view.half_life is None:
        smooth_rows = smoothed_together(values, view.smooth)
    else:
        smooth_rows = smoothed_together_by_x([some.x for some in shared], values, view.half_life)
    return [SharedX(some.x, rows) for some, rows in zip(shared, smooth_rows, strict=True)]


def _viewed(some: SharedX, view: CurveView) -> SharedX:
    if view.start is None and view.end is None:
        return some
    first = 0 if view.start is None else int(np.searchsorted(some.x, view.start, side="left"))
    stop = len(some.x) if view.end is None else int(np.searchsorted(some.x, view.end, side="right"))
    visible = slice(first, max(first, stop))
    return SharedX(some.x[visible], some.rows[:, visible])


def _view_edges(columns: Sequence[Floats], view: CurveView) -> Floats:
    start, end = view.start, view.end
    if start is None:
        start = min((float(column[0]) for column in columns), default=0.0)
    if end is None:
        end = max((float(column[-1]) for column in columns), default=start)
    return bucket_edges(start, end, view.buckets)


def _raw(name: str, x: Floats, value: Values, at: int) -> Curve:
    value = value.astype(np.float64, copy=False)
    nan_count, inf_count = np.isnan(value).astype(np.int64), np.isinf(value).astype(np.int64)
    return Curve(name, (at,), x, value, None, None, np.ones(len(value), np.int64), nan_count, inf_count)


def _curves(names: Sequence[str], binned: Buckets, middle: Floats) -> list[Curve]:
    columns = (binned.last, binned.min, binned.max, binned.count, binned.nan_count, binned.inf_count)
    return [
        Curve(name, (at,), middle, *row)
        for at, (name, row) in enumerate(zip(names, zip(*columns, strict=True), strict=True))
    ]


def _group_curve(
    name: str, at: list[int], binned: Buckets, means: Floats, middle: Floats, band: Band | None
) -> Curve:
    low = high = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # buckets in which no member has a value
        line = np.nanmedian(means, axis=0) if band == "quantile" else np.nanmean(means, axis=0)
        if band == "std":
            deviation = np.nanstd(means, axis=0)
            low, high = line - deviation, line + deviation
        elif band == "quantile":
            low, high = np.nanquantile(means, (0.25, 0.75), axis=0)
    if band == "range":
        low, high = np.fmin.reduce(binned.min[at]), np.fmax.reduce(binned.max[at])
    counts = [column[at].sum(axis=0) for column in (binned.count, binned.nan_count, binned.inf_count)]
    return Curve(name, tuple(at), middle, line, low, high, *counts)
