"""Curves over another metric: each point has the value of that metric at its step."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk import RunManager
from pai_sdk._data.run.events.series import Series
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.plots.metric_axis import join_by_step
from pai_sdk._data.run.plots.smoothing import smoothed
from pai_sdk.errors import InvalidInputError

_VALUES = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
_POINTS = st.lists(st.tuples(st.integers(0, 30), _VALUES), max_size=40)


def _series(tag: str, points: list[tuple[int, float]]) -> Series:
    points = sorted(points, key=lambda point: point[0])
    steps = np.array([step for step, _ in points], np.int64)
    return Series(tag, steps.astype(np.float64), steps, np.array([value for _, value in points], np.float32))


@given(_POINTS, _POINTS, st.sampled_from([0.0, 0.6]))
def test_each_point_has_the_last_finite_value_of_its_step(
    points: list[tuple[int, float]], x_points: list[tuple[int, float]], smooth: float
) -> None:
    series, x = _series("loss", points), _series("epoch", x_points)
    found = join_by_step(series, x, smooth)
    values = smoothed(series.value, smooth) if smooth else series.value
    expected = []
    for step, value in zip(series.step, values, strict=True):
        of_step = x.value[(x.step == step) & np.isfinite(x.value)]
        if len(of_step):
            expected.append((step, float(of_step[-1]), value))
    np.testing.assert_array_equal(found.step, [step for step, _, _ in expected])
    np.testing.assert_array_equal(found.wall, [at for _, at, _ in expected])
    np.testing.assert_array_equal(found.value, [value for _, _, value in expected])


def _write(folder: Path, **tags: dict[int, float]) -> None:
    with EventWriter(folder) as writer:
        for tag, points in tags.items():
            for step, value in points.items():
                writer.scalars({tag: value}, step, wall_time=1.7e9 + step)


def test_runs_are_compared_over_another_metric(tmp_path: Path) -> None:
    _write(tmp_path / "a", loss={1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0}, tokens={1: 100, 2: 300, 4: 200})
    _write(tmp_path / "b", loss={1: 5.0})
    with RunManager(tmp_path) as manager:
        manager.refresh()
        found = manager.compare("", "loss", x="metric:tokens")
        (curve,) = found.curves
        assert (found.x, found.points, found.left_out) == ("metric:tokens", 4 - 1, 1)
        assert (curve.name, curve.x.tolist(), curve.value.tolist()) == ("a", [100, 200, 300], [4.0, 1.0, 3.0])
        assert manager.compare("", "loss", x="metric:tokens", start=150, end=250).points == 1
        smooth = manager.compare("", "loss", x="metric:tokens", smooth=0.5).curves[0]
        by_step = manager.compare(["a"], "loss", smooth=0.5).curves[0]
        assert smooth.value.tolist() == by_step.value[[0, 3, 1]].tolist()
        assert "tokens</text>" in found.plot().svg
        assert "1 without x" in found.plot().svg
        (group,) = manager.compare("", "loss", x="metric:tokens", group_by="status", buckets=4).curves
        assert group.members == (0,)
        assert manager.compare("", "loss", x="metric:none").curves == ()
        for wrong in ("metric:", "tokens"):
            with pytest.raises(InvalidInputError, match="metric:TAG"):
                manager.compare("", "loss", x=wrong)
        with pytest.raises(InvalidInputError, match="smooth"):
            manager.compare("", "loss", x="metric:tokens", smooth=2)


def test_buckets_over_another_metric_have_exact_extremes(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    x, y = np.cumsum(random.uniform(0, 3, 3000)).astype(np.float32), random.normal(size=3000).astype(np.float32)
    _write(tmp_path / "a", y=dict(enumerate(map(float, y))), x=dict(enumerate(map(float, x))))
    with RunManager(tmp_path) as manager:
        manager.refresh()
        found = manager.compare("", "y", x="metric:x", buckets=50)
    (curve,) = found.curves
    assert curve.low is not None
    assert curve.high is not None
    for at, (begin, end) in enumerate(zip(found.edges[:-1], found.edges[1:], strict=True)):
        inside = y[(x >= begin) & (x < end)]
        assert (curve.low[at], curve.high[at]) == (inside.min(), inside.max())
