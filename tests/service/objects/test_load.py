"""Slow clients, large objects, a disk that takes nothing more: what they must not do to the others."""

from __future__ import annotations

import errno
import os
import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import oss2
import pytest
from oss2.models import PartInfo

from pai_sdk._service.oss.blobs import BlobFolder, BlobWriter
from pai_sdk._service.oss.index import ObjectIndex
from tests.service.objects.conftest import Serve, Wire
from tests.service.objects.contents import LARGE, count_contents
from tests.service.objects.serving import BUCKET
from tests.support.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SLOW = 200
LARGE_MIB = int(os.environ.get("TRIAL_OBJECT_MIB", "96"))
MOST_GROWTH_MIB = 48
MOST_FOR_A_SLOW_ONE_MIB = 1.75


def connect(url: str, method: str, *headers: str, body: bytes = b"") -> socket.socket:
    parts = urlsplit(url)
    made = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)
    lines = [f"{method} {parts.path}?{parts.query} HTTP/1.1", f"Host: {parts.netloc}", *headers, "", ""]
    made.sendall("\r\n".join(lines).encode() + body)
    return made


def files_of(wire: Wire) -> dict[str, list[Path]]:
    root = wire.store.path_of_blob("00").parents[2]
    return {name: [path for path in (root / name).rglob("*") if path.is_file()] for name in ("blobs", "incoming")}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the peak of the memory")
def test_slow_clients_hold_up_nobody_and_little_memory(serve_apart: Serve, tmp_path: Path) -> None:
    """Half of them send a body and stop, half ask for an object and do not read it."""
    incoming = tmp_path / "store" / "incoming"
    with serve_apart(tmp_path / "store") as (wire, process):
        bucket = wire.bucket(enable_crc=False, connect_timeout=PATIENCE_S)
        bucket.put_object("large", b"x" * (8 << 20))
        before = peak_mib(process.pid)
        put, get = bucket.sign_url("PUT", "never", 600), bucket.sign_url("GET", "large", 600)
        with ExitStack() as stack:
            for number in range(SLOW):
                if number % 2:
                    slow = connect(get, "GET")
                else:
                    slow = connect(put, "PUT", "Content-Length: 10000000", body=b"x" * 1_500_000)
                stack.callback(slow.close)
            for number in range(20):
                bucket.put_object(f"quick/{number}", b"x" * 2_000_000)
                assert bucket.get_object(f"quick/{number}").read() == b"x" * 2_000_000
            assert peak_mib(process.pid) - before < SLOW * MOST_FOR_A_SLOW_ONE_MIB
            until(lambda: len(list(incoming.iterdir())) == SLOW / 2)
        until(lambda: not list(incoming.iterdir()))
        assert not bucket.object_exists("never")


@pytest.mark.parametrize(("secret", "first"), [("", b"HTTP/1.1 100 Continue"), ("x", b"HTTP/1.1 403 Forbidden")])
def test_a_client_that_asks_first_is_told_before_it_sends(wire: Wire, secret: str, first: bytes) -> None:
    url = wire.bucket().sign_url("PUT", "expected", 600) + secret
    with connect(url, "PUT", "Content-Length: 5", "Expect: 100-continue") as connection:
        said = connection.recv(1000)
        assert said.startswith(first)
        if not secret:
            connection.sendall(b"hello")
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")
            assert wire.bucket().get_object("expected").read() == b"hello"


def full_disk() -> Exception:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_database() -> Exception:
    return sqlite3.OperationalError("database or disk is full")


def read_only_folder() -> Exception:
    return OSError(errno.EROFS, os.strerror(errno.EROFS))


def read_only_database() -> Exception:
    return sqlite3.OperationalError("attempt to write a readonly database")


