"""Files that a later release reads do not name modules: those are internal, and move."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Checkpoint, Uniform, report
from pai_sdk.pipeline import Pipeline
from pai_sdk.storage import DirSync, open_store
from pai_sdk.tune import Tuner

MODULE = re.compile(rb"pai_sdk\.[a-z_]+")


def modules_in(folder: Path) -> set[bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return {match for file in files for match in MODULE.findall(file.read_bytes())}


def test_the_memory_of_a_sync(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("content")

    def run() -> int:
        stores = open_store(tmp_path / "source"), open_store(tmp_path / "target")
        return DirSync(*stores, remember=tmp_path / "memories" / "first").run().moved

    assert (run(), run()) == (1, 0)
    assert modules_in(tmp_path / "memories") == set()


def test_a_study(tmp_path: Path) -> None:
    pytest.importorskip("optuna")

    def train(config: dict[str, Any]) -> None:
        report({"loss": config["lr"]})

    Tuner(train, {"lr": Uniform(0, 1)}, objective="loss", trials=2, study=tmp_path / "study").run(show=False)
    assert modules_in(tmp_path / "study") == set()


def test_the_executions_and_runs_of_a_pipeline(tmp_path: Path) -> None:
    kinds = [Checkpoint, report]
    pipeline = Pipeline("stored", store=tmp_path / "store")
    step = pipeline.step(lambda: len(kinds), name="first")
    pipeline.step(lambda count: count + 1, name="second", arguments={"count": step.result})
    assert pipeline.run(show=False)["second"].result == 3
    assert modules_in(tmp_path / "store") == set()
