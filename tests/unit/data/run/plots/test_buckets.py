"""Curves on shared buckets: extremes are those that numpy finds in the points, whatever the values are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pai_sdk._data.run.events.series import Series, empty_series
from pai_sdk._data.run.plots import buckets as curves_of_runs
from pai_sdk._data.run.plots.bucketing import SharedX, bucket_edges, bucket_means, bucketed, bucketed_rows
from pai_sdk._data.run.plots.curve_view import CurveView
from pai_sdk._data.run.plots.figures import Comparison
from pai_sdk._data.run.plots.smoothing import smoothed, smoothed_together, smoothed_together_by_x
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

numbers = st.floats(width=64) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0])
xs = st.floats(-1e9, 1e9) | st.integers(-100, 100).map(float)
limits = st.floats(-1e15, 1e15) | st.integers(-1000, 1000).map(float)


@st.composite
def points(draw: st.DrawFn, most: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Ascending x with duplicates and gaps, and any values."""
    x = np.sort(np.array(draw(st.lists(xs, max_size=most)), np.float64))
    y = draw(arrays.arrays(draw(st.sampled_from([np.float32, np.float64])), len(x), elements=numbers_of))
    return x, y


numbers_of = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf])


def series(x: object, y: object, tag: str = "loss") -> Series:
    step = np.asarray(x, np.int64)
    return Series(tag, 1000.0 + step, step, np.asarray(y, np.float64))


def compared(
    found: list[Series], *, names: object = (), groups: object = (), band: object = None, **view: object
) -> Comparison:
    return curves_of_runs.compared(found, CurveView(**view), names=names, groups=groups, band=band)


def smoothed_by_x(x: object, y: object, half_life: float) -> np.ndarray:
    return smoothed_together_by_x([np.asarray(x, np.float64)], [np.asarray(y, np.float64)], half_life)[0]


def ramp(count: int, slope: float = 1.0) -> Series:
    return series(np.arange(count), slope * np.arange(count))


# ---- edges --------------------------------------------------------------------------------------------------


@given(limits, limits, st.integers(2, 300))
def test_edges_hold_the_range_with_a_width_of_1_2_or_5(a: float, b: float, buckets: int) -> None:
    low, high = min(a, b), max(a, b)
    edges = bucket_edges(low, high, buckets)
    assert len(edges) - 1 in range(1, buckets + 1)
    assert edges[0] <= low
    assert high < edges[-1]
    assert low < edges[1]
    assert edges[-2] <= high
    assert (np.diff(edges) > 0).all()
    if low < high and high - low > 1e-6 * max(abs(low), abs(high)):
        digits = float(f"{edges[1] - edges[0]:.3e}".split("e")[0])
        assert digits in (1.0, 2.0, 5.0)


@given(st.integers(0, 10_000), st.integers(1, 10_000), st.integers(0, 5000), st.integers(10, 300))
def test_a_view_that_moves_keeps_its_edges(low: int, size: int, shift: int, buckets: int) -> None:
    first, second = bucket_edges(low, low + size, buckets), bucket_edges(low + shift, low + shift + size, buckets)
    width = first[1] - first[0]
    assume(width == second[1] - second[0])
    both = (max(first[0], second[0]), min(first[-1], second[-1]))
    inside = [edges[(edges >= both[0]) & (edges <= both[1])].tolist() for edges in (first, second)]
    assert inside[0] == inside[1]


def test_edges_that_are_impossible_are_refused() -> None:
    for arguments in ((0, 1, 1), (0, math.inf, 5), (math.nan, 1, 5), (0, 1, 10**6)):
        with pytest.raises(ValueError):
            bucket_edges(*arguments)


def test_edges_of_times_and_of_one_point() -> None:
    edges = bucket_edges(1_790_000_000.0, 1_790_000_000.001, 10)
    assert 1 < len(edges) <= 11
    assert bucket_edges(7.0, 7.0, 250).tolist() == [7.0, 8.0]


# ---- buckets ------------------------------------------------------------------------------------------------


