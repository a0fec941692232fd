"""Files, and the parts of a large one, go several at a time: each waits here until others have come too."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.pool import LARGE_WORKERS, SMALL_BYTES, SMALL_WORKERS, TransferPool
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.stores.oss import OssStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
from pai_sdk._data.storage.sync.memory import SyncMemory
from pai_sdk._data.storage.transfer import download, upload
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from tests.support.fake_oss import FakeOss, Seen
from tests.support.waiting import PATIENCE_S, until
from tests.unit.data.storage.conftest import BUCKET

TOGETHER = 4


class Company:
    """Keeps requests of one kind back until so many are there at once."""

    def __init__(self, is_one: Callable[[Seen], bool]) -> None:
        self._is_one = is_one
        self._barrier = threading.Barrier(TOGETHER)

    def wait(self, seen: Seen) -> None:
        """Called by the store before it answers."""
        if self._is_one(seen):
            self._barrier.wait(PATIENCE_S)

    @property
    def was_there(self) -> bool:
        """Whether no thread waited in vain."""
        return not self._barrier.broken


@pytest.fixture
def large_are_small(client: OssClient) -> None:
    """Parts of 64 KiB, so that a file of half a megabyte is a large one."""
    client.part_sizes = PartSizes(1 << 16, 1 << 17)


def test_files_of_a_folder(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    for number in range(2 * TOGETHER):
        (tmp_path / "from").mkdir(exist_ok=True)
        (tmp_path / "from" / f"{number}.bin").write_bytes(b"x" * number)
    for method, transfer in (
        ("PUT", lambda: upload(client, tmp_path / "from", OssUri(BUCKET, "data/"), progress=False)),
        ("GET", lambda: download(client, OssUri(BUCKET, "data/"), tmp_path / "to", progress=False)),
    ):
        company = Company(lambda seen, method=method: seen.method == method and seen.key.endswith(".bin"))
        oss.before = company.wait
        transfer()
        assert company.was_there
    assert FileTree.scan(tmp_path / "to").digest == FileTree.scan(tmp_path / "from").digest


@pytest.mark.usefixtures("large_are_small")
def test_parts_of_a_file(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    (tmp_path / "from").write_bytes(os.urandom(2 * TOGETHER << 16))
    for method, transfer in (
        ("PUT", lambda: upload(client, tmp_path / "from", OssUri(BUCKET, "large"), progress=False)),
        ("GET", lambda: download(client, OssUri(BUCKET, "large"), tmp_path / "to", progress=False)),
    ):
        company = Company(
            lambda seen, method=method: (
                seen.method == method and bool({"partNumber", "range"} & {*seen.query, *seen.headers})
            )
        )
        oss.before = company.wait
        transfer()
        assert company.was_there
    assert (tmp_path / "to").read_bytes() == (tmp_path / "from").read_bytes()


def test_small_files_have_more_threads_than_large_ones() -> None:
    """A small file costs a round trip; a part of a large one costs memory and bandwidth."""
    arrived = threading.Semaphore(0)
    gate = threading.Event()

    def hold() -> None:
        arrived.release()
        gate.wait(PATIENCE_S)

    begun = {"small": 0, "large": 0}
    with TransferPool() as pool:
        for kind, size_bytes in (("small", SMALL_BYTES), ("large", SMALL_BYTES + 1)):
            most = SMALL_WORKERS if kind == "small" else LARGE_WORKERS
            for number in range(most + 3):  # those that find no thread wait in the queue
                pool.submit_file(f"{kind}{number}", hold, size_bytes=size_bytes)
            while begun[kind] < most and arrived.acquire(timeout=PATIENCE_S):
                begun[kind] += 1
        assert not arrived.acquire(blocking=False)
        gate.set()
    assert begun == {"small": SMALL_WORKERS, "large": LARGE_WORKERS}
    assert pool.failures == {}


@pytest.mark.usefixtures("large_are_small")
def test_a_large_file_is_sent_while_another_one_is_completed(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    (tmp_path / "from").mkdir()
    for name in ("a", "b"):
        (tmp_path / "from" / name).write_bytes(os.urandom(4 << 16))
    is_sent = threading.Event()
    waited: list[bool] = []

    def complete_late(seen: Seen) -> None:
        if seen.key.endswith("b") and "partNumber" in seen.query:
            is_sent.set()
        elif seen.key.endswith("a") and seen.method == "POST" and "uploadId" in seen.query:
            waited.append(is_sent.wait(PATIENCE_S))

    oss.before = complete_late
    upload(client, tmp_path / "from", OssUri(BUCKET, "data/"), progress=False)
    assert waited == [True]


@pytest.mark.usefixtures("large_are_small")
def test_large_files_are_remembered_while_others_are_sent(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    """A process that is killed does not send the files again that it has completed."""
    (tmp_path / "from").mkdir()
    for name in ("a", "b"):
        (tmp_path / "from" / name).write_bytes(os.urandom(4 << 16))
    rows: list[str] = []

    def look(seen: Seen) -> None:
        if seen.key.endswith("b") and seen.method == "POST" and "uploadId" in seen.query:
            with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
                until(
                    lambda: bool(database.execute("SELECT 1 FROM moved").fetchall()), "the row of the other file"
                )
                rows.extend(path for (path,) in database.execute("SELECT path FROM moved"))

    oss.before = look
    source, target = LocalStore(tmp_path / "from"), OssStore(client, OssUri(BUCKET, "data/"))
    with SyncMemory(tmp_path / "rows.db", max_wait_s=-1.0) as memory:
        DirSync(source, target, remember=memory).run()
    assert rows == ["a"]
