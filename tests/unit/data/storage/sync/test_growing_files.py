"""Files that are written while a sync reads them: a log that grows is no failure, and no copy is ever torn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.store import FsspecStore, OssStore, Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync, SyncReport
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import FileChangedError
from tests.unit.data.storage.conftest import BUCKET
from tests.unit.data.storage.stores.flaky_files import Flaky

LARGE = bytes(range(251)) * 40_000  # 10 MB: two parts


class Changing(LocalStore):
    """A folder whose files are changed while they are read: after the first look at one, and before the next."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.change: Callable[[Path], object] = lambda place: None
        self.changes = 0
        self._looks = 0

    def head(self, path: str) -> StoredFile:
        self._looks += 1
        if self._looks > 1 and self.changes:
            self.changes -= 1
            self.change(self.root / path)
        return super().head(path)

    def change_each_time(self, change: Callable[[Path], object], times: int = 1000) -> None:
        self.change, self.changes, self._looks = change, times, 0


@pytest.fixture
def here(tmp_path: Path) -> Changing:
    (tmp_path / "here").mkdir()
    return Changing(tmp_path / "here")


@pytest.fixture(params=["local", "oss", "memory", "flaky"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return LocalStore(tmp_path / "there")
    if request.param == "oss":
        client: OssClient = request.getfixturevalue("client")
        return OssStore(client, OssUri.parse(f"oss://{BUCKET}/run/"))
    Flaky.clear()
    return FsspecStore(f"{request.param}://{tmp_path.name}/run")


def content_of(store: Store, path: str = "log") -> bytes:
    return b"".join(store.read(path))


def append(place: Path) -> None:
    with place.open("ab") as out:
        out.write(b"another line\n")


@pytest.mark.parametrize("first", [b"", b"step 1\n", LARGE], ids=["empty", "small", "large"])
def test_a_file_that_grows_is_stored_as_it_was_read_and_sent_again(
    here: Changing, there: Store, tmp_path: Path, first: bytes
) -> None:
    def sync() -> SyncReport:
        return DirSync(here, there, remember=tmp_path / "memory.db").run()

    here.write("log", first)
    here.write("other", b"1")
    here.change_each_time(append)
    report = sync()
    assert (report.moved, "log" in report.grown) == (2, True)
    stored, now = content_of(there), content_of(here)
    assert stored.startswith(first)
    assert now.startswith(stored)
    assert len(stored) < len(now)
    here.changes = 0
    report = sync()
    assert content_of(there) == content_of(here)
    assert (report.moved >= 1, report.grown) == (True, [])
    assert sync().moved == 0


@pytest.mark.parametrize(
    ("change", "first"),
    [
        (lambda place: place.write_bytes(b"2" * 20), b"1" * 10),
        (lambda place: place.write_bytes(LARGE[::-1] + b"2"), LARGE),
        (lambda place: place.write_bytes(place.read_bytes()[:-1]), b"1" * 2000),
        (lambda place: place.write_bytes(place.read_bytes()[:-1]), LARGE),
    ],
    ids=["rewritten and longer", "large, rewritten and longer", "cut off", "large, cut off"],
)
def test_a_file_that_is_rewritten_while_it_is_read_is_never_stored(
    here: Changing, there: Store, tmp_path: Path, change: Callable[[Path], object], first: bytes
) -> None:
    there.write("log", b"old")
    here.write("log", first)
    turn = [0]

    def changed(place: Path) -> None:
        change(place)
        turn[0] += 1
        with place.open("r+b") as out:  # never twice the same
            out.write(b"%d" % turn[0])

    here.change_each_time(changed)
    report = DirSync(here, there, remember=tmp_path / "memory.db").attempt()
    assert isinstance(report.failures["log"], FileChangedError)
    assert content_of(there) == b"old"
    here.changes = 0
    assert DirSync(here, there, remember=tmp_path / "memory.db").run().grown == []
    assert content_of(there) == content_of(here)


@contextmanager
def in_background(act: Callable[[], object], pause_s: float) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause_s):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("size_bytes", [0, 9 << 20], ids=["small", "large"])
def test_a_log_with_a_line_each_10_ms_never_fails_a_sync(there: Store, tmp_path: Path, size_bytes: int) -> None:
    source = LocalStore(tmp_path / "here")
    log = tmp_path / "here" / "train.log"
    source.write("train.log", b"0" * size_bytes)
    with in_background(lambda: append(log), 0.01):
        for _ in range(4):
            DirSync(source, there, remember=tmp_path / "memory.db").run()
            assert log.read_bytes().startswith(content_of(there, "train.log"))
    DirSync(source, there, remember=tmp_path / "memory.db").run()
    assert content_of(there, "train.log") == log.read_bytes()


class Interleaved(LocalStore):
    """A folder whose files are rewritten in place between two pieces of a reading."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.turns = 0

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        for number, piece in enumerate(super().read(path, start, end)):
            if number == 1 and self.turns:
                self.turns -= 1
                size_bytes = (self.root / path).stat().st_size
                (self.root / path).write_bytes(b"%d" % (self.turns % 10) * size_bytes)
            yield piece


@pytest.mark.parametrize("there", ["local", "memory", "flaky"], indirect=True)  # OSS reads a small file at once
def test_a_copy_is_never_half_old_and_half_new(there: Store, tmp_path: Path) -> None:
    source = Interleaved(tmp_path / "here")
    source.write("state", b"0" * 3_000_000)
    there.write("state", b"old")
    source.turns = 1000
    report = DirSync(source, there, remember=tmp_path / "memory.db").attempt()
    assert isinstance(report.failures["state"], FileChangedError)
    assert content_of(there, "state") == b"old"
    source.turns = 2
    assert DirSync(source, there, remember=tmp_path / "memory.db").run().grown == []
    assert content_of(there, "state") == b"0" * 3_000_000
