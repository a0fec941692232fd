"""Stores over fsspec whose file system fails: what is tried again, what is not, and what is never left out."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.stores.fsspec import FsspecStore
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
from pai_sdk.errors import ObjectNotFoundError, PathConflictError, StorageError, SyncError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until
from tests.unit.data.storage.stores.flaky_files import Flaky, FlakyObjects, Refused

PASSING = [
    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    TimeoutError("timed out"),
    OSError(errno.EBUSY, "Please reduce your request rate."),
    Refused(429),
    Refused(503),
]
FINAL = [
    PermissionError(errno.EACCES, "Forbidden"),
    Refused(403),
    Refused(400),
    ValueError("no such option"),
]
NAMES = [type(error).__name__ + str(getattr(error, "status", "")) for error in (*PASSING, *FINAL)]


@pytest.fixture(params=["flaky", "flaky-objects"])
def store(request: pytest.FixtureRequest) -> FsspecStore:
    for kind in (Flaky, FlakyObjects):
        kind.clear()
    retry = RetryPolicy(max_attempts=3, sleep=lambda seconds: None)
    return FsspecStore(f"{request.param}://b/run/", {"retry": retry})


@pytest.fixture
def files(store: FsspecStore) -> Flaky:
    found: Flaky = store._fs
    return found


def content_of(store: FsspecStore, path: str) -> bytes:
    return b"".join(store.read(path))


@pytest.mark.parametrize("error", PASSING, ids=NAMES[: len(PASSING)])
def test_what_may_pass_is_tried_again(store: FsspecStore, files: Flaky, error: Exception) -> None:
    def fail(method: str, end: str = "") -> None:
        files.errors = {(method, end): [error, error]}

    writes = "pipe_file" if store._is_object_store else "mv"
    fail(writes, "/a")
    store.write("a", b"hello")
    fail("info", "/a")
    assert store.head("a").size_bytes == 5
    fail("cat_file")
    assert content_of(store, "a") == b"hello"
    fail("find" if store._is_object_store else "ls", "/run")
    assert [file.path for file in store.list()] == ["a"]
    fail("rm_file", "/a")
    store.delete(["a"])
    assert list(store.list()) == []
    fail("cat_file")
    with pytest.raises(ObjectNotFoundError):
        content_of(store, "a")


@pytest.mark.parametrize("error", FINAL, ids=NAMES[len(PASSING) :])
def test_what_cannot_pass_is_an_error_at_once(store: FsspecStore, files: Flaky, error: Exception) -> None:
    store.write("a", b"hello")
    files.errors = {("cat_file", ""): [error] * 9}
    files.calls.clear()
    with pytest.raises(StorageError) as caught:
        content_of(store, "a")
    assert files.calls["cat_file"] == 1
    assert not caught.value.retryable
    assert not isinstance(caught.value, ObjectNotFoundError)


def test_the_retries_end(store: FsspecStore, files: Flaky) -> None:
    store.write("a", b"hello")
    files.errors = {("cat_file", ""): [ConnectionResetError("again and again")] * 9}
    files.calls.clear()
    with refused(StorageError) as caught:
        content_of(store, "a")
    assert caught.value.retryable
    assert files.calls["cat_file"] == 3


def test_a_read_that_breaks_off_begins_again_and_doubles_nothing(store: FsspecStore, files: Flaky) -> None:
    content = bytes(range(256)) * 40_000  # three pieces
    store.write("a", content)
    files.broken_reads = [1000, 4 << 20, 7]
    assert content_of(store, "a") == content


def test_a_write_that_breaks_off_begins_again(store: FsspecStore, files: Flaky, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    (tmp_path / "source").write_bytes(content)
    breaks = iter([True, True])
    opened = files.open

    def breaking(path: str, mode: str = "rb", **kwargs: object) -> object:
        stream = opened(path, mode, **kwargs)
        write = stream.write

        def broken(piece: bytes) -> object:
            written = write(piece)
            if "w" in mode and next(breaks, False):
                raise ConnectionResetError("the connection broke")
            return written

        stream.write = broken
        return stream

    files.open = breaking  # type: ignore[method-assign]
    store.write("a", tmp_path / "source")
    assert content_of(store, "a") == content
    DirSync(LocalStore(tmp_path), store, remember=False).run()
    assert content_of(store, "source") == content


def test_a_content_that_can_be_read_once_is_not_sent_twice(store: FsspecStore, files: Flaky) -> None:
    def pieces() -> Iterator[bytes]:
        yield from (b"1" * (5 << 20), b"2" * (5 << 20))

    files.errors = {("mv", "/a"): [ConnectionResetError("broke")], ("pipe_file", "/a"): []}
    if store._is_object_store:
        store.write("a", pieces())
    else:
        with refused(StorageError):
            store.write("a", pieces())
    files.errors = {("mv", "/b"): [ConnectionResetError("broke")], ("pipe_file", "/b"): [ConnectionResetError()]}
    store.write("b", (piece for piece in (b"small", b"er")))
    assert content_of(store, "b") == b"smaller"


def test_one_broken_connection_does_not_fail_a_sync(store: FsspecStore, files: Flaky, tmp_path: Path) -> None:
    for name in "abc":
        LocalStore(tmp_path / "here").write(name, name.encode())
    files.errors = {(method, "/b"): [ConnectionResetError("broke")] for method in ("pipe_file", "mv", "info")}
    assert DirSync(LocalStore(tmp_path / "here"), store, remember=False).run().moved == 3
    files.errors = {(method, "/b"): [ConnectionResetError("broke")] for method in ("cat_file", "info")}
    assert DirSync(store, LocalStore(tmp_path / "there"), remember=False).run().moved == 3


def test_a_sync_gives_up_when_the_other_side_is_down(store: FsspecStore, files: Flaky, tmp_path: Path) -> None:
    for number in range(300):
        LocalStore(tmp_path / "here").write(str(number), b"1")
    writes = "pipe_file" if store._is_object_store else "mv"
    files.errors = {(writes, ""): [ConnectionResetError("down") for _ in range(10_000)]}
    with pytest.raises(SyncError, match="remaining files were skipped"):
        DirSync(LocalStore(tmp_path / "here"), store, remember=False, workers=4).run()
    assert files.calls[writes] < 100


def test_an_interrupted_sync_does_not_wait_for_retries(tmp_path: Path) -> None:
    FlakyObjects.clear()
    store = FsspecStore("flaky-objects://b/run/")  # with real pauses, for a minute
    LocalStore(tmp_path / "here").write("a", b"1")
    LocalStore(tmp_path / "here").write("b", b"1")
    FlakyObjects.errors = {("pipe_file", "/a"): [ConnectionResetError("down") for _ in range(10_000)]}

    def note(action: str, path: str) -> None:
        if path == "b":
            until(lambda: FlakyObjects.calls["pipe_file"] > 0)
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        DirSync(LocalStore(tmp_path / "here"), store, remember=False, note=note).run()
    assert time.monotonic() - began < PATIENCE_S / 2


# ---- what a listing cannot have -----------------------------------------------------------------------------


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    Flaky.clear()
    store, there = FsspecStore("flaky://b/run/"), LocalStore(tmp_path / "there")
    for name in ("a", "sub/deep/b", "z"):
        store.write(name, b"1")
        there.write(name, b"0")
    Flaky.errors = {("ls", "/deep"): [PermissionError(errno.EACCES, "Forbidden") for _ in range(3)]}
    with refused(StorageError):
        list(store.list())
    unlisted: dict[str, Exception] = {}
    assert [file.path for file in store.list(unlisted=unlisted.__setitem__)] == ["a", "z"]
    assert set(unlisted) == {"sub/deep"}
    with refused(SyncError):
        DirSync(store, there, delete=True, remember=False).run()
    assert content_of(there, "sub/deep/b") == b"0"  # type: ignore[arg-type]


SHAPES = [
    {"x": b"file", "y/a": b"1", "y/b/c": b"2", "z/q": b"3"},
    {"x/n": b"in a folder", "x/m/k": b"deep", "y": b"file", "z": b"file"},
    {"x/n/d": b"deeper", "y/a": b"file", "y/b": b"file", "z/q/r": b"3"},
]


@pytest.mark.parametrize(("first", "second"), list(permutations(range(3), 2)))
def test_files_and_folders_change_places(tmp_path: Path, first: int, second: int) -> None:
    """As on HDFS: a name is that of a file or of a folder, also deep in the tree."""
    source, target = tmp_path / "source", FsspecStore(f"file://{tmp_path}/target")
    for shape in (SHAPES[first], SHAPES[second]):
        shutil.rmtree(source, ignore_errors=True)
        for path, content in shape.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(content)
        DirSync(LocalStore(source), target, delete=True, remember=False).run()
        assert {file.path: content_of(target, file.path) for file in target.list()} == shape
    left = [path.name for path in (tmp_path / "target").rglob("*") if path.name.startswith(".")]
    assert left == []


@pytest.mark.parametrize(("path", "taken"), [("a", "a/b"), ("a/b", "a")])
def test_a_name_that_is_taken_is_said_and_nothing_is_left(tmp_path: Path, path: str, taken: str) -> None:
    store = FsspecStore(f"file://{tmp_path}")
    store.write(taken, b"there")
    with pytest.raises(PathConflictError):
        store.write(path, b"new")
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [taken.rpartition("/")[2]]


def test_names_with_a_slash_before_the_bucket() -> None:
    Flaky.clear()
    store = FsspecStore("flaky://b/run/")
    store._root = "b/run"
    store.write("sub/a", b"1")
    assert [file.path for file in store.list()] == ["sub/a"]


class Sized(Iterable[bytes]):
    """The beginning of a content of some size."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def __iter__(self) -> Iterator[bytes]:
        return iter([bytes(9 << 20)])


@pytest.mark.parametrize(
    ("size_bytes", "part_bytes"), [(9 << 20, 8 << 20), (80_000_000_000, 9 << 20), (5 << 40, 583 << 20)]
)
def test_a_content_of_any_size_is_sent_in_few_enough_parts(
    size_bytes: int, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    usual = FlakyObjects.open

    def noted(files: FlakyObjects, path: str, mode: str, block_size: int | None, **options: Any) -> Any:
        asked.append(block_size)
        return usual(files, path, mode, block_size, **options)

    monkeypatch.setattr(FlakyObjects, "open", noted)
    FsspecStore("flaky-objects://b").write("a", Sized(size_bytes))
    assert asked == [part_bytes]
    assert size_bytes / part_bytes < 10_000