@given(points(), st.integers(2, 20), st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_buckets_have_what_numpy_finds(
    given_points: tuple[np.ndarray, np.ndarray], buckets: int, start: float, size: float
) -> None:
    x, y = given_points
    edges = bucket_edges(start, start + size, buckets)
    found, means = bucketed(x, y, edges), bucket_means([SharedX(x, y[None])], edges)[0]
    for at in range(len(edges) - 1):
        inside = y[(x >= edges[at]) & (x < edges[at + 1])].astype(np.float64)
        finite = inside[np.isfinite(inside)]
        assert found.count[at] == len(inside)
        assert found.nan_count[at] == np.isnan(inside).sum()
        assert found.inf_count[at] == np.isinf(inside).sum()
        expected = (finite.min(), finite.max()) if len(finite) else (math.nan, math.nan)
        assert np.array_equal((found.min[at], found.max[at]), expected, equal_nan=True)
        assert np.array_equal(found.last[at], inside[-1] if len(inside) else math.nan, equal_nan=True)
        assert np.isclose(means[at], finite.mean() if len(finite) else math.nan, equal_nan=True, rtol=1e-6)


@given(st.lists(points(most=200), min_size=1, max_size=4), st.integers(2, 30))
def test_the_largest_drawn_value_is_the_largest_of_the_view(
    given_points: list[tuple[np.ndarray, np.ndarray]], buckets: int
) -> None:
    """At any number of buckets: no extreme is lost, and none is invented."""
    view = compared([series(x, y) for x, y in given_points], buckets=buckets)
    for (_, y), curve in zip(given_points, view.curves, strict=True):
        low, high = (curve.value, curve.value) if curve.low is None else (curve.low, curve.high)
        finite = y[np.isfinite(y)].astype(np.float64)
        shown_low, shown_high = low[np.isfinite(low)], high[np.isfinite(high)]
        assert len(finite) == len(shown_low) == 0 or shown_low.min() == finite.min()
        assert len(finite) == len(shown_high) == 0 or shown_high.max() == finite.max()
        assert curve.count.sum() == len(y)
        assert curve.nan_count.sum() == np.isnan(y).sum()
    assert view.points == sum(len(y) for _, y in given_points)


@given(st.lists(st.integers(0, 50), max_size=30), st.lists(st.integers(0, 2), min_size=1, max_size=8), st.data())
def test_series_with_the_same_x_are_read_together(x: list[int], which: list[int], data: st.DataObject) -> None:
    """That is only faster: each curve is what it is alone."""
    axes = [np.sort(np.array(x)), np.sort(np.array(x)) + 1, np.arange(3)]
    runs = [
        series(axes[one], data.draw(arrays.arrays(np.float64, len(axes[one]), elements=numbers_of)))
        for one in which
    ]
    together = compared(
        runs, start=0, end=60, buckets=4, groups=[str(number) for number in range(len(runs))], band="range"
    )
    for run, curve in zip(runs, together.curves, strict=True):
        (alone,) = compared([run], start=0, end=60, buckets=4, groups=["a"], band="range").curves
        for column in ("value", "low", "high", "count", "nan_count", "inf_count"):
            assert np.array_equal(getattr(curve, column), getattr(alone, column), equal_nan=True)


# ---- smoothing ----------------------------------------------------------------------------------------------


def tensorboards_rule(values: list[float], weight: float) -> list[float]:
    """What TensorBoard's page does, point by point (`resmooth` in its data_transformer)."""
    last, count, found = 0.0, 0, []
    for value in values:
        if not math.isfinite(value):
            found.append(value)
            continue
        last = last * weight + (1 - weight) * value
        count += 1
        found.append(last / (1 - weight**count) if weight else last)
    return found


not_finite = st.sampled_from([math.nan, math.inf, -math.inf])
some_numbers = st.floats(-1e6, 1e6) | not_finite


@given(st.lists(some_numbers, max_size=80), st.sampled_from([0.0, 0.1, 0.6, 0.9, 0.99, 0.999]))
def test_smoothing_is_that_of_tensorboard(values: list[float], weight: float) -> None:
    assert np.allclose(smoothed(values, weight), tensorboards_rule(values, weight), 1e-6, 1e-6, equal_nan=True)


@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.integers(0, 12)).flatmap(
            lambda shape: arrays.arrays(np.float32, shape, elements=st.floats(-1e6, 1e6, width=32) | not_finite)
        ),
        max_size=4,
    ),
    st.sampled_from([0.1, 0.9]),
    st.booleans(),
)
def test_series_are_smoothed_together_as_each_alone(some: list[np.ndarray], weight: float, finite: bool) -> None:
    """Also where they are rows of arrays, of one length or of several."""
    if finite:
        some = [np.nan_to_num(rows, nan=1.0, posinf=2.0, neginf=3.0) for rows in some]
    places = [np.cumsum(np.arange(rows.shape[1])).astype(np.float64) for rows in some]
    together = smoothed_together(some, weight)
    by_x = smoothed_together_by_x(places, some, 2.0)
    assert [rows.shape for rows in some] == [rows.shape for rows in together] == [rows.shape for rows in by_x]
    for x, rows, found, found_by_x in zip(places, some, together, by_x, strict=True):
        for row, one, one_by_x in zip(rows, found, found_by_x, strict=True):
            assert np.allclose(one, smoothed(row, weight), 1e-6, 1e-6, equal_nan=True)
            assert np.allclose(one_by_x, smoothed_by_x(x, row, 2.0), 1e-6, 1e-6, equal_nan=True)


