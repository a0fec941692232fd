"""A step that is saved again: its complete checkpoint stays until the new one is complete, whatever happens."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.run.report import checkpoints
from pai_sdk._data.run.report.checkpoints import (
    MARKER,
    Checkpoint,
    CheckpointConfig,
    FolderState,
    commit,
    complete_checkpoints,
    latest_checkpoint,
    read_checkpoint,
    replacement_of,
    rotate,
    save,
)
from pai_sdk._data.run.report.report_session import ReportSession
from pai_sdk._data.run.report.session import checkpoint_dir, report
from pai_sdk._data.run.store.stored_checkpoints import latest_checkpoint as latest_in_store
from pai_sdk.errors import CheckpointError
from tests.support.messages import refused

ROOT = Path(__file__).resolve().parents[5]


def source_of(folder: Path, content: str) -> FolderState:
    (folder / "part").mkdir(parents=True, exist_ok=True)
    for name in ("Adam", "part/z", "weights"):
        (folder / name).write_text(content)
    return FolderState.of(folder)


def content_of(checkpoint: Checkpoint | None) -> str:
    assert checkpoint is not None
    assert read_checkpoint(checkpoint.path, checksums=True) is not None
    (content,) = {(checkpoint.path / name).read_text() for name in checkpoint.files}
    return content


# In a child, the process ends at its n-th step that changes or opens something: as SIGKILL ends it. Each step is
# tried. Then a second save is cut off in the same way, in what the first one has left.
KILLED = """
import json, os, random, shutil, sys
root, folder, way = sys.argv[1:]
sys.path.append(root)
from pathlib import Path
from pai_sdk._data.run.report import checkpoints, session
from pai_sdk._data.run.report.checkpoints import FolderState, complete_checkpoints, read_checkpoint, save

