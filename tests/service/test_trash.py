"""Folders of deleted jobs are removed in the background, which never delays the end of the service for long."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path

import pytest

from pai_sdk._service.state import trash
from pai_sdk._service.state.trash import Trash
from tests.support.waiting import PATIENCE_S, until


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
    bin_ = Trash(tmp_path, max_close_s=PATIENCE_S)
    for folder in folders(tmp_path, "a", "b", "c"):
        bin_.put(folder)
    assert removing.wait(PATIENCE_S)
    closing = threading.Thread(target=bin_.close)
    closing.start()
    until(bin_._closing.is_set)
    go_on.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(shutil, "rmtree", remove)
    after_a_restart = Trash(tmp_path)
    until(lambda: not list(tmp_path.iterdir()))
    after_a_restart.close()


def test_a_large_folder_does_not_keep_it_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    removing, go_on = threading.Event(), threading.Event()

    def endlessly(folder: Path, **options: object) -> None:
        removing.set()
        go_on.wait(PATIENCE_S)

    monkeypatch.setattr(shutil, "rmtree", endlessly)
    bin_ = Trash(tmp_path, max_close_s=0.05)
    try:
        bin_.put(*folders(tmp_path, "a"))
        assert removing.wait(PATIENCE_S)
        bin_.close()
        assert "the next start of the service deletes its remaining files" in caplog.text
        assert len(list(tmp_path.iterdir())) == 1
    finally:
        go_on.set()


def test_what_is_in_it_already_is_removed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    left = folders(tmp_path, ".trash-1", ".trash-2", "trainx")
    bin_ = Trash(tmp_path)
    for folder in left:  # as the scheduler does with all folders that no job has
        bin_.put(folder)
    until(lambda: not list(tmp_path.iterdir()))
    bin_.close()
    assert not [record for record in caplog.records if record.name == trash.__name__]
