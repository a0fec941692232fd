"""Runs as a table, and the pictures that a manager gives."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from pai_sdk._client.display.card import status_html
from pai_sdk._core.tables.html import BADGE_COLOURS
from pai_sdk._data.run.events.series import Point, TagSummary
from pai_sdk._data.run.watch.manager import RunManager
from pai_sdk._data.run.watch.names import usual_tags
from pai_sdk._data.run.watch.records import RunBrief, RunRecord
from pai_sdk._data.run.watch.table import RunTable, age_text
from pai_sdk._wire.pai.hyperparameters import compare_hyperparameters
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import InvalidInputError, RunNotFoundError
from tests.support.messages import refused
from tests.unit.data.run.events.event_runs import write_run


def tag(name: str, last: float, low: float | None = None, high: float | None = None, **more: int) -> TagSummary:
    return TagSummary(name, "scalar", 3, 0, Point(0.0, 2, last), low, high, **more)


def run(run_id: str, **more: object) -> RunBrief:
    return RunBrief(run_id, **more)  # type: ignore[arg-type]


def heads(table: RunTable) -> list[str]:
    return re.findall(r"<th[^>]*>([^<]*)</th>", table.html)


def test_it_has_status_age_differences_and_metrics() -> None:
    tags = {"loss": tag("loss", 0.25, 0.2, 3.0)}
    runs = (
        run("a", status="Running", updated_at=90.0, hparams={"lr": 0.1, "seed": 7}, tags=tags),
        run("b", status="Failed", updated_at=10.0, hparams={"lr": 0.2, "seed": 7}, error="no <b>bucket</b>"),
    )
    table = RunTable(runs, now=100.0)
    assert heads(table) == ["run", "status", "age", "lr", "loss"]
    html = table.html
    assert "10s" in html
    assert "1m" in html
    assert "<b>0.25</b>" in html
    assert "0.2 … 3" in html
    assert "the same in all: 1" in html
    assert "seed=7" in html
    assert "no &lt;b&gt;bucket" in html


def test_statuses_have_the_colours_that_they_have_on_cards() -> None:
    statuses = ("Terminated", "Stopped", "Succeed", "Succeeded", "Failed", "CreateFailed", "Creating", "Unknown")
    html = RunTable(tuple(run(status, status=status) for status in statuses)).html
    colours = re.findall(r"background:(#\w+);[^>]*>(\w+)<", html)
    kinds = ["stopped", "stopped", "success", "success", "failure", "failure", "running", "unknown"]
    assert colours == [(BADGE_COLOURS[kind], status) for kind, status in zip(kinds, statuses, strict=True)]
    assert BADGE_COLOURS["stopped"] in status_html(JobStatus.TERMINATED)


def test_names_that_people_gave_are_in_tables_and_pictures(tmp_path: Path) -> None:
    for run_id in ("train1x7k2", "train9f2a1", "train5m8qq"):
        write_run(tmp_path / run_id, {"loss": [1.0, 0.5]})
    names = {"train1x7k2": "lr-0.1", "train9f2a1": "lr-0.1", "train5m8qq": "lr-0.2_20261123_012742_023740e7"}
    records = [RunRecord(run_id, name=name) for run_id, name in names.items()]
    with RunManager(tmp_path, refresh_s=0, records=lambda: records) as manager:
        manager.refresh()
        picture = manager.compare("", "loss").plot()
        assert {"lr-0.1 (x7k2)", "lr-0.1 (f2a1)", "lr-0.2"} <= {*re.findall(r">([^<>]+?) ?<tspan", picture.svg)}
        assert ">lr-0.2</b>" in manager.table().html
        assert {curve.name for curve in picture.comparison.curves} == {*names}


def test_a_missing_hyperparameter_is_not_none() -> None:
    runs = [run("a", hparams={"x": None}), run("b")]
    compared = compare_hyperparameters([run.hparams for run in runs])
    assert (compared.differing, compared.constant) == (("x",), {})
    html = RunTable(tuple(runs)).html
    assert "None" in html
    assert "–" in html


def test_values_that_are_not_finite_are_counted() -> None:
    summary = tag("loss", math.nan, 0.1, 0.2, nan_count=3, inf_count=1)
    html = RunTable((run("a", tags={"loss": summary}),)).html
    assert "<b>NaN</b>" in html
    assert "▲ 3 NaN, ◆ 1 infinite" in html


def test_hostile_text_stays_text() -> None:
    evil = "<script>alert(1)</script>"
    runs = (run(evil, status=evil, name=evil, hparams={evil: evil}, tags={evil: tag(evil, 1.0)}), run("b"))
    html = RunTable(runs).html
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 5


def test_ages() -> None:
    assert [age_text(run("a", updated_at=1000.0 - ago), 1000.0) for ago in (-5, 0, 59, 60, 999)] == [
        "0s", "0s", "59s", "1m", "16m",
    ]  # fmt: skip
    assert age_text(run("a", updated_at=0.0), 86400.0 * 3) == "3d"


def test_the_metrics_that_most_runs_have() -> None:
    runs = [run("a", tags={"x": tag("x", 1), "loss": tag("loss", 1)}), run("b", tags={"loss": tag("loss", 1)})]
    assert usual_tags(runs, 1) == ("loss",)
    assert RunTable(()).html == "<i>no runs</i>"


def test_a_table_says_that_there_are_more(tmp_path: Path) -> None:
    table = RunTable((run("a"),), total=1200)
    assert "1 of 1,200 runs" in table.html
    assert "<table" in table.save(tmp_path / "runs.html").read_text(encoding="utf-8")
    with refused(InvalidInputError, "path"):
        table.save(tmp_path / "runs.svg")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, rate in (("slow", 0.01), ("fast", 0.1)):
        values = [math.exp(-rate * step) for step in range(50)]
        write_run(tmp_path / name, {"loss": values, "acc": [0.5]})
    return tmp_path


def test_a_manager_gives_table_and_pictures(folder: Path) -> None:
    records = [
        RunRecord(name, hparams={"lr": rate, "epochs": 50}) for name, rate in (("slow", 0.01), ("fast", 0.1))
    ]
    with RunManager(folder, records=lambda: records, refresh_s=0) as manager:
        manager.refresh()
        table = manager.table(sort="metrics.loss", tags=["loss"])
        assert heads(table) == ["run", "status", "age", "lr", "loss"]
        assert table.html.index(">fast<") < table.html.index(">slow<")
        assert table.html.count("<polyline") == 2
        assert "polyline" not in manager.table(with_curves=False).html
        assert manager.table("hparams.lr=0.1").total == 1

        picture = manager.compare(["slow", "fast"], "loss").plot(log_y=True)
        assert picture.title == "loss"
        assert [curve.name for curve in picture.comparison.curves] == ["slow", "fast"]

        one = manager.run("slow").plot("loss", smooth=0.6)
        assert (one.title, [curve.name for curve in one.comparison.curves]) == ("loss", ["slow"])
        both = manager.run("slow").plot()
        assert (both.title, {curve.name for curve in both.comparison.curves}) == ("slow", {"loss", "acc"})
        with refused(RunNotFoundError):
            manager.run("slow").plot("los")
