"""The runs in a folder."""

from __future__ import annotations

from pathlib import Path

from pai_sdk._data.pipelines.folder_runs import FolderRuns


def test_a_missing_folder_has_no_runs(tmp_path: Path) -> None:
    assert FolderRuns(tmp_path / "missing").rows() == []
