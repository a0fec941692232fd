"""The folder that containers can write to: what they put there leads the writer nowhere else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pai_sdk.execution.docker.runfolder import RunFolder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of the user that no container may change."""
    file = tmp_path / "mine"
    file.write_text("mine")
    return file


def test_a_link_in_place_of_an_unfinished_file_is_not_followed(tmp_path: Path, mine: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    (run.path / ".master-0.env").symlink_to(mine)
    run.prepare({"master-0.env": "export A=1\n"}, [])
    assert mine.read_text() == "mine"
    assert (run.path / "master-0.env").read_text() == "export A=1\n"
    assert not (run.path / "master-0.env").is_symlink()


def test_a_link_in_place_of_a_signal_is_not_followed(
    tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path / "run")
    run.prepare({}, [])
    monkeypatch.setattr(time, "monotonic_ns", lambda: 7)
    monkeypatch.setattr("os.getpid", lambda: 1)
    (run.path / ".go.1.7").symlink_to(mine)
    with pytest.raises(FileExistsError):
        run.go()
    assert mine.read_text() == "mine"
