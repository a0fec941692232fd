"""The points of a tag as columns: parts of them, and fewer of them with the extremes kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pai_sdk._data.run.events.series import Point, Series, empty_series, is_tensor_kind
from tests.support.messages import refused

values = arrays.arrays(np.float64, st.integers(0, 300), elements=st.floats(width=64))


def series(value: object, tag: str = "loss") -> Series:
    column = np.asarray(value, np.float64)
    return Series(tag, np.arange(len(column)) + 0.5, np.arange(len(column)) * 10, column)


def test_parts_of_a_series() -> None:
    given_series = series([1, 2, 3, 4])
    assert given_series.last() == Point(3.5, 30, 4.0)
    assert given_series.after(10).step.tolist() == [20, 30]
    assert given_series.between(10, 20).value.tolist() == [2, 3]
    assert given_series.between(end=1.5, x="wall").value.tolist() == [1, 2]
    assert given_series[1:].wall.tolist() == [1.5, 2.5, 3.5]
    assert given_series.to_pandas().to_dict("list") == {
        "wall": [0.5, 1.5, 2.5, 3.5],
        "step": [0, 10, 20, 30],
        "value": [1, 2, 3, 4],
    }


def test_a_series_without_points() -> None:
    nothing = empty_series("loss")
    assert (len(nothing), nothing.last(), len(nothing.downsample(4)), nothing.summary().count) == (0, None, 0, 0)
    assert nothing.summary().min is None


def test_a_summary_counts_what_is_not_finite() -> None:
    summary = series([math.nan, 3, math.inf, 1, -math.inf]).summary()
    assert (summary.count, summary.min, summary.max, summary.nan_count, summary.inf_count) == (5, 1, 3, 1, 2)
    assert summary.first_step == 0
    assert summary.last == Point(4.5, 40, -math.inf)


@given(values, st.integers(4, 40))
def test_fewer_points_keep_the_first_the_last_and_the_extremes(column: np.ndarray, points: int) -> None:
    whole = series(column)
    few = whole.downsample(points)
    assert len(few) <= max(points, 4)
    assert (np.diff(few.step) > 0).all()
    assert np.array_equal(few.value, column[few.step // 10], equal_nan=True)
    if len(column):
        assert (few.step[0], few.step[-1]) == (0, whole.step[-1])
        assert np.array_equal(np.fmin.reduce(few.value), np.fmin.reduce(column), equal_nan=True)
        assert np.array_equal(np.fmax.reduce(few.value), np.fmax.reduce(column), equal_nan=True)


def test_too_few_points_are_refused() -> None:
    with refused(ValueError):
        series([1]).downsample(3)


@pytest.mark.parametrize(("kind", "expected"), [("pr_curves", True), ("image", False)])
def test_unknown_plugins_have_tensors(kind: str, expected: bool) -> None:
    assert is_tensor_kind(kind) is expected
