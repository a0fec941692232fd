"""Checkpoints in stores: readers see complete ones only, at every moment of a copy."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.run.report.checkpoints import MARKER, commit, is_complete, read_checkpoint
from pai_sdk._data.run.store import stored_checkpoints
from pai_sdk._data.run.store.stored_checkpoints import (
    complete_checkpoints,
    copy_checkpoint,
    latest_checkpoint,
    latest_of_each_rank,
    unfinished_files,
)
from pai_sdk._data.storage.store import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.fsspec import FsspecStore
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk.errors import CheckpointError
from tests.support.messages import refused


def saved(run: Path, step: int, *, rank: int = 0, weights: str = "1.0") -> Path:
    folder = run / "checkpoints" / (f"rank-{rank}/{step}" if rank else str(step))
    (folder / "part").mkdir(parents=True)
    (folder / "weights").write_text(weights)
    (folder / "part" / "Optimizer").write_text(f"state {step}")
    commit(folder, step=step, metrics={"loss": 1 / (step + 1)})
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (9, 10, 100):
        saved(tmp_path / "run", step)
    return tmp_path / "run"


def steps(where: object, **more: object) -> list[int]:
    return [found.step for found in complete_checkpoints(where, **more)]  # type: ignore[arg-type]


def in_memory(run: Path) -> FsspecStore:
    store = FsspecStore(f"memory://{uuid.uuid4().hex}/")
    for path in run.rglob("*"):
        if path.is_file():
            store.write(path.relative_to(run).as_posix(), path)
    return store


def test_a_run_its_checkpoints_a_uri_and_a_store_give_the_same(run: Path) -> None:
    memory = in_memory(run)
    for where in (run, str(run), run.as_uri(), run / "checkpoints", LocalStore(run), memory, memory.uri):
        assert steps(where) == [100, 10, 9]
    found = latest_checkpoint(memory)
    assert found is not None
    assert (found.step, found.metrics, sorted(found.files)) == (
        100,
        {"loss": 1 / 101},
        ["part/Optimizer", "weights"],
    )
    assert found.uri == f"{memory.uri}checkpoints/100/"
    assert list(complete_checkpoints(run / "nothing")) == []


def test_a_job_is_asked_for_its_output(run: Path) -> None:
    class Job:
        def open_output(self, channel: str) -> Store:
            return LocalStore(run / channel)

    assert steps(Job()) == [100, 10, 9]


def test_what_is_only_partly_there_is_left_out(run: Path) -> None:
    checkpoints = run / "checkpoints"
    (checkpoints / "100" / "weights").unlink()
    (checkpoints / "10" / MARKER).write_text("{")
    saved(run, 200)
    (checkpoints / "200" / "weights").write_text("longer than before")
    (checkpoints / "300.tmp").mkdir()
    (checkpoints / "300.tmp" / MARKER).write_text((checkpoints / "9" / MARKER).read_text())
    assert steps(run) == steps(in_memory(run)) == [9]


def test_damaged_content_is_seen_on_demand(run: Path) -> None:
    (run / "checkpoints" / "100" / "weights").write_text("1.1")
    assert steps(run) == [100, 10, 9]
    assert steps(run, checksums=True) == [10, 9]


def test_each_rank_has_its_own(run: Path) -> None:
    for step in (9, 10, 200):
        saved(run, step, rank=1)
    assert steps(run) == [100, 10, 9]
    assert steps(run, rank=1) == [200, 10, 9]
    # Rank 1 was further when the job was killed; it resumes where rank 0 can.
    assert [(found.rank, found.step) for found in latest_of_each_rank(LocalStore(run))] == [(0, 100), (1, 10)]


class Watched(FsspecStore):
    """Calls back after each change."""

    def __init__(self) -> None:
        super().__init__(f"memory://{uuid.uuid4().hex}/")
        self.changed = lambda: None

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        written = super().write(path, content, executable=executable)
        self.changed()
        return written

    def delete(self, paths: Iterable[str]) -> None:
        super().delete(paths)
        self.changed()


def test_a_reader_never_sees_a_part_of_a_copy(run: Path, tmp_path: Path) -> None:
    """One checkpoint is copied over another one of the same step and sizes: no reader sees a mixture."""
    target = Watched()
    seen: set[str] = set()

    def look() -> None:
        for found in complete_checkpoints(target, checksums=False):
            contents = {b"".join(target.read(found.folder + name)) for name in ("weights",)}
            assert found.is_sound()
            seen.update(content.decode() for content in contents)

    target.changed = look
    for source in (run, tmp_path / "other"):
        if source != run:
            saved(source, 100, weights="2.0")
        newest = latest_checkpoint(source)
        assert newest is not None
        copy_checkpoint(newest, target, "checkpoints/100/")
    assert seen == {"1.0", "2.0"}


def test_a_copy_that_is_there_is_not_made_again(run: Path) -> None:
    target = Watched()
    newest = latest_checkpoint(run)
    assert newest is not None
    copy_checkpoint(newest, target, "100/")
    target.changed = lambda: pytest.fail("it was copied again")
    copy_checkpoint(newest, target, "100/")
    assert steps(target) == [100]


def test_a_checkpoint_that_is_replaced_during_the_copy_gets_no_marker(run: Path) -> None:
    newest = latest_checkpoint(run)
    assert newest is not None
    target = Watched()

    def replace_source() -> None:
        target.changed = lambda: None
        commit(run / "checkpoints" / "100", step=100, metrics={"loss": 5.0})

    target.changed = replace_source
    with refused(CheckpointError):
        copy_checkpoint(newest, target, "100/")
    assert steps(target) == []


def test_a_download_is_the_same_checkpoint(run: Path, tmp_path: Path) -> None:
    newest = latest_checkpoint(in_memory(run))
    assert newest is not None
    here = newest.download(tmp_path / "here")
    assert here == read_checkpoint(tmp_path / "here", checksums=True)
    assert (here.path / "part" / "Optimizer").read_text() == "state 100"


def test_a_damaged_checkpoint_is_not_downloaded(run: Path, tmp_path: Path) -> None:
    """The size is right, the content is not; the folder keeps what it had."""
    store = in_memory(run)
    (earlier,) = [found for found in complete_checkpoints(store) if found.step == 10]
    earlier.download(tmp_path / "here")
    store.write("checkpoints/100/weights", b"1.1")
    newest = latest_checkpoint(store)
    assert newest is not None
    with refused(CheckpointError):
        newest.download(tmp_path / "here")
    assert read_checkpoint(tmp_path / "here", checksums=True) == earlier.download(tmp_path / "here")
    assert sorted(entry.name for entry in (tmp_path / "here").iterdir()) == [MARKER, "part", "weights"]


def test_a_download_that_is_damaged_here_is_made_again(run: Path, tmp_path: Path) -> None:
    newest = latest_checkpoint(run)
    assert newest is not None
    newest.download(tmp_path / "here")
    (tmp_path / "here" / "weights").write_text("1.1")
    newest.download(tmp_path / "here")
    assert is_complete(tmp_path / "here", checksums=True)


def test_the_latest_one_is_never_replaced_by_an_older_one(run: Path, tmp_path: Path) -> None:
    newest = latest_checkpoint(run)
    assert newest is not None
    newest.download(tmp_path / "here")
    (tmp_path / "here" / "notes").write_text("of a user")
    (run / "checkpoints" / "100" / MARKER).unlink()
    older = latest_checkpoint(run)
    assert older is not None
    with refused(CheckpointError):
        older.download(tmp_path / "here")
    assert is_complete(tmp_path / "here", checksums=True)
    saved(run, 101)
    later = latest_checkpoint(run)
    assert later is not None
    assert later.download(tmp_path / "here").step == 101
    (chosen,) = [found for found in complete_checkpoints(run) if found.step == 9]
    assert chosen.download(tmp_path / "here").step == 9  # asked for by name
    assert (tmp_path / "here" / "notes").read_text() == "of a user"


def test_what_was_not_completed_is_not_for_the_next_job(run: Path) -> None:
    store = in_memory(run / "checkpoints")
    before = {file.path for file in store.list()}
    for path in ("200/weights", "200/_INCOMPLETE", "rank-1/7/_INCOMPLETE", "100/_INCOMPLETE"):
        store.write(path, b"x")
    for path in ("300/model.pt", "notes"):  # of a user who knows nothing of markers
        store.write(path, b"x")
    for name in ("weights", "part/Optimizer", MARKER):
        store.copy(f"100/{name}", f"400.pai-sdk-new/{name}")
    is_unfinished = unfinished_files(store)
    kept = {file.path for file in store.list() if not is_unfinished(file)}
    assert kept - before == {"300/model.pt", "notes", "400/weights", "400/part/Optimizer", "400/_COMPLETE"}
    assert before - kept == set()


# ---- rotation and kills ---------------------------------------------------------------------------------------


def plain(folder: Path, step: int, **contents: str) -> Path:
    place = folder / str(step)
    place.mkdir(parents=True)
    for name, content in (contents or {"weights": "1.0"}).items():
        (place / name).write_text(content)
    commit(place, step=step)
    return folder


class Rotating(LocalStore):
    """Between its first list and what is read next, the job completes 11 and removes 7."""

    def list(self, prefix: str = "", **more: Any) -> Iterator[StoredFile]:
        found = list(super().list(prefix, **more))
        if (self.root / "7").exists() and any(file.path.startswith("7/") for file in found):
            plain(self.root, 11)
            (self.root / "7" / MARKER).unlink()
            shutil.rmtree(self.root / "7")
        yield from found


@pytest.mark.parametrize("best", [None, 3])
def test_the_latest_is_found_while_a_rotation_removes_the_listed_one(tmp_path: Path, best: int | None) -> None:
    def rotating(name: str) -> Rotating:
        for step in filter(None, (best, 7)):
            plain(tmp_path / name, step)
        return Rotating(tmp_path / name)

    found = latest_checkpoint(rotating("a"))
    assert found is not None
    assert found.step == 11
    assert [each.step for each in latest_of_each_rank(rotating("b"))] == [11]


@pytest.mark.parametrize("at", range(6))
def test_a_download_that_is_cut_off_leaves_a_complete_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    plain(tmp_path / "a", 7, weights="1.0", more="1.0")
    plain(tmp_path / "b", 8, weights="2.0", other="2.0")
    first, second = (latest_checkpoint(tmp_path / name) for name in "ab")
    assert first is not None
    assert second is not None
    target = tmp_path / "target"
    first.download(target)
    (target / "notes").write_text("of the user")
    left: list[int] = []
    copy = stored_checkpoints.copy_checkpoint

    class Killed(BaseException):
        pass

    def copied(*args: Any) -> None:
        copy(*args)
        left.append(at)  # all files have arrived, and replace the others now

    def counted(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if left:
                left[0] -= 1
                if left[0] < 0:  # and nothing is cleaned up afterwards
                    raise Killed
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as cut:
        for place, name in ((stored_checkpoints, "link_file"), (LocalStore, "delete"), (LocalStore, "write")):
            cut.setattr(place, name, counted(getattr(place, name)))
        cut.setattr(stored_checkpoints, "copy_checkpoint", copied)
        cut.setattr(stored_checkpoints.StoredCheckpoint, "_settle", lambda *args, **kwargs: None)
        with suppress(Killed):
            second.download(target)
    found = read_checkpoint(target, checksums=True)
    assert found is not None
    assert found.step in (7, 8)
    assert second.download(target).step == 8
    assert read_checkpoint(target, checksums=True).path == target  # type: ignore[union-attr]
    assert sorted(path.name for path in target.iterdir()) == [MARKER, "notes", "other", "weights"]


def test_a_download_that_fails_keeps_what_a_killed_one_has_left(tmp_path: Path) -> None:
    """The draft of the killed one is the only complete checkpoint."""
    first = latest_checkpoint(plain(tmp_path / "a", 7))
    second = latest_checkpoint(plain(tmp_path / "b", 8))
    assert first is not None
    assert second is not None
    target = tmp_path / "target"
    first.download(target / ".pai-sdk-new")
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(CheckpointError):
        second.download(target)
    found = read_checkpoint(target, checksums=True)
    assert found is not None
    assert (found.step, found.path) == (7, target)
