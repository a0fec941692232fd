"""Numbers and times that a foreign event file may hold: each view has a value, or an error of the package."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pai_sdk import RunManager
from pai_sdk._data.run.events.writer import FILE_VERSION, double_field, framed, scalars_record
from pai_sdk.cli.root import app

WALLS = [0.0, -1.0, 1e17, 1e300, -1e300, math.nan, math.inf, -math.inf, 253402300800.0]
STEPS = [0, -1, 2**63 - 1, -(2**63), 2**53 + 1]
VALUES = [1.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 1e39]

Row = tuple[float, int, float]
PAIRS: list[list[Row]] = [
    *([(wall, 0, 1.0), (wall, 1, 0.5)] for wall in WALLS),
    *([(wall, 0, 1.0), (later, 1, 0.5)] for wall, later in itertools.combinations(WALLS, 2)),
    *([(1e9, step, 1.0), (1e9 + 1, later, 0.5)] for step, later in itertools.combinations(STEPS, 2)),
    *([(1e9, 0, value), (1e9 + 1, 1, later), (1e9 + 2, 2, value)] for value, later in itertools.pairwise(VALUES)),
    *([(1e9, 0, value)] for value in VALUES),
]


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def write(folder: Path, rows: list[Row]) -> Path:
    folder.mkdir(parents=True)
    content = b"".join(scalars_record(wall, step, [("loss", value)]) for wall, step, value in rows)
    start = framed(double_field(1, rows[0][0]) + FILE_VERSION)
    (folder / "events.out.tfevents.1790000000.h.1.0").write_bytes(start + content)
    return folder


def test_every_view_of_runs_has_a_value(tmp_path: Path) -> None:
    for number, rows in enumerate(PAIRS):
        write(tmp_path / f"run-{number}", rows)
    with RunManager(tmp_path, refresh_s=0) as manager:
        assert manager.refresh().status == "DONE"
        for sort in ("loss", "-metrics.loss.max", "created", "-updated"):
            assert manager.runs(sort=sort).total == len(PAIRS)
        for condition in ("loss<1", "created>-2d", "nan>0", "updated<2026-11-22T09:30"):
            manager.runs(condition)
        assert len(manager.to_pandas()) == len(PAIRS)
        assert "run-0" in manager.table(limit=100).html
        manager.hparams_diff(metric="loss")
        for number in range(len(PAIRS)):
            run = manager.run(f"run-{number}")
            series = run.scalars("loss")
            repr((series, series.summary(), series.finite(), series.downsample(4)))
            for x in ("step", "relative_step", "relative_time", "wall"):
                assert "<svg" in run.plot("loss", x=x).svg


@pytest.mark.parametrize("x", ["step", "relative_step", "relative_time", "wall"])
def test_every_comparison_has_a_value(tmp_path: Path, x: str) -> None:
    for number, rows in enumerate(PAIRS):
        write(tmp_path / f"run-{number}", rows)
    write(tmp_path / "usual", [(1e9 + step, step, 0.5) for step in range(3)])
    with RunManager(tmp_path, refresh_s=0) as manager:
        manager.refresh()
        for number in range(len(PAIRS)):
            runs = [f"run-{number}", "usual"]
            for options in ({"buckets": 2}, {"smooth": 0.6}, {"half_life": 2.0}, {"start": -5.0, "end": 5.0}):
                found = manager.compare(runs, "loss", x=x, **options)  # type: ignore[arg-type]
                assert "<svg" in found.plot(log_y=number % 2 == 0).svg
            for band in ("std", "range", "quantile"):
                grouped = manager.compare(runs, "loss", x=x, group_by="status", band=band, buckets=5)  # type: ignore[arg-type]
                assert "<svg" in grouped.plot().svg


def test_points_without_a_time_are_left_out_where_the_time_is_the_axis(tmp_path: Path) -> None:
    write(tmp_path / "a", [(math.nan, 0, 9.0), (1e9, 1, 1.0), (math.inf, 2, 9.0), (1e9 + 5, 3, 2.0)])
    with RunManager(tmp_path, refresh_s=0) as manager:
        manager.refresh()
        (curve,) = manager.compare("", "loss", x="relative_time").curves
        assert (curve.x.tolist(), curve.value.tolist()) == ([0.0, 5.0], [1.0, 2.0])
        assert manager.compare("", "loss").points == 4


@pytest.mark.parametrize("rows", PAIRS[:: len(PAIRS) // 9])
def test_every_command_shows_it(tmp_path: Path, rows: list[Row]) -> None:
    folder = write(tmp_path / "a", rows)
    for command in (
        ["runs", tmp_path],
        ["runs", tmp_path, "--json"],
        ["compare", tmp_path, "--x", "wall"],
        ["metrics", folder],
        ["metrics", folder, "--points"],
        ["metrics", folder, "--json"],
    ):
        result = CliRunner().invoke(app, [*map(str, command)])
        assert result.exit_code == 0, result.output