STEPS = ("open", "os.link", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.scandir")
folder = Path(folder)
place, clean = folder / "checkpoints", folder / "clean"

def write(place, content):
    for name in ("a", "part/b"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(content)

def save_again(content):
    source = folder / "source"
    source.mkdir(exist_ok=True)
    if way == "save":
        write(source, content)
        save(FolderState.of(source), place / "7", step=7)
    elif way == "copy":
        write(source, content)
        save(FolderState.of(source), place / "7", step=7, copy=lambda found, to: write(Path(to), content))
    else:
        with session.ReportSession(folder) as reports, reports.checkpoint_dir(7) as made:
            write(made, content)

def cut_off(content, at):
    "The exit code of a process that saves and is killed at a step; 0 when it has ended before."
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    left = [at]
    def watch(event, arguments):
        if event in STEPS:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
    sys.addaudithook(watch)
    save_again(content)
    os._exit(0)

def seen():
    sound = [read_checkpoint(each.path, checksums=True) for each in complete_checkpoints(place)]
    return [(7, (each.path / "a").read_text() + (each.path / "part/b").read_text()) for each in sound if each]

os.fsync = lambda descriptor: None
chance, faults, steps = random.Random(1), [], 0
save_again("1")
shutil.copytree(place, clean)
while True:
    shutil.rmtree(place)
    shutil.copytree(clean, place)
    code = cut_off("2", steps)
    after = seen()
    if after not in ([(7, "11")], [(7, "22")]):
        faults.append([steps, after])
    if code == 0:
        break
    if steps % 3:
        steps += 1
        continue
    second = chance.randrange(60)
    cut_off("3", second)
    later = seen()
    if later not in ([*after], [(7, "33")]) and later != [(7, "22")]:
        faults.append([steps, second, later])
    save_again("4")
    if seen() != [(7, "44")] or (place / "7.pai-sdk-new").exists():
        faults.append([steps, second, "the next save", seen()])
    steps += 1
print(json.dumps({"steps": steps, "faults": faults, "last": after}))
"""


@pytest.mark.parametrize("way", ["save", "copy", "checkpoint_dir"])
def test_a_kill_at_each_step_leaves_the_old_or_the_new_one(tmp_path: Path, way: str) -> None:
    program = [sys.executable, "-S", "-I", "-c", KILLED, str(ROOT), str(tmp_path), way]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=120)
    seen = json.loads(done.stdout)
    assert (seen["faults"], seen["last"]) == ([], [[7, "22"]])
    assert seen["steps"] > 20


def test_an_error_in_the_block_keeps_the_complete_one(tmp_path: Path) -> None:
    def fail() -> None:
        with checkpoint_dir(10) as folder:
            (folder / "weights").write_text("half of the sec")
            raise RuntimeError("of the training")

    with ReportSession(tmp_path) as session, session.bound():
        with checkpoint_dir(10) as folder:
            (folder / "weights").write_text("first")
        with pytest.raises(RuntimeError):
            fail()
        assert content_of(session.checkpoint()) == "first"
        with checkpoint_dir(10) as folder:
            assert list(folder.iterdir()) == []
            (folder / "weights").write_text("third")
        found = session.checkpoint()
    assert content_of(found) == "third"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["10"]


def test_a_source_that_is_gone_keeps_the_complete_one(tmp_path: Path) -> None:
    save(source_of(tmp_path / "source", "first"), tmp_path / "10", step=10)
    state = source_of(tmp_path / "source", "second")
    (tmp_path / "source" / "weights").unlink()
    with refused(CheckpointError):
        save(state, tmp_path / "10", step=10)
    assert content_of(read_checkpoint(tmp_path / "10")) == "first"
    assert not replacement_of(tmp_path / "10").exists()  # its space is free again


@pytest.mark.parametrize("call", ["_copy_crc32", "link_file", "_write_marker", "_sync_names", "_remove"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_disk_that_fails_keeps_a_complete_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int
) -> None:
    save(source_of(tmp_path / "source", "first"), tmp_path / "10", step=10)
    real, count = getattr(checkpoints, call), [0]

    def failing(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] == nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    with monkeypatch.context() as full:
        full.setattr(checkpoints, call, failing)
        try:
            save(source_of(tmp_path / "source", "second"), tmp_path / "10", step=10)
            may_be = {"second"}
        except OSError:
            may_be = {"first", "second"}
    assert content_of(latest_checkpoint(tmp_path)) in may_be
    in_store = latest_in_store(tmp_path, checksums=True)
    assert in_store is not None
    assert in_store.step == 10
    save(source_of(tmp_path / "source", "third"), tmp_path / "10", step=10)
    assert content_of(latest_checkpoint(tmp_path)) == "third"
    assert not replacement_of(tmp_path / "10").exists()


def test_without_links_the_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EPERM, "of a mounted object storage")

    monkeypatch.setattr(os, "link", refused)
    for content in ("first", "second"):
        save(source_of(tmp_path / "source", content), tmp_path / "10", step=10)
    assert content_of(read_checkpoint(tmp_path / "10")) == "second"


def test_a_marker_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_UPLOAD of a step that is complete: nothing needs to be without a marker."""
    save(source_of(tmp_path / "source", "first"), tmp_path / "10", step=10)
    monkeypatch.setattr(checkpoints, "_write_marker", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        commit(tmp_path / "10", step=10)
    assert content_of(read_checkpoint(tmp_path / "10")) == "first"


def left_by_a_kill(folder: Path, step: int, content: str) -> None:
    """What is there when a process is killed while its complete checkpoint is put in its place."""
    save(source_of(folder.parent / "source", content), folder / str(step), step=step)
    (folder / str(step)).rename(replacement_of(folder / str(step)))
    (folder / str(step)).mkdir()
    (folder / str(step) / "Adam").write_text("a part")


def test_a_session_goes_on_from_a_replacement(tmp_path: Path) -> None:
    left_by_a_kill(tmp_path / "checkpoints", 10, "second")
    with ReportSession(tmp_path) as session, session.bound():
        start = session.checkpoint()
        assert (content_of(start), start is not None and start.step) == ("second", 10)
        report({"loss": 1.0}, step=10, checkpoint=source_of(tmp_path / "m", "third").root)
    assert content_of(latest_checkpoint(tmp_path / "checkpoints")) == "third"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["10"]


@pytest.mark.parametrize("held", ["10", "10.pai-sdk-new"])
def test_a_replacement_is_rotated_with_its_step(tmp_path: Path, held: str) -> None:
    folder = tmp_path / "checkpoints"
    left_by_a_kill(folder, 10, "second")
    save(source_of(tmp_path / "source", "last"), folder / "11", step=11)
    assert rotate(folder, CheckpointConfig(num_to_keep=1), held={folder / held}) == []
    assert [found.step for found in complete_checkpoints(folder)] == [11, 10]
    assert [found.step for found in rotate(folder, CheckpointConfig(num_to_keep=1))] == [10]
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["11"]


def test_an_old_replacement_is_not_found_when_its_step_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (10, 11):
        save(source_of(tmp_path / "source", "current"), tmp_path / str(step), step=step)
    save(source_of(tmp_path / "source", "older"), tmp_path / "10.pai-sdk-new", step=10)
    seen = []
    real = checkpoints._remove

    def watched(folder: Path) -> None:
        seen.extend((found.path / "Adam").read_text() for found in complete_checkpoints(tmp_path))
        real(folder)

    monkeypatch.setattr(checkpoints, "_remove", watched)
    rotate(tmp_path, CheckpointConfig(num_to_keep=1))
    assert set(seen) == {"current"}
    assert [found.step for found in complete_checkpoints(tmp_path)] == [11]


@pytest.mark.parametrize("best", [None, 3])
def test_the_latest_is_found_while_a_rotation_removes_the_listed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, best: int | None
) -> None:
    """Between the listing and the marker, 11 becomes complete and 7 is removed: never None, never an older one."""
    for step in filter(None, (best, 7)):
        save(source_of(tmp_path / "source", f"{step}"), tmp_path / str(step), step=step)
    real, todo = checkpoints._steps_in, [11]

    def listed(folder: Path) -> list[int]:
        found = real(folder)
        for step in todo:
            todo.clear()
            save(source_of(tmp_path / "source", f"{step}"), tmp_path / str(step), step=step)
            (tmp_path / "7" / MARKER).unlink()  # the folder is removed after it
        return found

    monkeypatch.setattr(checkpoints, "_steps_in", listed)
    assert content_of(latest_checkpoint(tmp_path)) == "11"
