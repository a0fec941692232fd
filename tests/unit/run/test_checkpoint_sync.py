"""Checkpoints sent to a store while a job writes them: no reader ever sees a part of one for the whole."""

from __future__ import annotations

import itertools
import random
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from pai_sdk.errors import StorageError
from pai_sdk.run.checkpoint_sync import CheckpointSync
from pai_sdk.run.checkpoints import MARKER, CheckpointConfig, FolderState, commit, rotate, save
from pai_sdk.run.stored_checkpoints import complete_checkpoints
from pai_sdk.storage.fsspec_store import FsspecStore
from pai_sdk.storage.local_store import LocalStore
from pai_sdk.storage.stored_file import StoredFile
from pai_sdk.storage.sync import SyncReport


class Watched(FsspecStore):
    """Looks at what readers see after each change, and before each write."""

    def __init__(self) -> None:
        super().__init__(f"memory://{uuid.uuid4().hex}/")
        self.before_write: Callable[[str], None] = lambda path: None
        self.changes: list[str] = []
        self.mixtures: list[str] = []
        self._lock = threading.Lock()

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        self.before_write(path)
        with self._lock:
            written = super().write(path, content, executable=executable)
            self._look(f"write {path}")
        return written

    def delete(self, paths: Iterable[str]) -> None:
        with self._lock:
            super().delete(paths)
            self._look("delete")

    def _look(self, change: str) -> None:
        self.changes.append(change)
        self.mixtures += [f"{change}: {found.uri}" for found in complete_checkpoints(self) if not found.is_sound()]

    def steps(self) -> list[int]:
        return [found.step for found in complete_checkpoints(self, checksums=True)]

    def paths(self) -> list[str]:
        return [file.path for file in self.list()]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def there() -> Iterator[Watched]:
    store = Watched()
    yield store
    assert store.mixtures == []


def saved(folder: Path, step: int, content: str = "1") -> None:
    # Names before and after the marker's in the order of a listing.
    source = folder.parent / f"source-{uuid.uuid4().hex}"
    (source / "z").mkdir(parents=True)
    for name in ("A", "b", "z/c"):
        (source / name).write_text(f"{name}{content}")
    save(FolderState.of(source), folder / str(step), step=step)


def sync(here: Path, there: Watched, **more: object) -> SyncReport:
    return CheckpointSync(LocalStore(here), there, memory=here.parent / "memory.db", **more).attempt()  # type: ignore[arg-type]


def test_everything_is_sent_and_nothing_again(here: Path, there: Watched) -> None:
    saved(here, 1)
    (here / "notes.txt").write_text("of a user")
    assert sync(here, there).moved == 5
    assert there.steps() == [1]
    assert there.paths() == ["1/A", "1/_COMPLETE", "1/b", "1/z/c", "notes.txt"]
    there.changes.clear()
    again = sync(here, there)
    assert (again.moved, again.unchanged, there.changes) == (0, 5, [])


def test_a_step_that_is_saved_again_replaces_the_first_one(here: Path, there: Watched) -> None:
    """The sizes are the same, so only the order protects a reader."""
    saved(here, 1, "1")
    sync(here, there)
    saved(here, 1, "2")
    sync(here, there)
    assert b"".join(there.read("1/A")) == b"A2"
    assert there.steps() == [1]


def test_another_jobs_checkpoint_is_replaced_in_order(here: Path, there: Watched, tmp_path: Path) -> None:
    """What the store has is not known to this sync's memory."""
    (tmp_path / "other").mkdir()
    saved(tmp_path / "other", 1, "1")
    CheckpointSync(LocalStore(tmp_path / "other"), there, memory=tmp_path / "other.db").attempt()
    saved(here, 1, "2")
    sync(here, there)
    assert b"".join(there.read("1/A")) == b"A2"


def test_a_file_added_to_a_complete_checkpoint_keeps_it_complete(here: Path, there: Watched) -> None:
    saved(here, 1)
    sync(here, there)
    (here / "1" / "added").write_text("x")
    sync(here, there)
    assert there.steps() == [1]
    assert "1/added" in there.paths()


def test_a_file_that_fails_leaves_the_marker_out_until_it_is_sent(here: Path, there: Watched) -> None:
    saved(here, 1)
    saved(here, 2)

    def refuse(path: str) -> None:
        if path == "1/b":
            raise StorageError("refused")

    there.before_write = refuse
    assert list(sync(here, there).failures) == ["1/b"]
    assert there.steps() == [2]
    there.before_write = lambda path: None
    sync(here, there)
    assert there.steps() == [2, 1]


def test_removed_checkpoints_are_removed_there_and_nothing_else(here: Path, there: Watched) -> None:
    for step in (1, 2, 3):
        saved(here, step)
    (here / "model.pt").write_text("x")
    there.write("0/others", b"of another job")
    sync(here, there)
    rotate(here, CheckpointConfig(num_to_keep=1))
    (here / "model.pt").unlink()
    saved(here, 4)
    there.write("2/A", b"replaced by another job")
    report = sync(here, there)
    assert there.steps() == [4, 3]
    assert [path for path in there.paths() if path[0] in "0123m" and path[:2] != "3/"] == [
        "0/others",
        "2/A",
        "model.pt",
    ]
    assert report.deleted == 7  # the files and markers of 1 and 2, but for the replaced one


def test_checkpoints_that_a_job_found_are_removed_with_its_own(here: Path, there: Watched) -> None:
    saved(here, 1)
    sync(here, there)
    (here.parent / "memory.db").unlink()  # another job, which began with what the first one left
    found = {file.path: file.size_bytes for file in LocalStore(here).list()}
    saved(here, 2)
    rotate(here, CheckpointConfig(num_to_keep=1))
    sync(here, there, found=found)
    assert there.steps() == [2]
    assert [path for path in there.paths() if path.startswith("1/")] == []


def test_a_checkpoint_that_changes_during_the_sync_waits_for_the_next_one(here: Path, there: Watched) -> None:
    saved(here, 1, "1")

    def save_again(path: str) -> None:
        there.before_write = lambda path: None
        saved(here, 1, "2")

    there.before_write = save_again
    sync(here, there)
    assert there.steps() == []
    sync(here, there)
    assert there.steps() == [1]
    assert b"".join(there.read("1/A")) == b"A2"


@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_saves_and_rotates_all_the_time(here: Path, there: Watched, seed: int) -> None:
    """Random moments; the fixture fails when a reader could have seen a mixture."""
    chance = random.Random(seed)
    content = itertools.count()

    def job(path: str) -> None:
        while chance.random() < 0.6:
            step = chance.randrange(4)
            if chance.random() < 0.2:
                shutil.rmtree(here / str(step), ignore_errors=True)
            elif chance.random() < 0.3 and (here / str(step)).exists():
                (here / str(step) / MARKER).unlink(missing_ok=True)
                (here / str(step) / "b").write_text(f"b{next(content):04}")
            else:
                saved(here, step, f"{next(content):04}")

    def one_at_a_time(path: str, lock: threading.Lock = threading.Lock()) -> None:  # noqa: B008
        with lock:
            job(path)

    saved(here, 0, "0000")
    there.before_write = one_at_a_time
    for _ in range(6):
        report = sync(here, there)
        assert not {path for path in report.failures if "changes all the time" not in str(report.failures[path])}
        job("")
    there.before_write = lambda path: None
    for step in range(4):
        if (here / str(step)).exists():
            commit(here / str(step), step=step)
    sync(here, there)
    assert there.steps() == [found for found in (3, 2, 1, 0) if (here / str(found)).exists()]
