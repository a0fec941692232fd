"""Folders of deleted jobs: removed in the background, and never for longer than somebody waits for the end."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from pai_sdk.service.trash import Trash
from tests.waiting import PATIENCE_S, until


def folders(parent: Path, *names: str) -> list[Path]:
    made = [parent / name for name in names]
    for folder in made:
        (folder / "ml").mkdir(parents=True)
    return made


def test_it_ends_after_the_folder_that_is_being_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removing, go_on, remove = threading.Event(), threading.Event(), shutil.rmtree

    def slowly(folder: Path, **options: object) -> None:
        removing.set()
        assert go_on.wait(PATIENCE_S)
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", slowly)
    trash = Trash(tmp_path)
    for folder in folders(tmp_path, "a", "b", "c"):
        trash.put(folder)
    assert removing.wait(PATIENCE_S)
    closing = threading.Thread(target=trash.close)
    closing.start()
    until(trash._closing.is_set)
    go_on.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.undo()
    after_a_restart = Trash(tmp_path)
    until(lambda: not list(tmp_path.iterdir()))
    after_a_restart.close()


def test_what_is_in_it_already_is_removed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    left = folders(tmp_path, ".trash-1", ".trash-2", "trainx")
    trash = Trash(tmp_path)
    for folder in left:  # as the scheduler does with all folders that no job has
        trash.put(folder)
    until(lambda: not list(tmp_path.iterdir()))
    trash.close()
    assert not caplog.records
