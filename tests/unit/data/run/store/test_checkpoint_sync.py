"""Checkpoints sent to a store while a job writes them: no reader ever sees a part of one for the whole."""

from __future__ import annotations

import itertools
import random
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.run.report.checkpoints import (
    MARKER,
    CheckpointConfig,
    FolderState,
    commit,
    rotate,
    save,
    start_checkpoint,
)
from pai_sdk._data.run.store.checkpoint_sync import CheckpointSync
from pai_sdk._data.run.store.stored_checkpoints import complete_checkpoints, copy_checkpoint, latest_of_each_rank
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.fsspec import FsspecStore
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.sync.dir_sync import SyncReport
from pai_sdk.errors import StorageError


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


def saved(folder: Path, step: int | str, content: str = "1") -> None:
    # Names before and after the marker's in the order of a listing.
    source = folder.parent / f"source-{uuid.uuid4().hex}"
    (source / "z").mkdir(parents=True)
    for name in ("A", "b", "z/c"):
        (source / name).write_text(f"{name}{content}")
    save(FolderState.of(source), folder / str(step), step=int(str(step).rpartition("/")[2]))


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
    sync(here, there, existing=found)
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
            if chance.random() < 0.2 and sum((here / str(each)).exists() for each in range(4)) > 1:
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
    kept = [found for found in (3, 2, 1, 0) if (here / str(found)).exists()]
    # What is newer than all that is here stays in the store.
    assert [step for step in there.steps() if step <= max(kept)] == kept


# ---- what a reader may rely on ------------------------------------------------------------------------------


class Watcher:
    """Notes after each change of a store whether a run that had a complete checkpoint has lost it or gone back."""

    def __init__(self, there: Watched) -> None:
        self.newest = -1
        self.lost: list[str] = []
        look = there._look

        def looks(change: str) -> None:
            look(change)
            newest = max(there.steps(), default=-1)
            if newest < self.newest:
                self.lost.append(f"{change}: step {newest} after {self.newest}")
            self.newest = newest

        there._look = looks  # type: ignore[method-assign]


@pytest.fixture
def watcher(there: Watched) -> Iterator[Watcher]:
    watcher = Watcher(there)
    yield watcher
    assert watcher.lost == []


ONE = CheckpointConfig(num_to_keep=1)


def test_the_only_checkpoint_stays_until_the_next_one_is_complete(
    here: Path, there: Watched, watcher: Watcher
) -> None:
    for step in range(4):
        saved(here, step)
        rotate(here, ONE)
        sync(here, there)
        assert there.steps() == [step]
    assert [path for path in there.paths() if not path.startswith("3/")] == []
    assert watcher.newest == 3


@pytest.mark.parametrize("refused", ["2/A", "2/_COMPLETE", "2/_INCOMPLETE", "2/"])
def test_nothing_old_is_deleted_while_the_new_one_cannot_be_sent(
    here: Path, there: Watched, watcher: Watcher, refused: str
) -> None:
    saved(here, 1)
    sync(here, there)
    saved(here, 2)
    rotate(here, ONE)

    def refuse(path: str) -> None:
        if path.startswith(refused):
            raise StorageError("refused")

    there.before_write = refuse
    for _ in range(2):
        assert sync(here, there).failures
        assert there.steps() == [1]
    there.before_write = lambda path: None
    sync(here, there)
    assert there.steps() == [2]
    assert [path for path in there.paths() if not path.startswith("2/")] == []


def test_the_only_checkpoint_is_replaced_by_another_one_of_its_step(
    here: Path, there: Watched, watcher: Watcher
) -> None:
    """At each moment one of the two is complete; also when sending the second one fails."""
    saved(here, 5, "1")
    sync(here, there)
    saved(here, 5, "2")
    for refused in ("5.pai-sdk-new/b", "5.pai-sdk-new/_COMPLETE"):

        def refuse(path: str, refused: str = refused) -> None:
            if path == refused:
                raise StorageError("refused")

        there.before_write = refuse
        assert sync(here, there).failures
        assert b"".join(there.read("5/A")) == b"A1"
    there.before_write = lambda path: None
    sync(here, there)
    assert there.paths() == ["5/A", "5/_COMPLETE", "5/b", "5/z/c"]
    assert b"".join(there.read("5/A")) == b"A2"
    assert sync(here, there).moved == 0


