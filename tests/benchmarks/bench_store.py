"""Folders to and from an object store, near and 20 ms away: small files and large ones, beside four other clients.

All clients use the same server, one after the other. `sequential` sends one request after the other, as the first
run stores did. The server of this project runs on the same two cores, so a near client also waits for the server.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.transfer import download, upload
from pai_sdk._data.storage.uri import OssUri
from tests.benchmarks.harness import ROOT, Row
from tests.benchmarks.relay import Relay
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET
from tests.support.peer_environment import python_with

REPETITIONS = 3
FAR_S = 0.02
SMALL_FILES, SMALL_BYTES = 2_000, 4_096
FEW_FILES = 200  # for clients that send one request after the other: at 20 ms they move 44 files a second
LARGE_FILES, LARGE_BYTES = 4, 64 << 20

OURS = "pai_sdk"
PACKAGES = ("ossfs==2025.5.0", "alibabacloud-oss-v2==1.4.1", "setuptools<81")
PEERS = {"oss2": "oss2, 16 threads", "oss-v2": "alibabacloud-oss-v2, 16 threads", "ossfs": "ossfs"}
KINDS = {**PEERS, "sequential": "oss2, one request after the other"}
ONE_AFTER_THE_OTHER = ("ossfs", "sequential")
AIM_OVER = {"oss2": 4.0, "oss-v2": 1.0, "ossfs": 1.0}


def _name(who: str, way: str, near: str, what: str = "4 KiB files") -> str:
    return f"{way} {what}, {near}: {KINDS.get(who, who)}"


def _ratio(who: str, way: str, near: str, what: str = "4 KiB files") -> str:
    return f"{way} {what}, {near}: {OURS} / {KINDS[who]}"


def _rows() -> Iterator[Row]:
    for near in ("near", "far"):
        for way in ("up", "down"):
            for who in (OURS, *KINDS):
                is_aimed = who == OURS and (way, near) != ("up", "near")
                yield Row(_name(who, way, near), "files/s", at_least=2_200 if is_aimed else None)
            for who in PEERS:
                yield Row(_ratio(who, way, near), "times", at_least=AIM_OVER[who] if near == "far" else None)
    for way in ("up", "down"):
        yield from (Row(_name(who, way, "near", "64 MiB files"), "MB/s") for who in (OURS, *PEERS))
        yield from (Row(_ratio(who, way, "near", "64 MiB files"), "times", at_least=1.2) for who in PEERS)
    yield CPU
    yield CPU_OSS2
    yield MEMORY


CPU = Row("up 4 KiB files, far: CPU time of pai_sdk for each", "ms", at_most=0.2)
CPU_OSS2 = Row("up 4 KiB files, far: CPU time of oss2 for each", "ms")
MEMORY = Row("memory that 2,000 more files need", "MiB")
ROWS = tuple(_rows())


def prepare(cache: Path) -> None:
    python_with(*PACKAGES, cache=cache)


def measure(cache: Path) -> dict[str, float | str]:
    small, few = _folder("small", SMALL_FILES, SMALL_BYTES), _folder("few", FEW_FILES, SMALL_BYTES)
    large = _folder("large", LARGE_FILES, LARGE_BYTES)
    python = python_with(*PACKAGES, cache=cache)
    values: dict[str, float | str] = {}
    with _served(Path.cwd() / "store") as endpoint:
        _ours(endpoint, few)  # the first requests pay for what later ones find ready
        for near, round_trip_s in (("near", 0.0), ("far", FAR_S)):
            with Relay(urlsplit(endpoint).port or 0, round_trip_s) as relay:
                # Near, the relay would need a third of the processor time of this machine.
                there = relay.endpoint if round_trip_s else endpoint
                ours = _ours(there, small)
                peers = {
                    who: _theirs(python, who, there, few if who in ONE_AFTER_THE_OTHER else small) for who in KINDS
                }
                values |= _compared(near, "4 KiB files", "files", ours, peers)
        values[CPU.name] = 1e3 * ours["cpu_s"] / ours["files"]
        theirs = peers["oss2"]
        values[CPU_OSS2.name] = theirs if isinstance(theirs, str) else 1e3 * theirs["cpu_s"] / theirs["files"]
        before = _peak_mib()
        _ours(endpoint, small)
        values[MEMORY.name] = _peak_mib() - before
        peers = {who: _theirs(python, who, endpoint, large) for who in PEERS}
        values |= _compared("near", "64 MiB files", "bytes", _ours(endpoint, large), peers)
    return values


def _compared(
    near: str, what: str, unit: str, ours: dict[str, float], peers: dict[str, dict[str, float] | str]
) -> dict[str, float | str]:
    """The rates of all clients, and how many times those of the peers ours are."""
    values: dict[str, float | str] = {}
    for way in ("up", "down"):
        own = ours[unit] / ours[f"{way}_s"] / (1e6 if unit == "bytes" else 1)
        values[_name(OURS, way, near, what)] = own
        for who, found in peers.items():
            if isinstance(found, str):
                values |= {_name(who, way, near, what): found, _ratio(who, way, near, what): found}
                continue
            rate = found[unit] / found[f"{way}_s"] / (1e6 if unit == "bytes" else 1)
            values |= {_name(who, way, near, what): rate, _ratio(who, way, near, what): own / rate}
    return values


def _ours(endpoint: str, source: Path) -> dict[str, float]:
    key = Credentials(KEY_ID, SECRET)
    number = len([*Path.cwd().glob("down-*")])
    folder, target = OssUri(BUCKET, f"ours/{number}/"), Path(f"down-{number}")
    files = [path for path in source.rglob("*") if path.is_file()]
    with OssClient(endpoint, lambda: key, region=REGION) as client:
        cpu, started = time.process_time(), time.perf_counter()
        upload(client, source, folder, progress=False)
        up, up_cpu = time.perf_counter() - started, time.process_time() - cpu
        started = time.perf_counter()
        download(client, folder, target, progress=False)
        down = time.perf_counter() - started
    assert sum(path.is_file() for path in target.rglob("*")) == len(files)
    size = sum(path.stat().st_size for path in files)
    return {"up_s": up, "down_s": down, "cpu_s": up_cpu, "files": len(files), "bytes": size}


def _theirs(python: Path, who: str, endpoint: str, source: Path) -> dict[str, float] | str:
    number = len([*Path.cwd().glob("theirs-*")])
    command = [str(python), "-W", "ignore", str(ROOT / "tests" / "benchmarks" / "store_peers.py")]
    arguments = [who, endpoint, BUCKET, KEY_ID, SECRET, str(source), f"theirs-{number}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=200)
    if done.returncode:
        return f"{who}: " + (done.stderr.strip().splitlines() or ["failed"])[-1]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def _served(root: Path) -> Iterator[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.service.objects.serving", str(root), "0"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _folder(name: str, files: int, size_bytes: int) -> Path:
    root, dice = Path(name), random.Random(1)
    for number in range(files):
        path = root / f"{name}{number % 20}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            for start in range(0, size_bytes, 1 << 20):
                out.write(dice.randbytes(min(1 << 20, size_bytes - start)))
    return root


def _peak_mib() -> float:
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
