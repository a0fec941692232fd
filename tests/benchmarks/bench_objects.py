"""The object store over its wire, beside copying plain files on the same disk.

The server is a process of its own. Both sides of each comparison read from memory, so the disk only takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import oss2
import psutil

from pai_sdk._data.storage.crc64 import crc64_of
from tests.benchmarks.harness import ROOT, Row
from tests.benchmarks.many_connections import ask_all, signed_request
from tests.benchmarks.relay import Relay
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET

REPETITIONS = 5
LARGE_BYTES, LARGE_TIMES = 128 << 20, 4
SMALL_BYTES, SMALL_TIMES = 1000, 800
CONNECTIONS = 8
MANY, MANY_TIMES, MANY_BYTES = 32, 3000, 4096
FAR_CONNECTIONS, FAR_TIMES, FAR_S = 64, 1000, 0.02

ROWS = [
    Row("put large objects", "MB/s", at_least=500),
    Row("CPU of the service for a put of 1 GiB", "s", at_most=0.8),
    Row("CPU of the service for a get of 1 GiB", "s", at_most=0.4),
    Row("write and hash large files", "MB/s"),
    Row("write large files with fsync", "MB/s"),
    Row("get large objects", "MB/s", at_least=1000),
    Row("read large files", "MB/s"),
    Row("put small objects, one connection", "/s", at_least=500),
    Row(f"put small objects, {CONNECTIONS} connections", "/s", at_least=500),
    Row(f"put small objects, {MANY} connections", "/s", at_least=2500),
    Row("CPU of the service for a small put", "ms", at_most=0.4),
    Row("put small objects with oss2", "/s"),
    Row("get small objects, one connection", "/s", at_least=500),
    Row(f"copy {FAR_TIMES:,} small objects, {FAR_CONNECTIONS} connections at {1000 * FAR_S:.0f} ms", at_most=0.6),
    Row("write small files", "/s"),
    Row("write small files with fsync", "/s"),
]


def measure(cache: Path) -> Mapping[str, float]:
    """Put, get, and do the like with plain files."""
    del cache
    large, small = os.urandom(1 << 20) * (LARGE_BYTES >> 20), b"x" * SMALL_BYTES
    with _served(Path.cwd() / "store") as (bucket, server):
        put_large, get_large = ([_url(bucket, method, "large")] * LARGE_TIMES for method in ("PUT", "GET"))
        put_small, get_small = (
            [_url(bucket, method, f"small/{number}") for number in range(SMALL_TIMES)] for method in ("PUT", "GET")
        )
        values = {
            **_large(server, lambda: _ask("PUT", put_large, large), lambda: _ask("GET", get_large)),
            "put small objects, one connection": _each(lambda: _ask("PUT", put_small, small)),
            f"put small objects, {CONNECTIONS} connections": _each(lambda: _ask_at_once("PUT", put_small, small)),
            "get small objects, one connection": _each(lambda: _ask("GET", get_small)),
            "put small objects with oss2": _each(
                lambda: [bucket.put_object(f"small/{number}", small) for number in range(SMALL_TIMES)]
            ),
            **_many(bucket, server),
        }
    return {
        **values,
        **_files(large, small),
    }


def _large(server: psutil.Process, put: Callable[[], None], get: Callable[[], None]) -> Mapping[str, float]:
    """Large objects over one connection."""
    values = {}
    for name, work in (("put", put), ("get", get)):
        before = sum(server.cpu_times()[:2])
        values[f"{name} large objects"] = _megabytes(work)
        cpu_s = sum(server.cpu_times()[:2]) - before
        values[f"CPU of the service for a {name} of 1 GiB"] = cpu_s * (1 << 30) / (LARGE_BYTES * LARGE_TIMES)
    return values


def _many(bucket: oss2.Bucket, server: psutil.Process) -> Mapping[str, float]:
    """Small objects over many connections, near and far."""
    address = urlsplit(bucket.endpoint)
    content = os.urandom(MANY_BYTES)
    puts = [signed_request(bucket, "PUT", f"many/{number}", content) for number in range(MANY_TIMES)]
    before = sum(server.cpu_times()[:2])
    put_s = _seconds(lambda: ask_all(address.hostname, address.port, puts, MANY))
    cpu_s = sum(server.cpu_times()[:2]) - before
    with Relay(address.port, FAR_S) as relay:
        far = oss2.Bucket(bucket.auth, relay.endpoint, BUCKET, region=REGION)
        copies = [
            signed_request(far, "PUT", f"copy/{number}", headers={"x-oss-copy-source": f"/{BUCKET}/many/{number}"})
            for number in range(FAR_TIMES)
        ]
        copy_s = _seconds(lambda: ask_all("127.0.0.1", relay.port, copies, FAR_CONNECTIONS))
    return {
        f"put small objects, {MANY} connections": MANY_TIMES / put_s,
        "CPU of the service for a small put": 1000 * cpu_s / MANY_TIMES,
        f"copy {FAR_TIMES:,} small objects, {FAR_CONNECTIONS} connections at {1000 * FAR_S:.0f} ms": copy_s,
    }


def _files(large: bytes, small: bytes) -> Mapping[str, float]:
    """The like with plain files; each measure has an empty folder, and finds nothing that is yet to be written.

    Opening a file for writing truncates it; with a file of another measure, that would be counted, too.
    """

    def new() -> Path:
        os.sync()
        return Path(tempfile.mkdtemp(dir=Path.cwd()))

    files = new()
    return {
        "write and hash large files": _megabytes(lambda: _write_files(files, large, LARGE_TIMES, hashed=True)),
        "write large files with fsync": _megabytes(partial(_write_files, new(), large, LARGE_TIMES, synced=True)),
        "read large files": _megabytes(lambda: _read_files(files, LARGE_TIMES)),
        "write small files": _each(partial(_write_files, new(), small, SMALL_TIMES)),
        "write small files with fsync": _each(partial(_write_files, new(), small, SMALL_TIMES, synced=True)),
    }


@contextmanager
def _served(root: Path) -> Iterator[tuple[oss2.Bucket, psutil.Process]]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.service.objects.serving", str(root), "0"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            endpoint = process.stdout.readline().strip()
            auth = oss2.AuthV4(KEY_ID, SECRET)
            bucket = oss2.Bucket(auth, endpoint, BUCKET, region=REGION, enable_crc=False, connect_timeout=60)
            yield bucket, psutil.Process(process.pid)
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
            crc64 = 0
            for at in range(0, len(content), 1 << 20):
                chunk = content[at : at + (1 << 20)]
                file.write(chunk)
                if hashed:
                    crc64 = crc64_of(chunk, crc64)
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