def test_a_replacement_that_was_not_finished_is_what_readers_find(here: Path, there: Watched) -> None:
    saved(here, 5, "1")
    sync(here, there)
    saved(here, 5, "2")

    def killed(path: str) -> None:
        if path == "5/_COMPLETE":
            raise KeyboardInterrupt

    there.before_write = killed
    with pytest.raises(KeyboardInterrupt):
        sync(here, there)
    there.before_write = lambda path: None
    (found,) = complete_checkpoints(there)
    assert (found.step, found.is_sound(), b"".join(there.read(f"{found.folder}A"))) == (5, True, b"A2")
    (own,) = latest_of_each_rank(there)
    copy_checkpoint(own, there, "5/")  # as a job that resumes from it does
    sync(here, there)
    assert there.paths() == ["5/A", "5/_COMPLETE", "5/b", "5/z/c"]


def test_a_checkpoint_that_is_being_written_is_not_sent(here: Path, there: Watched, watcher: Watcher) -> None:
    saved(here, 1)
    sync(here, there)
    start_checkpoint(here / "2")
    (here / "2" / "A").write_text("half")
    (here / "1" / MARKER).unlink()  # it is saved again
    (here / "1" / "A").write_text("half")
    assert sync(here, there).moved == 0
    assert there.paths() == ["1/A", "1/_COMPLETE", "1/b", "1/z/c"]


def test_what_a_user_writes_into_the_folder_of_a_checkpoint_is_sent_at_the_end(here: Path, there: Watched) -> None:
    """Not by `save`: there is neither a marker nor `_INCOMPLETE`."""
    saved(here, 1)
    sync(here, there)
    shutil.rmtree(here / "1")
    (here / "1").mkdir()
    (here / "1" / "A").write_text("mine")
    assert sync(here, there).moved == 0
    assert there.steps() == [1]
    sync(here, there, is_finished=True)
    assert b"".join(there.read("1/A")) == b"mine"
    assert there.steps() == []


def test_a_folder_that_was_partly_removed_replaces_nothing(here: Path, there: Watched, watcher: Watcher) -> None:
    """The job was killed while it removed the folder, to save the step again."""
    saved(here, 1)
    sync(here, there)
    (here / "1" / MARKER).unlink()
    (here / "1" / "b").unlink()
    sync(here, there, is_finished=True)
    assert there.steps() == [1]


def test_a_folder_without_a_marker_is_sent(here: Path, there: Watched) -> None:
    """Of a user who names folders by steps, and knows nothing of markers."""
    (here / "7").mkdir()
    (here / "7" / "model.pt").write_text("x")
    sync(here, there)
    assert there.paths() == ["7/model.pt"]


def test_the_newest_one_stays_when_it_is_removed_here(here: Path, there: Watched, watcher: Watcher) -> None:
    saved(here, 1)
    saved(here, 2)
    sync(here, there)
    shutil.rmtree(here / "2")
    sync(here, there)
    assert there.steps() == [2, 1]
    saved(here, 3)
    sync(here, there)
    assert there.steps() == [3, 1]


def test_the_same_checkpoint_sent_by_another_process_is_not_sent_again(
    here: Path, there: Watched, watcher: Watcher
) -> None:
    """A training that goes on elsewhere with a copy must not take the only one away to replace it by the same."""
    saved(here, 1)
    sync(here, there)
    (here.parent / "memory.db").unlink()
    there.changes.clear()
    sync(here, there)
    assert there.changes == []
    saved(here, 2)
    rotate(here, ONE)
    sync(here, there)
    assert there.steps() == [2]


def test_a_rank_that_is_ahead_keeps_what_it_can_resume_from(here: Path, there: Watched) -> None:
    for rank in ("", "rank-1/"):
        saved(here, f"{rank}1")
    sync(here, there)
    saved(here, "rank-1/2")
    rotate(here / "rank-1", ONE)
    for _ in range(2):
        sync(here, there)
        assert [(found.rank, found.step) for found in latest_of_each_rank(there)] == [(0, 1), (1, 1)]
    saved(here, 2)
    rotate(here, ONE)
    sync(here, there)
    assert [(found.rank, found.step) for found in latest_of_each_rank(there)] == [(0, 2), (1, 2)]
    assert [path for path in there.paths() if "1/" in path and "rank-1/2" not in path] == []


def test_ranks_rotate_by_themselves(here: Path, there: Watched) -> None:
    for rank in ("", "rank-1/"):
        for step in (1, 2):
            saved(here, f"{rank}{step}")
    sync(here, there)
    for folder in (here, here / "rank-1"):
        rotate(folder, ONE)
    (here / "rank-1" / "2" / MARKER).unlink()  # rank 1 saves it again
    sync(here, there)
    assert there.steps() == [2]
    assert [found.step for found in complete_checkpoints(there, rank=1)] == [2, 1]
    commit(here / "rank-1" / "2", step=2)
    sync(here, there)
    assert [found.step for found in complete_checkpoints(there, rank=1)] == [2]


# ---- what a killed process has left -------------------------------------------------------------------------


