"""Metrics as curves: in a card, in the terminal's status row."""

from __future__ import annotations

import io
import math
import re

import pytest

from pai_sdk.display.card import card_html
from pai_sdk.display.curves import MetricCurve, curves_of, metrics_text
from pai_sdk.display.terminal import TerminalDisplay
from pai_sdk.schemas.record import JobRecord, MetricPoint


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


def test_a_long_curve_is_thinned_out_and_keeps_its_ends() -> None:
    curve = MetricCurve()
    for step in range(10_000):
        curve.add(point("x", float(step), step))
    assert len(curve.values) <= 400
    assert (curve.values[0], curve.values[-1]) == (0.0, 9999.0)
    assert (curve.first_step, curve.last_step) == (0, 9999)
    assert curve.values == sorted(curve.values)


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


def test_the_status_row_shows_the_last_metrics(in_terminal: None) -> None:
    stream, now = Terminal(), [0.0]
    display = TerminalDisplay(stream, clock=lambda: now[0])
    for value in (1.0, 0.5, 0.25):
        facts = {
            "TrainingJobId": "train1",
            "Status": "Running",
            "GmtCreateTime": "2026-01-01T00:00:00Z",
            "LatestMetrics": [{"Name": "loss", "Value": value}],
        }
        display.changed(JobRecord.model_validate(facts))
    now[0] = 10.0
    display.beat()
    assert "loss 0.25 █▃▁" in stream.getvalue()
    display.rest()


def test_the_end_shows_the_last_metrics() -> None:
    stream = io.StringIO()
    display = TerminalDisplay(stream)
    facts = {"TrainingJobId": "t1", "Status": "Succeed", "LatestMetrics": [{"Name": "accuracy", "Value": 0.9}]}
    display.ended(JobRecord.model_validate(facts))
    assert "accuracy 0.9" in stream.getvalue()