@given(st.floats(-1e300, 1e300), st.integers(1, 50), st.floats(0, 0.999))
def test_a_constant_series_stays_as_it_is(value: float, count: int, weight: float) -> None:
    assert smoothed([value] * count, weight).tolist() == [value] * count
    assert smoothed_by_x(np.arange(count), [value] * count, 3.0).tolist() == [value] * count


@given(st.lists(st.tuples(st.floats(0, 100), some_numbers), max_size=40), st.floats(0.1, 50))
def test_smoothing_by_half_life_is_a_weighted_mean(
    given_points: list[tuple[float, float]], half_life: float
) -> None:
    given_points.sort(key=lambda point: point[0])
    x, y = np.array([p[0] for p in given_points]), np.array([p[1] for p in given_points])
    found = smoothed_by_x(x, y, half_life)
    for at in range(len(x)):
        is_finite = np.isfinite(y[: at + 1])
        weights = np.exp2(-(x[at] - x[: at + 1][is_finite]) / half_life)
        expected = np.average(y[: at + 1][is_finite], weights=weights) if np.isfinite(y[at]) else y[at]
        assert np.isclose(found[at], expected, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_a_missing_step_does_not_change_the_weight_of_others() -> None:
    x, y = np.arange(6.0), np.array([0, 0, 0, 0, 0, 1.0])
    without = np.array([0, 1, 2, 5])
    assert smoothed_by_x(x[without], y[without], 1.0)[-1] > smoothed_by_x(x, y, 1.0)[-1]
    assert smoothed_by_x([0.0, 10.0, 11.0], [0, 0, 1.0], 1.0)[-1] == pytest.approx(1 / 1.5, abs=1e-3)


@pytest.mark.parametrize("weight", [-0.1, 1.0, math.nan])
def test_a_weight_out_of_range_is_refused(weight: float) -> None:
    with refused(ValueError):
        smoothed([1.0], weight)


def test_smoothing_uses_the_points_outside_of_the_view() -> None:
    """Zooming in does not change a smoothed curve."""
    run = series(np.arange(1000), np.sin(np.arange(1000)))
    whole = compared([run], smooth=0.9, buckets=500).curves[0]
    part = compared([run], smooth=0.9, buckets=500, start=500, end=520).curves[0]
    assert np.array_equal(part.value, whole.value[500:521])


# ---- comparing ----------------------------------------------------------------------------------------------


def test_few_points_are_shown_as_they_are() -> None:
    view = compared([ramp(10), ramp(20, -1)], buckets=10, names=["a", "b"])
    assert view.is_exact
    assert (view.points, view.shown) == (30, 30)
    assert [curve.name for curve in view.curves] == ["a", "b"]
    assert view.curves[1].value.tolist() == (-np.arange(20.0)).tolist()
    assert view.curves[0].low is None


def test_many_points_are_shown_in_buckets() -> None:
    view = compared([ramp(1000), ramp(500)], buckets=10)
    assert not view.is_exact
    assert view.edges.tolist() == list(range(0, 1001, 100))
    assert view.curves[0].high.tolist() == list(range(99, 1000, 100))
    assert view.curves[1].count.tolist() == [100] * 5 + [0] * 5
    assert (view.points, view.shown) == (1500, 15)
    assert view.curves[0].x.tolist() == list(range(50, 1000, 100))


def axes(view: Comparison) -> list[list[float]]:
    return [curve.x.tolist() for curve in view.curves]


def test_the_x_axis() -> None:
    early, late = series([10, 20], [0, 1]), series([100, 130], [0, 1])
    assert axes(compared([early, late])) == [[10, 20], [100, 130]]
    assert axes(compared([early, late], x="relative_step")) == [[0, 10], [0, 30]]
    assert axes(compared([early, late], x="relative_time")) == [[0, 10], [0, 30]]
    assert axes(compared([early, late], x="wall")) == [[1010, 1020], [1100, 1130]]


def test_times_that_go_back_are_sorted() -> None:
    run = Series("loss", np.array([5.0, 3.0, 4.0]), np.array([0, 1, 2]), np.array([1.0, 2.0, 3.0]))
    assert compared([run], x="wall").curves[0].value.tolist() == [2, 3, 1]


def test_groups_have_one_curve_each_with_its_band() -> None:
    runs = [series(np.arange(100), np.full(100, level)) for level in (1.0, 2.0, 6.0, 5.0)]
    groups = ["a", "a", "a", "b"]
    mean = compared(runs, groups=groups, buckets=10).curves
    assert [(curve.name, curve.members) for curve in mean] == [("a", (0, 1, 2)), ("b", (3,))]
    assert set(mean[0].value) == {3.0}
    assert mean[0].low is None
    std = compared(runs, groups=groups, buckets=10, band="std").curves[0]
    assert np.allclose(std.high - std.value, np.std([1, 2, 6]))
    least_to_largest = compared(runs, groups=groups, buckets=10, band="range").curves[0]
    assert (set(least_to_largest.low), set(least_to_largest.high)) == ({1.0}, {6.0})
    middle = compared(runs, groups=groups, buckets=10, band="quantile").curves[0]
    assert (set(middle.low), set(middle.value), set(middle.high)) == ({1.5}, {2.0}, {4.0})


def test_a_bucket_without_values_stays_empty_in_a_group() -> None:
    runs = [series([0, 99], [1.0, math.nan]), series([0], [3.0])]
    curve = compared(runs, groups=["a", "a"], buckets=10, band="range").curves[0]
    assert curve.value[0] == 2.0
    assert np.isnan(curve.value[1:]).all()
    assert curve.nan_count.sum() == 1


def test_nothing_to_compare() -> None:
    assert compared([]).curves == ()
    view = compared([empty_series("loss"), ramp(1)])
    assert [len(curve.x) for curve in view.curves] == [0, 1]
    assert view.is_exact
    assert compared([ramp(5)], start=100, end=200).points == 0
    assert compared([ramp(5)], start=100, groups=["a"]).curves[0].count.sum() == 0


def test_all_wrong_arguments_are_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        compared([ramp(2)], x="day", buckets=0, smooth=1, half_life=-1, names=["a", "b"], groups=[], band="box")
    text = str(caught.value)
    for name in ("x", "buckets", "smooth", "half_life", "names", "band"):
        assert name in text


def test_the_buckets_of_one_series_and_of_several() -> None:
    x, y = np.arange(4.0), np.array([[5.0, 1.0, np.nan, 2.0], [1.0, 2.0, 3.0, 4.0]])
    edges = bucket_edges(0, 5, 3)
    assert edges.tolist() == [0, 2, 4, 6]
    alone = bucketed(x, y[0], edges)
    assert (alone.min.tolist()[:2], alone.max.tolist()[:2]) == ([1, 2], [5, 2])
    assert np.isnan(alone.min[2])
    assert alone.nan_count.tolist() == [0, 1, 0]
    shared = [SharedX(x, y)]
    assert bucketed_rows(shared, edges[:3]).max.tolist() == [[5, 2], [2, 4]]
    assert bucket_means(shared, edges[:3]).tolist() == [[3, 2], [1.5, 3.5]]
    assert bucket_edges(3, 17, 5).tolist() == [0, 5, 10, 15, 20]
