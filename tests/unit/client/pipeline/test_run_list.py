"""The runs in a folder."""

from __future__ import annotations

from pathlib import Path

from pai_sdk._client.pipeline.run_list import FolderRuns


def test_a_missing_folder_has_no_runs(tmp_path: Path) -> None:
    assert FolderRuns(tmp_path / "missing").rows() == []
