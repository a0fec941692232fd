"""The folder that containers can write to: what they put there leads the writer nowhere else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pai_sdk._host.execution.docker.shared_folder import SharedFolder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of the user that no container may change."""
    file = tmp_path / "mine"
    file.write_text("mine")
    return file


def test_a_link_in_place_of_an_unfinished_file_is_not_followed(tmp_path: Path, mine: Path) -> None:
    shared = SharedFolder(tmp_path / "shared")
    shared.path.mkdir()
    (shared.path / ".master-0.env").symlink_to(mine)
    shared.prepare({"master-0.env": "export A=1\n"}, [])
    assert mine.read_text() == "mine"
    assert (shared.path / "master-0.env").read_text() == "export A=1\n"
    assert not (shared.path / "master-0.env").is_symlink()


def test_a_link_in_place_of_a_signal_is_not_followed(
    tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedFolder(tmp_path / "shared")
    shared.prepare({}, [])
    monkeypatch.setattr("pai_sdk._core.files.time", SimpleNamespace(monotonic_ns=lambda: 7))
    monkeypatch.setattr("os.getpid", lambda: 1)
    (shared.path / ".go.1.7").symlink_to(mine)
    with pytest.raises(FileExistsError):
        shared.go()
    assert mine.read_text() == "mine"
