"""Keeping the best checkpoints, and the latest one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.run.report import checkpoints
from pai_sdk._data.run.report.checkpoints import CheckpointConfig, commit, complete_checkpoints, rotate
from pai_sdk._data.run.report.report_session import ReportSession
from pai_sdk._data.run.report.session import report, set_checkpoint_config
from pai_sdk.errors import CheckpointError
from tests.support.messages import refused

LOSSES = [0.5, 0.1, 0.4, 0.2, 0.9]


def made(folder: Path, losses: list[float | None]) -> Path:
    for step, loss in enumerate(losses, 1):
        (folder / str(step)).mkdir(parents=True)
        (folder / str(step) / "weights").write_text(str(loss))
        commit(folder / str(step), step=step, metrics={} if loss is None else {"loss": loss})
    return folder


def steps(folder: Path) -> list[int | None]:
    return sorted(found.step or 0 for found in complete_checkpoints(folder))


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (CheckpointConfig(), [1, 2, 3, 4, 5]),
        (CheckpointConfig(num_to_keep=2), [4, 5]),
        (CheckpointConfig(num_to_keep=2, score_attribute="loss", score_order="min"), [2, 4, 5]),
        (CheckpointConfig(num_to_keep=2, score_attribute="loss"), [1, 5]),
        (CheckpointConfig(num_to_keep=1, score_attribute="unknown"), [5]),
        (CheckpointConfig(num_to_keep=9, score_attribute="loss"), [1, 2, 3, 4, 5]),
    ],
)
def test_the_best_and_the_latest_are_kept(tmp_path: Path, config: CheckpointConfig, kept: list[int]) -> None:
    folder = made(tmp_path, list(LOSSES))
    removed = rotate(folder, config)
    assert steps(folder) == kept
    assert sorted(kept + [found.step or 0 for found in removed]) == [1, 2, 3, 4, 5]
    assert sorted(int(path.name) for path in folder.iterdir()) == kept  # no folder is left behind


def test_one_without_the_metric_is_worst_and_of_equals_the_later_is_better(tmp_path: Path) -> None:
    folder = made(tmp_path, [None, 0.3, 0.3, 0.5])
    rotate(folder, CheckpointConfig(num_to_keep=1, score_attribute="loss", score_order="min"))
    assert steps(folder) == [3, 4]


def test_incomplete_folders_stay(tmp_path: Path) -> None:
    folder = made(tmp_path, [0.1, 0.2])
    (folder / "0").mkdir()
    (folder / "0" / "half").write_text("x")
    rotate(folder, CheckpointConfig(num_to_keep=1))
    assert sorted(path.name for path in folder.iterdir()) == ["0", "2"]


def test_the_marker_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path, [0.1, 0.2])
    monkeypatch.setattr(checkpoints.shutil, "rmtree", lambda path: None)  # killed here
    rotate(folder, CheckpointConfig(num_to_keep=1))
    assert steps(folder) == [2]
    assert (folder / "1" / "weights").exists()


@pytest.mark.parametrize(
    "wrong", [{"num_to_keep": 0}, {"num_to_keep": True}, {"score_order": "up"}, {"score_attribute": 3}]
)
def test_wrong_values_are_errors(wrong: dict[str, Any]) -> None:
    with refused(CheckpointError):
        CheckpointConfig(**wrong)


def test_reports_of_a_training_rotate(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    losses = random.Random(3).sample(range(100), 12)
    with ReportSession(tmp_path / "run") as session, session.bound():
        set_checkpoint_config(CheckpointConfig(num_to_keep=3, score_attribute="eval/loss", score_order="min"))
        for step, loss in enumerate(losses):
            (source / "weights").write_text(str(loss))
            report({"eval": {"loss": loss}}, step, checkpoint=source, checkpoint_upload_mode="SYNC")
    best = sorted(range(12), key=lambda step: losses[step])[:3]
    assert steps(tmp_path / "run" / "checkpoints") == sorted({*best, 11})