def killed_while_sending(here: Path, there: Watched, step: int) -> None:
    saved(here, step)

    def killed(path: str) -> None:
        if path == f"{step}/_COMPLETE":
            raise KeyboardInterrupt

    there.before_write = killed
    with pytest.raises(KeyboardInterrupt):
        sync(here, there)
    there.before_write = lambda path: None


def test_its_own_next_sync_removes_or_completes_it(here: Path, there: Watched) -> None:
    saved(here, 1)
    sync(here, there)
    killed_while_sending(here, there, 2)
    assert "2/_INCOMPLETE" in there.paths()
    sync(here, there)
    assert there.steps() == [2, 1]
    killed_while_sending(here, there, 3)
    shutil.rmtree(here / "3")
    sync(here, there)
    assert [path for path in there.paths() if path[0] == "3" or "_INCOMPLETE" in path] == []


def test_another_process_removes_it_after_a_day(
    here: Path, there: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_while_sending(here, there, 2)
    shutil.rmtree(here / "2")
    (here.parent / "memory.db").unlink()  # another machine goes on
    there.write("1/model.pt", b"of a user, who uses no markers")
    saved(here, 3)
    sync(here, there)
    assert "2/_INCOMPLETE" in there.paths()
    saved(here, 4)
    # As if a day had passed in the store since the first process has written.
    real = FsspecStore.list

    def later(store: Watched, *args: Any, **more: Any) -> Iterator[StoredFile]:
        for file in real(store, *args, **more):
            is_old = file.path[0] in "12"
            yield replace(file, modified_ns=(file.modified_ns or 0) - is_old * 25 * 3600 * 10**9)

    monkeypatch.setattr(Watched, "list", later)
    sync(here, there)
    assert there.steps() == [4, 3]
    assert [path for path in there.paths() if path[0] in "12"] == ["1/model.pt"]


# ---- what a killed job leaves ---------------------------------------------------------------------------------


def left_by_a_kill(here: Path, step: int, content: str) -> None:
    """The job was killed while it put a complete checkpoint in the place of another one."""
    saved(here, step, content)
    (here / str(step)).rename(here / f"{step}.pai-sdk-new")
    start_checkpoint(here / str(step))
    (here / str(step) / "A").write_text("a part")


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("before", [None, "1"])
def test_a_checkpoint_that_was_not_put_in_its_place_is_sent(
    here: Path, there: Watched, before: str | None, is_finished: bool
) -> None:
    if before is not None:
        saved(here, 5, before)
        sync(here, there)
    left_by_a_kill(here, 5, "2")
    sync(here, there, is_finished=is_finished)
    assert there.steps() == [5]
    assert b"".join(there.read("5/A")) == b"A2"
    assert there.paths() == ["5/A", "5/_COMPLETE", "5/b", "5/z/c"]
    there.changes.clear()
    sync(here, there, is_finished=is_finished)
    assert there.changes == []


def test_a_checkpoint_that_cannot_be_sent_from_beside_is_a_failure(here: Path, there: Watched) -> None:
    left_by_a_kill(here, 5, "2")

    def refuse(path: str) -> None:
        raise StorageError("refused")

    there.before_write = refuse
    assert list(sync(here, there, is_finished=True).failures) == ["5/_COMPLETE"]
    there.before_write = lambda path: None
    sync(here, there, is_finished=True)
    assert there.steps() == [5]


def test_a_replacement_is_not_sent_while_its_step_is_complete(here: Path, there: Watched) -> None:
    saved(here, 5, "1")
    (here / "5.pai-sdk-new").mkdir()
    (here / "5.pai-sdk-new" / "A").write_text("half")
    sync(here, there)
    assert there.paths() == ["5/A", "5/_COMPLETE", "5/b", "5/z/c"]


def test_a_folder_with_files_that_failed_stays_marked_as_incomplete(here: Path, there: Watched) -> None:
    saved(here, 5)

    def refuse(path: str) -> None:
        if path.endswith("b"):
            raise StorageError("refused")

    there.before_write = refuse
    assert sync(here, there).failures
    assert there.paths() == ["5/A", "5/_INCOMPLETE", "5/z/c"]
    there.before_write = lambda path: None
    sync(here, there)
    assert there.paths() == ["5/A", "5/_COMPLETE", "5/b", "5/z/c"]


def test_a_marker_that_was_refused_is_sent_and_the_mark_removed(here: Path, there: Watched) -> None:
    saved(here, 5)

    def refuse(path: str) -> None:
        if path.endswith(MARKER):
            raise StorageError("refused")

    there.before_write = refuse
    assert list(sync(here, there).failures) == ["5/_COMPLETE"]
    assert "5/_INCOMPLETE" in there.paths()
    there.before_write = lambda path: None
    sync(here, there)
    assert there.paths() == ["5/A", "5/_COMPLETE", "5/b", "5/z/c"]