@pytest.mark.parametrize(
    ("place", "error", "status", "code", "words"),
    [
        ((BlobWriter, "store_chunks"), full_disk, 507, "InsufficientStorage", "full"),
        ((BlobWriter, "finish"), full_disk, 507, "InsufficientStorage", "full"),
        ((ObjectIndex, "record"), full_database, 507, "InsufficientStorage", "full"),
        ((BlobFolder, "writer"), read_only_folder, 500, "InternalError", "cannot be written: Read-only"),
        ((ObjectIndex, "record"), read_only_database, 500, "InternalError", "cannot be written"),
        ((ObjectIndex, "record"), lambda: ValueError("a fault of ours"), 500, "InternalError", "its log says why"),
    ],
    ids=["full", "full-late", "full-index", "read-only", "read-only-index", "ours"],
)
@pytest.mark.parametrize("size_bytes", [LARGE, 3_000_000])
def test_a_put_that_cannot_be_kept_says_so_and_leaves_the_old_object(
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
    size_bytes: int,
    place: tuple[type, str],
    error: Callable[[], Exception],
    status: int,
    code: str,
    words: str,
) -> None:
    bucket = wire.bucket()
    bucket.put_object("old", b"as it was")
    before = files_of(wire)

    def refuse(*_: object, **__: object) -> None:
        raise error()

    with monkeypatch.context() as patch:
        patch.setattr(*place, refuse)
        with pytest.raises(oss2.exceptions.ServerError) as refused:
            bucket.put_object("old", b"x" * size_bytes)
    assert (refused.value.status, refused.value.code) == (status, code)
    assert words in refused.value.message
    assert files_of(wire) == before
    assert bucket.get_object("old").read() == b"as it was"


@pytest.mark.parametrize(
    ("error", "status", "code", "words"),
    [
        (sqlite3.OperationalError("database or disk is full"), 507, "InsufficientStorage", "full"),
        (
            sqlite3.OperationalError("attempt to write a readonly database"),
            500,
            "InternalError",
            "cannot be written",
        ),
        (ValueError("a fault of ours"), 500, "InternalError", "its log says why"),
    ],
    ids=["full", "read-only", "ours"],
)
def test_a_small_put_that_cannot_be_kept_says_so_and_leaves_the_old_object(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str, words: str
) -> None:
    bucket = wire.bucket()
    bucket.put_object("old", b"as it was")
    before = count_contents(wire.store)

    def refuse(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("pai_sdk._service.oss.object_rows._release", refuse)  # behind all that was written
        with pytest.raises(oss2.exceptions.ServerError) as refused:
            bucket.put_object("old", b"x" * 10)
    assert (refused.value.status, refused.value.code) == (status, code)
    assert words in refused.value.message
    assert count_contents(wire.store) == before
    assert bucket.get_object("old").read() == b"as it was"


class ZeroFile:
    """So many bytes that need no disk."""

    def __init__(self, size_bytes: int) -> None:
        self.len = size_bytes
        self._left = size_bytes

    def read(self, size_bytes: int = -1) -> bytes:
        given = self._left if size_bytes < 0 else min(size_bytes, self._left)
        self._left -= given
        return bytes(given)


def peak_mib(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert found
    return int(found[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the peak of the memory")
@pytest.mark.timeout(120 + LARGE_MIB)
def test_no_object_is_ever_whole_in_memory(serve_apart: Serve, tmp_path: Path) -> None:
    """96 MiB in the fast suite; TRIAL_OBJECT_MIB=2048 for the long run."""
    size_bytes = LARGE_MIB << 20
    with serve_apart(tmp_path / "store") as (wire, process):
        bucket = wire.bucket(enable_crc=False, connect_timeout=600)
        bucket.put_object("small", b"x" * 100_000)
        bucket.get_object("small").read()
        before = peak_mib(process.pid)
        bucket.put_object("large", ZeroFile(size_bytes))
        assert sum(map(len, bucket.get_object("large"))) == size_bytes
        assert sum(map(len, bucket.get_object("large", byte_range=(1, None)))) == size_bytes - 1
        bucket.copy_object(BUCKET, "large", "copied")
        upload_id = bucket.init_multipart_upload("in parts").upload_id
        halves = [(0, size_bytes // 2 - 1), (size_bytes // 2, size_bytes - 1)]
        parts = [
            PartInfo(number, bucket.upload_part_copy(BUCKET, "large", half, "in parts", upload_id, number).etag)
            for number, half in enumerate(halves, 1)
        ]
        bucket.complete_multipart_upload("in parts", upload_id, parts)
        assert bucket.head_object("in parts").content_length == size_bytes
        grown = peak_mib(process.pid) - before
        print(f"{LARGE_MIB} MiB: {grown:.0f} MiB more than before")
        assert grown < MOST_GROWTH_MIB
