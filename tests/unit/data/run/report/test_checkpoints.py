"""Checkpoints: visible as a whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._data.run.report import checkpoints
from pai_sdk._data.run.report.checkpoints import (
    MARKER,
    Checkpoint,
    FolderState,
    add_metrics,
    commit,
    complete_checkpoints,
    is_complete,
    latest_checkpoint,
    read_checkpoint,
    save,
)
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk.errors import CheckpointError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.interpreter

ROOT = Path(__file__).resolve().parents[5]


def made(folder: Path, **contents: str) -> Path:
    for name, content in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def step_folder(folder: Path, step: int) -> Path:
    return folder / str(step)


def test_a_saved_folder_is_a_checkpoint(tmp_path: Path) -> None:
    source = made(tmp_path / "source", weights="1.0", optimizer__state="2.0")
    saved = save(
        FolderState.of(source), step_folder(tmp_path, 7), step=7, metrics={"loss": 0.5, "bad": float("nan")}
    )
    assert is_complete(saved.path, checksums=True)
    found = read_checkpoint(tmp_path / "7")
    assert found == saved
    assert (found.step, found.metrics, sorted(found.files)) == (7, {"loss": 0.5}, ["optimizer/state", "weights"])
    assert (found.path / "optimizer" / "state").read_text() == "2.0"
    assert (source / "weights").read_text() == "1.0"
    assert found.to_directory(tmp_path / "copy") == tmp_path / "copy"
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["optimizer", "weights"]


def test_the_marker_is_written_last_and_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every write, a reader sees the old checkpoint or the new one; never none, never a mixture."""
    target = step_folder(tmp_path, 1)
    save(FolderState.of(made(tmp_path / "old", a="old", b="old")), target, step=1)
    new = FolderState.of(made(tmp_path / "new", a="new", b="new"))
    seen = []

    def look() -> None:
        found = read_checkpoint(target)
        seen.append(None if found is None else "".join((found.path / name).read_text() for name in found.files))

    for name in ("_copy_crc32", "sync", "sync_folder", "_remove_marker", "replace_file"):
        real = getattr(checkpoints, name)

        def watched(*args: object, _real: object = real, **kwargs: object) -> object:
            look()
            done = _real(*args, **kwargs)
            look()
            return done

        monkeypatch.setattr(checkpoints, name, watched)
    save(new, target, step=1)
    assert list(dict.fromkeys(seen)) == ["oldold", "newnew"]


@pytest.mark.parametrize("hint", ["given", "refused", "missing"])
def test_a_file_of_many_pieces_is_copied_whole_and_synced_after_its_last_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hint: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "not on this file system")

    if hint == "refused":
        monkeypatch.setattr(os, "posix_fadvise", refuse, raising=False)
    elif hint == "missing":
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    content = os.urandom(1 << 20) * 33 + os.urandom(77)
    source = made(tmp_path / "model", weights="")
    (source / "weights").write_bytes(content)
    synced = []
    monkeypatch.setattr(checkpoints, "sync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))

    copied = save(FolderState.of(source), tmp_path / "1", step=1)
    in_place = commit(source, step=1)
    for found in (copied, in_place):
        assert (found.path / "weights").read_bytes() == content
        assert found.files["weights"].crc32 == f"{zlib.crc32(content):08x}"
    assert synced == [len(content)] * 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "a").unlink(),
        lambda folder: (folder / "a").write_text("longer than before"),
        lambda folder: (folder / MARKER).write_text("{"),
        lambda folder: (folder / MARKER).write_text("[" * 100_000),
        lambda folder: (folder / MARKER).write_text("null"),
        lambda folder: (folder / MARKER).write_bytes(b"\xff"),
        lambda folder: (folder / MARKER).unlink(),
    ],
)
def test_a_damaged_checkpoint_is_not_complete(tmp_path: Path, damage: object) -> None:
    for step in (1, 2):
        commit(made(step_folder(tmp_path, step), a="x"), step=step)
    damage(tmp_path / "2")
    assert not is_complete(tmp_path / "2")
    assert latest_checkpoint(tmp_path).step == 1


def test_a_changed_byte_is_seen_by_its_checksum(tmp_path: Path) -> None:
    commit(made(tmp_path / "1", a="x"), step=1)
    (tmp_path / "1" / "a").write_text("y")
    assert is_complete(tmp_path / "1")
    assert not is_complete(tmp_path / "1", checksums=True)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../outside", "a\0b"])
def test_a_marker_names_no_file_outside(tmp_path: Path, name: str) -> None:
    made(tmp_path, outside="x")
    folder = commit(made(tmp_path / "1", a="x"), step=1).path
    marker = json.loads((folder / MARKER).read_text())
    marker["files"][name] = {"size": 1, "crc32": "0"}
    (folder / MARKER).write_text(json.dumps(marker))
    assert not is_complete(folder)


