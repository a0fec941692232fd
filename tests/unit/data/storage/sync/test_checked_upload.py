"""A large upload is read once, and what is stored is what was read, of one moment."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pai_sdk._data.storage import crc64
from pai_sdk._data.storage.crc64 import crc64_of
from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss import file_range
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.store import OssStore
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync, SyncReport
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import FileChangedError, StorageError, SyncError
from tests.support.fake_oss import FakeOss, Seen
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S
from tests.unit.data.storage.conftest import BUCKET

PART = 1 << 18
SIZE = 5 * PART + 7


@pytest.fixture(autouse=True)
def small_parts(client: OssClient) -> None:
    client.part_sizes = PartSizes(PART)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "here" / "large"
    path.parent.mkdir()
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture(params=["CRC-64", "a store without CRC-64", "a machine without anycrc"])
def checksums(request: pytest.FixtureRequest, oss: FakeOss, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    def forget() -> None:
        for known in (crc64.has_crc64, crc64._model):
            known.cache_clear()

    oss.has_crc64 = request.param != "a store without CRC-64"
    if request.param == "a machine without anycrc":
        # The store has its own.
        monkeypatch.setattr(oss, "crc64", lambda seen, content: {"x-oss-hash-crc64ecma": "1"})
        monkeypatch.setitem(sys.modules, "anycrc", None)
        monkeypatch.setattr(crc64, "_first_error", threading.Lock())
    forget()
    yield request.param
    forget()


def send(client: OssClient, path: Path) -> SyncReport:
    target = OssStore(client, OssUri(BUCKET, "run/"))
    return DirSync(LocalStore(path.parent), target, remember=False, workers=2).run()


def stored(oss: FakeOss) -> bytes:
    return oss.buckets[BUCKET]["run/large"].content


def is_part(seen: Seen) -> bool:
    return seen.method == "PUT" and "partNumber" in seen.query


def at_part(oss: FakeOss, number: int, act: Callable[[], object]) -> None:
    """Does something once, when that part has arrived and is not answered yet."""

    def before(seen: Seen) -> None:
        if seen.query.get("partNumber") == str(number):
            oss.before = lambda seen: None
            act()

    oss.before = before


def test_each_byte_is_read_once_and_no_more_of_them_are_in_memory_than_threads_send(
    client: OssClient, oss: FakeOss, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    buffers: set[int] = set()

    def counting(file: int, buffer: memoryview, at: int) -> int:
        count = os.preadv(file, [buffer], at)
        read.append((at, count))
        buffers.add(id(buffer.obj))
        return count

    monkeypatch.setattr(file_range, "read_into", counting)
    monkeypatch.setattr(LocalStore, "read", None)
    large.write_bytes(os.urandom(SIZE + (4 << 20)))
    client.part_sizes = PartSizes(1 << 21)
    send(client, large)
    assert stored(oss) == large.read_bytes()
    assert sum(count for _, count in read) == large.stat().st_size
    assert len({at for at, _ in read}) == len(read)
    assert len(buffers) <= 2
    assert not any("content-md5" in seen.headers for seen in oss.seen if is_part(seen))


@pytest.mark.usefixtures("wire")
def test_a_disk_that_cannot_be_read_is_no_error_of_the_network(
    client: OssClient, oss: FakeOss, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(file: int, buffer: memoryview, at: int) -> int:
        if at >= 3 * PART:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.preadv(file, [buffer], at)

    monkeypatch.setattr(file_range, "read_into", failing)
    with refused(SyncError) as caught:
        send(client, large)
    error = caught.value.failures["large"]
    assert isinstance(error, StorageError)
    assert not error.retryable
    assert str(large) in str(error)
    assert (oss.buckets[BUCKET], oss.uploads) == ({}, {})


@pytest.mark.usefixtures("checksums")
@pytest.mark.parametrize("size_bytes", [0, 1, PART, PART + 1, 2 * PART])
def test_files_of_all_sizes_arrive(client: OssClient, oss: FakeOss, large: Path, size_bytes: int) -> None:
    large.write_bytes(os.urandom(size_bytes))
    assert send(client, large).moved == 1
    assert stored(oss) == large.read_bytes()
    assert oss.uploads == {}


@pytest.mark.usefixtures("wire")
def test_a_lost_response_is_no_reason_to_send_all_again(
    client: OssClient, oss: FakeOss, large: Path, checksums: str
) -> None:
    oss.fail("lost", fits=lambda seen: seen.method == "POST" and "uploadId" in seen.query)
    send(client, large)
    assert stored(oss) == large.read_bytes()
    # The first part shows that the store has no CRC-64.
    started = 2 if checksums == "a store without CRC-64" else 1
    assert sum("uploads" in seen.query for seen in oss.seen) == started


@pytest.mark.usefixtures("wire")
def test_a_part_that_arrived_damaged_is_sent_again(client: OssClient, oss: FakeOss, large: Path) -> None:
    damages = iter([True, True])
    oss.damages = lambda seen: seen.query.get("partNumber") == "3" and next(damages, False)
    send(client, large)
    assert stored(oss) == large.read_bytes()
    assert [seen.query["partNumber"] for seen in oss.seen if is_part(seen)].count("3") == 3


@pytest.mark.usefixtures("wire")
def test_a_store_that_always_damages_a_part_gets_no_object(client: OssClient, oss: FakeOss, large: Path) -> None:
    oss.misreads = lambda seen: seen.query.get("partNumber") == "3"
    with refused(SyncError) as caught:
        send(client, large)
    error = caught.value.failures["large"]
    assert isinstance(error, StorageError)
    assert (error.code, error.retryable) == ("InvalidDigest", True)
    assert oss.buckets[BUCKET] == {}


def test_an_object_that_is_not_made_of_its_parts_is_deleted(client: OssClient, oss: FakeOss, large: Path) -> None:
    oss.misreads = lambda seen: not is_part(seen)
    with refused(SyncError) as caught:
        send(client, large)
    assert isinstance(caught.value.failures["large"], StorageError)
    assert (oss.buckets[BUCKET], oss.uploads) == ({}, {})


def test_a_wrong_crc64_of_the_last_response_alone_is_no_damage(
    client: OssClient, oss: FakeOss, large: Path
) -> None:
    oss.misreads = lambda seen: seen.method == "POST"
    send(client, large)
    assert stored(oss) == large.read_bytes()


def test_a_store_without_crc64_gets_the_md5_of_each_part_and_it_is_said_once(
    client: OssClient, oss: FakeOss, large: Path, caplog: pytest.LogCaptureFixture
) -> None:
    oss.has_crc64 = False
    with caplog.at_level(logging.INFO, logger="pai_sdk._data.storage.oss.parts"):
        for _ in range(2):
            large.write_bytes(os.urandom(SIZE))
            send(client, large)
    said = [record for record in caplog.records if record.name == "pai_sdk._data.storage.oss.parts"]
    assert len(said) == 1
    with_md5 = [seen.query["partNumber"] for seen in oss.seen if is_part(seen) and "content-md5" in seen.headers]
    assert set(with_md5) == {str(number) for number in range(1, 7)}
    # Downloads are checked by it.
    sha256 = hashlib.sha256(stored(oss)).hexdigest()
    assert oss.buckets[BUCKET]["run/large"].meta["x-oss-meta-pai-sha256"] == sha256
    assert oss.uploads == {}


def test_damage_shows_by_the_etag_where_nothing_else_is_checked(
    client: OssClient, oss: FakeOss, large: Path
) -> None:
    oss.has_crc64 = oss.checks_md5 = False
    damages = iter([True])
    oss.damages = lambda seen: "content-md5" in seen.headers and next(damages, False)
    send(client, large)
    assert next(damages, None) is None
    assert stored(oss) == large.read_bytes()


@pytest.mark.usefixtures("checksums")
def test_a_file_that_is_rewritten_while_it_is_sent_is_stored_as_it_is_then(
    client: OssClient, oss: FakeOss, large: Path
) -> None:
    at_part(oss, 4, lambda: large.write_bytes(os.urandom(SIZE)))
    send(client, large)
    assert stored(oss) == large.read_bytes()
    assert oss.uploads == {}


@pytest.mark.usefixtures("checksums")
def test_a_file_that_is_replaced_while_it_is_sent_is_stored_as_it_is_then(
    client: OssClient, oss: FakeOss, large: Path
) -> None:
    other = large.parent.parent / "other"
    other.write_bytes(os.urandom(SIZE))
    at_part(oss, 2, lambda: other.replace(large))
    send(client, large)
    assert stored(oss) == large.read_bytes()


@pytest.mark.usefixtures("checksums", "wire")
@pytest.mark.parametrize("size_bytes", [0, 100, 2 * PART, SIZE - 1])
def test_a_file_that_is_cut_while_it_is_sent_is_stored_as_it_is_then(
    client: OssClient, oss: FakeOss, large: Path, size_bytes: int
) -> None:
    at_part(oss, 1, lambda: os.truncate(large, size_bytes))
    send(client, large)
    assert stored(oss) == large.read_bytes()
    assert len(stored(oss)) == size_bytes


@pytest.mark.usefixtures("checksums")
def test_a_file_that_grows_while_it_is_sent_is_stored_as_it_was(
    client: OssClient, oss: FakeOss, large: Path
) -> None:
    before = large.read_bytes()

    def grow() -> None:
        with large.open("ab") as out:
            out.write(b"more")

    at_part(oss, 3, grow)
    assert send(client, large).grown == ["large"]
    assert stored(oss) == before


def test_a_file_that_is_rewritten_all_the_time_is_never_stored(
    client: OssClient, oss: FakeOss, large: Path
) -> None:
    oss.before = lambda seen: large.write_bytes(os.urandom(SIZE)) if is_part(seen) else None
    with refused(SyncError) as caught:
        send(client, large)
    assert isinstance(caught.value.failures["large"], FileChangedError)
    assert (oss.buckets[BUCKET], oss.uploads) == ({}, {})


def test_a_file_that_is_deleted_while_it_is_sent_is_left_out(client: OssClient, oss: FakeOss, large: Path) -> None:
    at_part(oss, 2, large.unlink)
    assert send(client, large).moved == 0
    assert (oss.buckets[BUCKET], oss.uploads) == ({}, {})


class Swapping(LocalStore):
    """A folder of a job that replaces a file by a link out of the folder, once the file was looked at."""

    def __init__(self, root: Path, secret: Path) -> None:
        super().__init__(root, links="inside")
        self._secret = secret

    def head(self, path: str) -> StoredFile:
        found = super().head(path)
        (self.root / path).unlink()
        (self.root / path).symlink_to(self._secret)
        return found


@pytest.mark.parametrize("size_bytes", [100, SIZE])
def test_nothing_outside_of_a_jobs_folder_is_sent(
    client: OssClient, oss: FakeOss, large: Path, tmp_path: Path, size_bytes: int
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"?" * size_bytes)
    large.write_bytes(os.urandom(size_bytes))
    os.utime(large, (1, 1))
    with pytest.raises(SyncError):
        DirSync(Swapping(large.parent, secret), OssStore(client, OssUri(BUCKET, "run/")), remember=False).run()
    assert not any(seen.method == "PUT" for seen in oss.seen)


@pytest.mark.parametrize("is_same", [True, False])
def test_two_files_sent_to_one_object_leave_one_of_them(
    client: OssClient, oss: FakeOss, large: Path, tmp_path: Path, is_same: bool
) -> None:
    other = tmp_path / "there" / "large"
    other.parent.mkdir()
    other.write_bytes(large.read_bytes() if is_same else os.urandom(SIZE))
    together = threading.Barrier(2, timeout=PATIENCE_S)
    errors: list[BaseException] = []

    def run(path: Path) -> None:
        together.wait()
        try:
            send(client, path)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(path,)) for path in (large, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert stored(oss) in (large.read_bytes(), other.read_bytes())
    assert oss.uploads == {}


@pytest.mark.usefixtures("checksums")
def test_content_of_unknown_length_is_checked_too(client: OssClient, oss: FakeOss) -> None:
    store = OssStore(client, OssUri(BUCKET, "run/"))
    chunks = [os.urandom(PART - 1) for _ in range(4)]
    store.write("large", iter(chunks))
    assert stored(oss) == b"".join(chunks)
    if oss.has_crc64 and crc64.has_crc64():
        oss.misreads = lambda seen: is_part(seen) and seen.query["partNumber"] == "2"
        with refused(StorageError, code="InvalidDigest"):
            store.write("other", iter(chunks))
        assert "run/other" not in oss.buckets[BUCKET]
        assert crc64_of(stored(oss)) == crc64_of(b"".join(chunks))
