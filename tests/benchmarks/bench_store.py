"""Folders to and from an object store, near and 20 ms away: small files and large ones, beside four other clients.

All clients use the same server, one after the other, each as a program of its own. `oss2` has its CRC-64 on, as it
has by default. The server of this project runs on the same two cores, so a client also waits for the server.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.benchmarks.harness import ROOT, Row
from tests.benchmarks.relay import Relay
from tests.service.objects.serving import BUCKET, KEY_ID, SECRET
from tests.support.peer_environment import python_with

REPETITIONS = 5
FAR_S = 0.02
SMALL_FILES, SMALL_BYTES = 2_000, 4_096
FEW_FILES = 200  # for clients that send one request after the other: at 20 ms they move 44 files a second
LARGE_FILES, LARGE_BYTES = 4, 64 << 20
SMALL, LARGE = "4 KiB files", "64 MiB files"

OURS = "pai_sdk"
PACKAGES = ("ossfs==2025.5.0", "alibabacloud-oss-v2==1.4.1", "setuptools<81")
PEERS = {"oss2": "oss2, 16 threads", "oss-v2": "alibabacloud-oss-v2, 16 threads", "ossfs": "ossfs"}
OTHERS = {
    SMALL: {**PEERS, "sequential": "oss2, one request after the other"},
    LARGE: {**PEERS, "unchecked": "oss2, 16 threads, without its CRC-64"},
}
ONE_AFTER_THE_OTHER = ("ossfs", "sequential")
FASTER = 1.3
AIM_OVER = {"oss2": 4.0, "oss-v2": 1.0, "ossfs": 1.0}

Numbers = Mapping[str, float]


def _label(who: str, what: str) -> str:
    return OTHERS[what].get(who, who)


def _name(who: str, way: str, near: str, what: str) -> str:
    return f"{way} {what}, {near}: {_label(who, what)}"


def _ratio(who: str, way: str, near: str, what: str) -> str:
    return f"{way} {what}, {near}: {OURS} / {_label(who, what)}"


def _cpu(who: str, way: str, near: str, what: str) -> str:
    return f"{way} {what}, {near}: processor time of {_label(who, what)} for each"


def _memory(who: str, near: str, what: str) -> str:
    return f"{what}, {near}: peak memory of {_label(who, what)}"


def _rows() -> Iterator[Row]:
    for what, near, unit in _cells():
        is_large = what == LARGE
        for way in ("up", "down"):
            is_aimed = not is_large and (way, near) != ("up", "near")
            for who in (OURS, *OTHERS[what]):
                aim = 2_200 if who == OURS and is_aimed else None
                yield Row(_name(who, way, near, what), f"{unit}/s", at_least=aim)
            for who in PEERS:
                least = FASTER if is_large else AIM_OVER[who] if is_aimed else None
                yield Row(_ratio(who, way, near, what), "times", at_least=least)
            for who in (OURS, *OTHERS[what]):
                most = 0.2 if who == OURS and not is_large else None
                yield Row(_cpu(who, way, near, what), "ms", at_most=most)
        for who in (OURS, *OTHERS[what]):
            yield Row(_memory(who, near, what), "MiB")


def _cells() -> Iterator[tuple[str, str, str]]:
    for what, unit in ((SMALL, "files"), (LARGE, "MB")):
        for near in ("near", "far"):
            yield what, near, unit


ROWS = tuple(_rows())


def prepare(cache: Path) -> None:
    python_with(*PACKAGES, cache=cache)


def measure(cache: Path) -> dict[str, float | str]:
    small, few = _folder("small", SMALL_FILES, SMALL_BYTES), _folder("few", FEW_FILES, SMALL_BYTES)
    large = _folder("large", LARGE_FILES, LARGE_BYTES)
    python = python_with(*PACKAGES, cache=cache)
    values: dict[str, float | str] = {}
    with _served(Path.cwd() / "store") as endpoint:
        _moved(python, OURS, endpoint, few)  # the first requests pay for what later ones find ready
        for what, near, unit in _cells():
            with Relay(urlsplit(endpoint).port or 0, FAR_S if near == "far" else 0.0) as relay:
                # Near, the relay would need a third of the processor time of this machine.
                there = relay.endpoint if near == "far" else endpoint
                found = {}
                for who in (OURS, *OTHERS[what]):
                    slow = few if who in ONE_AFTER_THE_OTHER else small
                    found[who] = _moved(python, who, there, large if what == LARGE else slow)
                values |= _compared(near, what, unit, found)
    return values


def _compared(near: str, what: str, unit: str, found: Mapping[str, Numbers | str]) -> dict[str, float | str]:
    """The rates of all clients, how many times those of the peers ours are, processor time and memory."""
    values: dict[str, float | str] = {}
    for who, numbers in found.items():
        for way in ("up", "down"):
            name, cpu = _name(who, way, near, what), _cpu(who, way, near, what)
            if isinstance(numbers, str):
                values |= {name: numbers, cpu: numbers}
                continue
            values |= {name: _rate(numbers, way, unit), cpu: 1e3 * numbers[f"{way}_cpu_s"] / numbers["files"]}
        values[_memory(who, near, what)] = numbers if isinstance(numbers, str) else numbers["peak_mib"]
    for way in ("up", "down"):
        own = values[_name(OURS, way, near, what)]
        for who in PEERS:
            theirs = values[_name(who, way, near, what)]
            missing = next((value for value in (own, theirs) if isinstance(value, str)), None)
            values[_ratio(who, way, near, what)] = missing or own / theirs
    return values


def _rate(numbers: Numbers, way: str, unit: str) -> float:
    return (numbers["bytes"] / 1e6 if unit == "MB" else numbers["files"]) / numbers[f"{way}_s"]


def _moved(python: Path, who: str, endpoint: str, source: Path) -> Numbers | str:
    number = len([*Path.cwd().glob("moved-*")])
    command = [str(python), str(ROOT / "tests" / "benchmarks" / "store_peers.py")]
    if who == OURS:
        command = [sys.executable, "-m", "tests.benchmarks.store_peers"]
    arguments = [who, endpoint, BUCKET, KEY_ID, SECRET, str(source), f"moved-{number}"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=200, env=environment
    )
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