def test_the_latest_is_by_number_and_complete(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        commit(made(step_folder(tmp_path, step), a="x"), step=step)
    made(tmp_path / "2000", a="not complete")
    made(tmp_path / "best", a="x")
    made(tmp_path, note="a file")
    assert [found.step for found in complete_checkpoints(tmp_path)] == [100, 10, 9]
    assert latest_checkpoint(tmp_path / "nothing") is None
    assert latest_checkpoint(tmp_path / "note") is None


@pytest.mark.parametrize(
    "case", ["missing", "file", "empty", "only a marker", "broken link", "linked folder", "pipe"]
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, case: str) -> None:
    folder = tmp_path / "source"
    if case == "file":
        folder.write_text("x")
    elif case != "missing":
        folder.mkdir()
    if case == "only a marker":
        (folder / MARKER).write_text("{}")
    elif case == "broken link":
        (folder / "a").symlink_to("nowhere")
    elif case == "linked folder":
        (folder / "a").symlink_to(tmp_path)
    elif case == "pipe":
        os.mkfifo(folder / "a")
    with refused(CheckpointError):
        FolderState.of(folder)


def test_a_linked_file_is_saved_with_its_content(tmp_path: Path) -> None:
    source = made(tmp_path / "source", a="x")
    (source / "b").symlink_to("a")
    saved = save(FolderState.of(source), tmp_path / "1", step=1)
    assert not (saved.path / "b").is_symlink()
    assert (saved.path / "b").read_text() == "x"


def test_the_layout_names_the_same_marker() -> None:
    assert RunLayout("run").checkpoint_marker(7) == f"run/checkpoints/7/{MARKER}"


@pytest.mark.parametrize("change", ["content", "same size", "removed", "replaced"])
def test_a_folder_that_changes_meanwhile_is_no_checkpoint(tmp_path: Path, change: str) -> None:
    state = FolderState.of(made(tmp_path / "source", a="x", b="y"))
    path = tmp_path / "source" / "b"
    if change == "removed":
        path.unlink()
    elif change == "replaced":
        (tmp_path / "other").write_text("z")
        (tmp_path / "other").replace(path)
    else:
        path.write_text("longer" if change == "content" else "z")
        os.utime(path, ns=(1, 1))
    with refused(CheckpointError):
        save(state, tmp_path / "1", step=1)
    assert latest_checkpoint(tmp_path) is None


def test_metadata_is_a_part_of_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_directory(made(tmp_path / "1", a="x"))
    checkpoint.set_metadata({"epoch": 3})
    checkpoint.update_metadata({"framework": "none"})
    saved = commit(checkpoint, step=1)
    assert Checkpoint.from_directory(tmp_path / "1") == saved
    assert saved.get_metadata() == {"epoch": 3, "framework": "none"}
    with refused(CheckpointError):
        saved.set_metadata({})


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text("ab", min_size=1, max_size=3), st.binary(max_size=2000), min_size=1, max_size=5))
def test_every_content_comes_back(contents: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        for name, content in contents.items():
            (source / name).write_bytes(content)
        saved = save(FolderState.of(source), Path(folder, "0"), step=0)
        assert {name: (saved.path / name).read_bytes() for name in saved.files} == contents
        assert is_complete(saved.path, checksums=True)


SAVING = """
import sys
sys.path.append(sys.argv[1])
from pathlib import Path
from pai_sdk._data.run.report.checkpoints import FolderState, save
folder, source = Path(sys.argv[2]), Path(sys.argv[2], "source")
step = 0
while True:
    step += 1
    for name in "ab":
        (source / name).write_text(f"{step} " * 20000)
    save(FolderState.of(source), folder / str(step % 3), step=step)
    print(step, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_process_killed_while_it_saves_leaves_complete_ones(tmp_path: Path, seed: int) -> None:
    (tmp_path / "source").mkdir()
    program = [sys.executable, "-S", "-I", "-c", SAVING, str(ROOT), str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        until(lambda: int(process.stdout.readline()) >= 3)
        time.sleep(random.Random(seed).random() / 50)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    found = list(complete_checkpoints(tmp_path))
    assert len(found) >= 2
    for checkpoint in found:
        assert {(checkpoint.path / name).read_text() for name in "ab"} == {f"{checkpoint.step} " * 20000}


# ---- the constructor of Ray


def test_a_local_filesystem_is_accepted(tmp_path: Path) -> None:
    from fsspec.implementations.local import LocalFileSystem

    class OfPyarrow:
        type_name = "local"

    for filesystem in (None, LocalFileSystem(), OfPyarrow()):
        found = Checkpoint(str(tmp_path), filesystem=filesystem)  # type: ignore[arg-type] # as there: a text
        assert found == Checkpoint(tmp_path)
        assert found.get_metadata() == {}


def test_what_is_not_local_is_refused(tmp_path: Path) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    with refused(CheckpointError):
        Checkpoint(tmp_path, filesystem=MemoryFileSystem())
    with refused(CheckpointError):
        Checkpoint("s3://bucket/x")  # type: ignore[arg-type]
    with refused(CheckpointError):
        Checkpoint(tmp_path, MemoryFileSystem())


# ---- metrics that come later


def test_metrics_are_added_to_the_checkpoint_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("1.0")
    first = commit(tmp_path, step=7, metrics={"loss": 0.5})
    added = add_metrics(first, {"accuracy": 0.9, "other": math.nan})
    assert added == read_checkpoint(tmp_path, checksums=True)
    assert added is not None
    assert (added.step, added.time, added.metrics) == (7, first.time, {"loss": 0.5, "accuracy": 0.9})
    commit(tmp_path, step=7)
    assert add_metrics(first, {"accuracy": 0.8}) is None  # it was replaced
    assert not Checkpoint.from_directory(tmp_path).metrics


def test_readers_find_the_same_files_while_metrics_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = commit(made(tmp_path / "7", weights="1.0"), step=7)
    state, seen = FolderState.of(checkpoint), []
    replace = Path.replace

    def looked_at(self: Path, target: Path) -> Path:
        seen.append((FolderState.of(checkpoint), sorted(file.path for file in LocalStore(str(tmp_path)).list())))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", looked_at)
    assert add_metrics(checkpoint, {"loss": 0.5}) is not None
    assert seen == [(state, [f"7/{MARKER}", "7/weights"])]
