"""Folders that are sent in parts arrive as they are, and nowhere else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pai_sdk._host.agent.remote.file_parts import files_in, pack, path_within, unpack


def test_a_folder_arrives_as_it_is(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a b" / "empty").mkdir(parents=True)
    target.mkdir()
    (source / "a b" / "naïve 'name'\n").write_bytes(os.urandom(250))
    (source / "a b" / "nothing").touch()
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o750)
    (source / "link").symlink_to("a b/nothing")
    (source / "broken").symlink_to("/nowhere")
    os.mkfifo(source / "pipe")
    os.utime(source / "run.sh", ns=(1_000_000_001, 1_000_000_001))
    for part in pack(source, part_bytes=100):
        assert sum(len(entry[6]) for entry in part if entry[0] == "file") <= 100
        unpack(part, target)
        unpack(part, target)  # a call whose response was lost is made again
    assert files_in(target) == files_in(source)
    assert (target / "a b" / "naïve 'name'\n").read_bytes() == (source / "a b" / "naïve 'name'\n").read_bytes()
    assert stat.S_IMODE((target / "run.sh").stat().st_mode) == 0o750
    assert not (target / "pipe").exists()


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../out", ""])
def test_nothing_is_written_outside(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError):
        unpack([("file", path, 0o600, 0, 1, 0, b"x")], tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    unpack([("file", "link/new", 0o600, 0, 1, 0, b"x")], folder)
    assert list(outside.iterdir()) == []
    assert (folder / "link" / "new").read_bytes() == b"x"
    assert path_within(folder, "link/new") == folder / "link" / "new"


def test_a_file_that_becomes_shorter_meanwhile_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(300_000))
    parts = pack(tmp_path, part_bytes=100_000)
    next(parts)
    (tmp_path / "file").write_bytes(bytes(150_000))
    with pytest.raises(OSError, match="shorter"):
        list(parts)
