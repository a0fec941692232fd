"""Smoothed values: a mean of all earlier values, in which the weight of a value falls with its distance.

The weight falls by a factor from each value to the next one. TensorBoard's rule has one factor; the rule by
half-life takes it from the distance in x, so a missing point does not change the weight of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pai_sdk.run.events.series import Floats

__all__ = ["smoothed", "smoothed_by_x", "smoothed_together", "smoothed_together_by_x"]


def smoothed(values: npt.ArrayLike, weight: float) -> Floats:
    """Smooth by TensorBoard's rule, which does not start from zero.

    Args:
        values: in the order of their steps. NaN and infinities stay as they are and do not count.
        weight: from 0, which changes nothing, to less than 1.

    Raises:
        ValueError: the weight is not in this range.

    Example:
        >>> smoothed([1.0, float("nan"), 3.0], 0.5).round(3).tolist()
        [1.0, nan, 2.333]
    """
    return smoothed_together([np.asarray(values, np.float64)], weight)[0]


def smoothed_by_x(x: npt.ArrayLike, values: npt.ArrayLike, half_life: float) -> Floats:
    """Smooth by a half-life in units of x: a value counts half as much after this distance.

    Args:
        x: ascending, as many as there are values.
        values: NaN and infinities stay as they are and do not count.
        half_life: more than 0.

    Raises:
        ValueError: the half-life is not in this range.

    Example:
        >>> smoothed_by_x([0, 1, 11], [1.0, 3.0, 3.0], half_life=1.0).round(3).tolist()
        [1.0, 2.333, 2.999]
    """
    return smoothed_together_by_x([np.asarray(x, np.float64)], [np.asarray(values, np.float64)], half_life)[0]


def smoothed_together(series: Sequence[npt.NDArray[Any]], weight: float) -> list[Floats]:
    """Smooth several series in one pass, each by itself, as `smoothed` does."""
    if not 0 <= weight < 1:
        raise ValueError(f"smooth={weight}: the weight must be at least 0 and less than 1")
    values = _joined(series)
    is_finite = np.isfinite(values)
    if not is_finite.all():
        return _smoothed(series, values, np.where(is_finite, weight, 1.0))
    # All values count, so the sum of the weights depends on the place in the series only.
    sums = np.cumsum(weight ** np.arange(max(map(len, series), default=0)))
    return _smoothed(series, values, np.full(len(values), weight), _joined([sums[: len(one)] for one in series]))


def smoothed_together_by_x(
    x: Sequence[Floats], series: Sequence[npt.NDArray[Any]], half_life: float
) -> list[Floats]:
    """Smooth several series in one pass, each by itself, as `smoothed_by_x` does."""
    if not half_life > 0 or not math.isfinite(half_life):
        raise ValueError(f"half_life={half_life}: it must be finite and more than 0")
    distance = np.diff(_joined(x), prepend=0.0)
    return _smoothed(series, _joined(series), np.exp2(-np.maximum(distance, 0) / half_life))


def _joined(series: Sequence[npt.NDArray[Any]]) -> Floats:
    return np.concatenate([np.empty(0), *series])


def _smoothed(
    series: Sequence[npt.NDArray[Any]], values: Floats, factor: Floats, weights: Floats | None = None
) -> list[Floats]:
    """Smooth each series.

    Args:
        series: the series, whose lengths are needed.
        values: all of them, one behind the other.
        factor: by how much the weight of the earlier values falls before each value.
        weights: the sum of all weights for each value, where it is known; then all values are finite.
    """
    sizes = np.array([len(one) for one in series], np.int64)
    ends = np.cumsum(sizes)
    factor[(ends - sizes)[sizes > 0]] = 0.0  # a series begins: nothing is left of the one before
    # Distances from a value of the series: so a constant one stays exactly as it is.
    origin = np.repeat([_first_finite(one) for one in series], sizes)
    with np.errstate(invalid="ignore"):
        distance = values - origin
        if weights is not None:
            (sums,) = _decayed_sums(factor, distance[None])
            smooth = sums / weights + origin
        else:
            is_finite = np.isfinite(values)
            rows = np.stack([np.where(is_finite, distance, 0.0), is_finite])
            sums, weights = _decayed_sums(factor, rows)
            smooth = np.where(is_finite, sums / np.where(is_finite, weights, 1.0) + origin, values)
    return np.split(smooth, ends[:-1]) if series else []


def _first_finite(values: npt.NDArray[Any]) -> float:
    if len(values) and math.isfinite(values[0]):
        return float(values[0])
    finite = values[np.isfinite(values)]
    return float(finite[0]) if len(finite) else 0.0


def _decayed_sums(factor: Floats, values: Floats) -> Floats:
    """`sums[i] = factor[i] * sums[i - 1] + values[i]`, for each row of `values`.

    The values are cut into as many parts as a part has values. The parts are summed side by side; then each gets
    what is left of the parts before it.
    """
    rows, count = values.shape
    side = max(math.isqrt(max(count - 1, 0)) + 1, 1)
    left = np.zeros(side * side)
    left[:count] = factor
    left = np.ascontiguousarray(left.reshape(side, side).T)  # [place in the part, part]
    sums = np.zeros((rows, side * side))
    sums[:, :count] = values
    sums = np.ascontiguousarray(sums.reshape(rows, side, side).transpose(2, 0, 1))  # [place, row, part]
    for place in range(1, side):
        sums[place] += left[place] * sums[place - 1]
        left[place] *= left[place - 1]
    before = np.zeros((rows, side))
    for part in range(1, side):
        before[:, part] = sums[-1, :, part - 1] + left[-1, part - 1] * before[:, part - 1]
    sums += left[:, None, :] * before
    return np.ascontiguousarray(sums.transpose(1, 2, 0)).reshape(rows, side * side)[:, :count]
