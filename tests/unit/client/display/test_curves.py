"""Metrics as curves: in a card, in the terminal's status row."""

from __future__ import annotations

import io
import math
import re

import pytest

from pai_sdk._client.display.card import card_html
from pai_sdk._client.display.curves import (
    MetricCurve,
    MetricCurves,
    PointReader,
    blocks_of,
    curves_of,
    metrics_text,
)
from pai_sdk._client.display.terminal import TerminalDisplay
from pai_sdk._wire.pai.record import JobRecord, MetricPoint, from_time
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk.errors import ConnectionFailedError

pytestmark = pytest.mark.interpreter


def point(name: str, value: float | None, step: int | None = None, instance: str = "master-0") -> MetricPoint:
    return MetricPoint(name=name, value=value, step=step, instance=instance)


def test_the_picture_has_its_scale_and_its_ends() -> None:
    picture = curves_of([point("loss", value, step) for step, value in enumerate([3.0, 1.0, 0.25])])["loss"].svg()
    texts = re.findall(r">([^<>]+)</text>", picture)
    assert texts == ["3", "0.25", "step 0", "2"]
    assert 'aria-label="from 3 to 0.25"' in picture


def test_a_flat_curve_and_one_of_a_single_value() -> None:
    assert MetricCurve([1.0, 1.0]).svg().count("polyline") == 1
    assert MetricCurve([1.0]).svg() == MetricCurve([1.0]).blocks() == ""
    assert MetricCurve([2.0, 2.0]).blocks() == "▁▁"


def test_values_that_are_not_finite_are_left_out() -> None:
    curve = MetricCurve()
    for value in (1.0, math.nan, math.inf, None, 2.0):
        curve.add(point("x", value))
    assert curve.values == [1.0, 2.0]


def test_a_long_curve_has_every_value_and_is_drawn_with_its_extremes() -> None:
    curve = MetricCurve()
    for step in range(10_000):
        curve.add(point("x", {7_001: 900.0, 7_002: -900.0}.get(step, step % 5), step))
    assert len(curve.values) == 10_000
    picture = curve.svg()
    assert re.findall(r">([^<>]+)</text>", picture) == ["900", "-900", "step 0", "9999"]
    assert 'aria-label="from 0 to 4"' in picture
    assert len(picture) < 5_000


def test_the_same_snapshot_adds_nothing_but_an_equal_value_of_another_step_does() -> None:
    curve = MetricCurve()
    for step in (1, 1, 1, 2):
        curve.add(point("x", 0.5, step))
    assert curve.values == [0.5, 0.5]


def test_one_instance_is_drawn() -> None:
    points = [point("loss", float(n), n, instance) for n in range(3) for instance in ("master-0", "worker-0")]
    assert curves_of(points)["loss"].values == [0.0, 1.0, 2.0]


def test_last_values_on_a_line() -> None:
    latest = [point("loss", 0.25), point("accuracy", 0.912345678), point("none", None)]
    curves = {"loss": MetricCurve([1.0, 0.5, 0.25])}
    assert metrics_text(latest, curves) == "loss 0.25 █▃▁  accuracy 0.91235"
    assert metrics_text([], {}) == ""


def test_the_card_of_a_job_that_was_opened_again_has_its_curves() -> None:
    record = JobRecord.model_validate({"TrainingJobId": "train1", "Status": "Succeed"})
    html = card_html(record, curves={"<b>loss": MetricCurve([3.0, 1.0])})
    assert "&lt;b&gt;loss <b>1</b> <svg" in html


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def in_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)


class ReportingJob:
    """A job that reports a value a second; it counts the values that are read."""

    def __init__(self) -> None:
        self.points: list[MetricPoint] = []
        self.read = 0

    def report(self, value: float) -> JobRecord:
        """Report a value; returns the next snapshot, which has the last value only."""
        step = len(self.points) + 1
        self.points.append(MetricPoint(name="loss", value=value, step=step, timestamp=wire_time(1e9 + step)))
        facts = {"TrainingJobId": "train1", "Status": "Running", "GmtCreateTime": "2026-01-01T00:00:00Z"}
        latest = [self.points[-1].model_dump(by_alias=True)]
        return JobRecord.model_validate({**facts, "LatestMetrics": latest})

    def metrics(self, name: str | None = None, *, since: str | None = None) -> list[MetricPoint]:
        found = [*from_time(self.points, since)]
        self.read += len(found)
        return found


def test_the_status_row_shows_every_point_although_few_are_polled(in_terminal: None) -> None:
    stream, now, job = Terminal(), [0.0], ReportingJob()
    display = TerminalDisplay(stream, job=job, clock=lambda: now[0])
    for value in (1.0, 0.5, 0.5, 0.25):
        last = job.report(value)
    display.changed(last)  # the first snapshot
    now[0] = 10.0
    display.beat()
    assert "loss 0.25 █▃▃▁" in stream.getvalue()
    display.stop_beat()


def test_every_point_is_read_once_and_long_curves_are_not_read_again_and_again() -> None:
    now, job = [0.0], ReportingJob()
    reader, curves = PointReader(job, clock=lambda: now[0]), MetricCurves()
    for step in range(1000):
        record = job.report(float(step % 7))
        if step % 10 == 0:
            now[0] += 10.0
            curves.add(reader.read_new(record))
    assert [*curves["loss"].values] == [float(step % 7) for step in range(991)]
    assert job.read < 10_000, "the last minute each time, not the whole"


def test_values_without_times_are_read_once_too() -> None:
    now, job = [0.0], ReportingJob()
    reader, curves = PointReader(job, clock=lambda: now[0]), MetricCurves()
    for _ in range(5):
        record = job.report(0.5)
        job.points[-1] = MetricPoint(name="loss", value=0.5)
        now[0] += 10.0
        curves.add(reader.read_new(record))
    assert [*curves["loss"].values] == [0.5]  # the same value at no known time is the last one once more


def test_a_slow_service_is_asked_less_often() -> None:
    now, job = [0.0], ReportingJob()

    def slowly(name: str | None = None, *, since: str | None = None) -> list[MetricPoint]:
        now[0] += 2.0
        return job.points

    job.metrics = slowly  # type: ignore[method-assign]
    reader = PointReader(job, clock=lambda: now[0])
    asked = 0
    while now[0] < 400:
        asked += bool(reader.read_new(job.report(1.0)))
        now[0] += 1.0
    assert 5 <= asked <= 11


def test_a_job_whose_metrics_cannot_be_read_is_shown_all_the_same() -> None:
    job = ReportingJob()
    record = job.report(1.0)

    def refuse(name: str | None = None, *, since: str | None = None) -> list[MetricPoint]:
        raise ConnectionFailedError("out of reach", endpoint="http://x")

    job.metrics = refuse  # type: ignore[method-assign]
    assert PointReader(job).read_new(record) == ()
    assert PointReader(job).read_all(record) is None


def test_the_end_shows_the_last_metrics() -> None:
    stream = io.StringIO()
    display = TerminalDisplay(stream)
    facts = {"TrainingJobId": "t1", "Status": "Succeed", "LatestMetrics": [{"Name": "accuracy", "Value": 0.9}]}
    display.ended(JobRecord.model_validate(facts))
    assert "accuracy 0.9" in stream.getvalue()


def test_blocks_are_scaled_to_their_range_or_to_another_one() -> None:
    assert MetricCurve([0.0, 1.0, 2.0, 4.0]).blocks() == "▁▂▄█"
    assert blocks_of([0.0, math.nan, 4.0]) == "▁ █"
    assert blocks_of([0.0, 1.0], scale=(0.0, 2.0)) == "▁▄"
