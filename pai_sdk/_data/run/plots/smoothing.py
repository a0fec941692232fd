"""Smooths values: a mean of all earlier values, in which the weight of a value decreases with its distance.

The weight decreases by a factor from each value to the next one. TensorBoard's rule has one factor; the rule by
half-life computes it from the distance in x, so a missing point does not change other weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.series import Floats


def smoothed(values: npt.ArrayLike, weight: float) -> Floats:
    """Smooths by TensorBoard's rule, with a weight from 0 to less than 1."""
    # The rule does not start from zero: the first value is returned unchanged.
    return smoothed_together([np.asarray(values, np.float64)], weight)[0]


def smoothed_together(series: Sequence[npt.NDArray[Any]], weight: float) -> list[Floats]:
    """Smooths several series in one pass, each by itself; an array has one series, or one a row."""
    if not 0 <= weight < 1:
        raise ValueError(f"smooth={weight}: the weight must be at least 0 and less than 1")
    values, sizes = _joined(series), _sizes(series)
    is_finite = np.isfinite(values)
    if not is_finite.all():
        return _smoothed(series, values, np.where(is_finite, weight, 1.0))
    # All values count, so the sum of the weights depends on the position in the series only.
    sums = np.cumsum(weight ** np.arange(max(sizes, default=0)))
    return _smoothed(series, values, np.full(len(values), weight), _joined([sums[:size] for size in sizes]))


def smoothed_together_by_x(
    x: Sequence[Floats], series: Sequence[npt.NDArray[Any]], half_life: float
) -> list[Floats]:
    """Smooths several series in one pass; after `half_life` in units of x, which ascends, a value counts half.

    Each series is smoothed by itself; the rows of an array share its x.
    """
    if not half_life > 0 or not math.isfinite(half_life):
        raise ValueError(f"half_life={half_life}: it must be finite and more than 0")
    columns = [np.broadcast_to(column, rows.shape) for column, rows in zip(x, series, strict=True)]
    distance = np.diff(_joined(columns), prepend=0.0)
    return _smoothed(series, _joined(series), np.exp2(-np.maximum(distance, 0) / half_life))


def _joined(series: Sequence[npt.NDArray[Any]]) -> Floats:
    return np.concatenate([np.empty(0), *(array.reshape(-1) for array in series)])


def _sizes(series: Sequence[npt.NDArray[Any]]) -> list[int]:
    """Returns the number of values of each series."""
    return [array.shape[-1] for array in series for _ in range(1 if array.ndim == 1 else len(array))]


def _smoothed(
    series: Sequence[npt.NDArray[Any]], values: Floats, factor: Floats, weights: Floats | None = None
) -> list[Floats]:
    """Smooths each series; NaN and infinities are returned unchanged, and do not count.

    `values` has all series, concatenated, and is changed. `factor` is that by which the weight of earlier values
    decreases before each value. `weights` is the sum of all weights for each value, where it is known; then all
    values are finite.
    """
    sizes = np.array(_sizes(series), np.int64)
    starts = np.cumsum(sizes) - sizes
    factor[starts[sizes > 0]] = 0.0  # a series starts: no weight of the previous one remains
    # Smoothed are the differences from the first value, so that a constant series is returned exactly.
    firsts = [_first_finite(values[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    origin = np.repeat(firsts, sizes)
    length = _part_length(sizes)
    with np.errstate(invalid="ignore", over="ignore"):
        if weights is not None:  # in place, since each array can have millions of values
            values -= origin
            (smooth,) = _decayed_sums(factor, values[None], length)
            smooth /= weights
            smooth += origin
        else:
            is_finite = np.isfinite(values)
            rows = np.stack([np.where(is_finite, values - origin, 0.0), is_finite])
            sums, weights = _decayed_sums(factor, rows, length)
            smooth = np.where(is_finite, sums / np.where(is_finite, weights, 1.0) + origin, values)
    ends = np.cumsum([array.size for array in series])
    parts = np.split(smooth, ends[:-1]) if series else []
    return [part.reshape(array.shape) for part, array in zip(parts, series, strict=True)]


def _first_finite(values: npt.NDArray[Any]) -> float:
    if len(values) and math.isfinite(values[0]):
        return float(values[0])
    finite = values[np.isfinite(values)]
    return float(finite[0]) if len(finite) else 0.0


def _part_length(sizes: npt.NDArray[np.int64]) -> int:
    """Returns the length of the parts that are summed in parallel: that of the series if many have one length."""
    count = int(sizes.sum())
    length = int(sizes.max(initial=0))
    if length and (sizes == length).all() and length <= 2 * math.isqrt(count):
        return length
    return math.isqrt(max(count - 1, 0)) + 1


def _decayed_sums(factor: Floats, values: Floats, length: int) -> Floats:
    """Returns `sums[i] = factor[i] * sums[i - 1] + values[i]`, for each row of `values`."""
    # The values are split into parts of one length, which numpy sums in parallel. Then the decayed sum of the
    # previous parts is added to each part, unless each part starts with a series.
    rows, count = values.shape
    parts = max(-(-count // length), 1)
    decay = _side_by_side(factor[None], parts, length)[:, 0]  # [position in the part, part]
    sums = _side_by_side(values, parts, length)  # [position, row, part]
    has_carry = bool(decay[0].any())
    for position in range(1, length):
        sums[position] += decay[position] * sums[position - 1]
        if has_carry:
            decay[position] *= decay[position - 1]
    if has_carry:
        before = np.zeros((rows, parts))
        for part in range(1, parts):
            before[:, part] = sums[-1, :, part - 1] + decay[-1, part - 1] * before[:, part - 1]
        sums += decay[:, None, :] * before
    return np.ascontiguousarray(sums.transpose(1, 2, 0)).reshape(rows, parts * length)[:, :count]


def _side_by_side(values: Floats, parts: int, length: int) -> Floats:
    """Returns rows of values, split into parts, as a copy with the axes [position in the part, row, part]."""
    rows, count = values.shape
    if count < parts * length:
        values = np.concatenate([values, np.zeros((rows, parts * length - count))], axis=1)
    stacked: Floats = values.reshape(rows, parts, length).transpose(2, 0, 1).copy()
    return stacked
