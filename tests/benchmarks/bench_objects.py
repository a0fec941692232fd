"""The object store over its wire, beside copying plain files on the same disk.

The server is a process of its own. Both sides of each comparison read from memory, so the disk only takes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import oss2

from tests.benchmarks.harness import ROOT, Row
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET

REPETITIONS = 5
LARGE_BYTES, LARGE_TIMES = 128 << 20, 4
SMALL_BYTES, SMALL_TIMES = 1000, 800
CONNECTIONS = 8

ROWS = [
    Row("put large objects", "MB/s", at_least=200),
    Row("write and hash large files", "MB/s"),
    Row("write large files with fsync", "MB/s"),
    Row("get large objects", "MB/s", at_least=1000),
    Row("read large files", "MB/s"),
    Row("put small objects, one connection", "/s", at_least=500),
    Row(f"put small objects, {CONNECTIONS} connections", "/s", at_least=500),
    Row("put small objects with oss2", "/s"),
    Row("get small objects, one connection", "/s", at_least=500),
    Row("write small files", "/s"),
    Row("write small files with fsync", "/s"),
]


def measure(cache: Path) -> Mapping[str, float]:
    """Put, get, and do the like with plain files."""
    del cache
    large, small = os.urandom(1 << 20) * (LARGE_BYTES >> 20), b"x" * SMALL_BYTES
    with _served(Path.cwd() / "store") as bucket:
        put_large, get_large = ([_url(bucket, method, "large")] * LARGE_TIMES for method in ("PUT", "GET"))
        put_small, get_small = (
            [_url(bucket, method, f"small/{number}") for number in range(SMALL_TIMES)] for method in ("PUT", "GET")
        )
        values = {
            "put large objects": _megabytes(lambda: _ask("PUT", put_large, large)),
            "get large objects": _megabytes(lambda: _ask("GET", get_large)),
            "put small objects, one connection": _each(lambda: _ask("PUT", put_small, small)),
            f"put small objects, {CONNECTIONS} connections": _each(lambda: _ask_at_once("PUT", put_small, small)),
            "get small objects, one connection": _each(lambda: _ask("GET", get_small)),
            "put small objects with oss2": _each(
                lambda: [bucket.put_object(f"small/{number}", small) for number in range(SMALL_TIMES)]
            ),
        }
    files = Path.cwd() / "files"
    files.mkdir()
    return {
        **values,
        "write and hash large files": _megabytes(lambda: _write_files(files, large, LARGE_TIMES, hashed=True)),
        "write large files with fsync": _megabytes(lambda: _write_files(files, large, LARGE_TIMES, synced=True)),
        "read large files": _megabytes(lambda: _read_files(files, LARGE_TIMES)),
        "write small files": _each(lambda: _write_files(files, small, SMALL_TIMES)),
        "write small files with fsync": _each(lambda: _write_files(files, small, SMALL_TIMES, synced=True)),
    }


@contextmanager
def _served(root: Path) -> Iterator[oss2.Bucket]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.service.objects.serving", str(root), "0"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            endpoint = process.stdout.readline().strip()
            auth = oss2.AuthV4(KEY_ID, SECRET)
            yield oss2.Bucket(auth, endpoint, BUCKET, region=REGION, enable_crc=False, connect_timeout=60)
        finally:
            process.kill()


def _url(bucket: oss2.Bucket, method: str, key: str) -> str:
    return bucket.sign_url(method, key, 600, slash_safe=True)


def _ask(method: str, urls: list[str], body: bytes | None = None) -> None:
    """One request after the other, on one connection."""
    parts = urlsplit(urls[0])
    connection = HTTPConnection(parts.hostname, parts.port, timeout=60)
    buffer = memoryview(bytearray(1 << 20))
    for url in urls:
        parts = urlsplit(url)
        connection.request(method, f"{parts.path}?{parts.query}", body)
        answer = connection.getresponse()
        while answer.readinto(buffer):
            pass
        assert answer.status == 200, answer.status
    connection.close()


def _ask_at_once(method: str, urls: list[str], body: bytes) -> None:
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda first: _ask(method, urls[first::CONNECTIONS], body), range(CONNECTIONS)))


def _write_files(folder: Path, content: bytes, times: int, *, hashed: bool = False, synced: bool = False) -> None:
    for number in range(times):
        with (folder / str(number)).open("wb") as file:
            for at in range(0, len(content), 1 << 20):
                file.write(content[at : at + (1 << 20)])
            if hashed:
                hashlib.md5(content, usedforsecurity=False)
            if synced:
                file.flush()
                os.fsync(file.fileno())


def _read_files(folder: Path, times: int) -> None:
    buffer = memoryview(bytearray(1 << 20))
    for number in range(times):
        with (folder / str(number)).open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _megabytes(work: Callable[[], object]) -> float:
    return LARGE_BYTES * LARGE_TIMES / 1e6 / _seconds(work)


def _each(work: Callable[[], object]) -> float:
    return SMALL_TIMES / _seconds(work)
