"""1 M points in event files: read by pai_sdk, by TensorBoard's readers and by tbparse; runs compared.

`wide` is 1,000 runs × 10 tags × 100 steps, `deep` 10 × 10 × 10,000, and `tensor` is `deep` as TensorFlow 2
writes it. Each reader has a process of its own, the files are in the page cache, and all points are kept.
EventAccumulator and tbparse read a part of the runs. Other work on the machine lengthens the elapsed time, so the
processor time is beside it.
"""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil

from pai_sdk._data.run.events.reader import RunReader
from pai_sdk._data.run.events.series import Series
from pai_sdk._data.run.plots.buckets import compared
from pai_sdk._data.run.plots.curve_view import CurveView
from pai_sdk._data.storage.stores.local import LocalStore
from tests.benchmarks.harness import ROOT, Row
from tests.support.data_server import data_server
from tests.support.event_files import event, frame, simple, tensor, version
from tests.support.peer_environment import python_with

REPETITIONS = 5
CORPORA = {"wide": (1000, 10, 100), "deep": (10, 10, 10_000), "tensor": (10, 10, 10_000)}
READERS = {
    "files": "pai_sdk",
    "runs": "pai_sdk, with summaries",
    "server": "data server",
    "server-checksum": "data server, with checksums",
    "accumulator": "EventAccumulator",
    "tbparse": "tbparse",
    "plain": "only bytes and CRC",
}
_PART = {"accumulator": 0.03, "tbparse": 0.03}
_QUERIES = 100
_TBPARSE = "tbparse==0.0.9"

ONE_TAG = Row("one tag of 1,000 runs, p99", "ms", at_most=50)
COMPARED = Row("compare 1,000 runs × 1,000 points in 250 buckets, median", "ms", at_most=50)
COMPARED_WORST = Row("compare 1,000 runs × 1,000 points in 250 buckets, p99", "ms", at_most=50)
SMOOTHED = Row("the same, smoothed, median", "ms")
GROUPED = Row("the same, 10 groups with bands, median", "ms")


def _name(corpus: str, part: str, reader: str) -> str:
    return f"{corpus}: {part}, {READERS[reader]}"


def _rows() -> Iterator[Row]:
    for corpus in CORPORA:
        for reader in READERS:
            aim = 3.0 if reader == "files" else None
            yield Row(_name(corpus, "speed", reader), "M points/s", at_least=aim)
        for reader in ("files", "runs", "server", "server-checksum"):
            yield Row(_name(corpus, "elapsed", reader), "s")
            yield Row(_name(corpus, "processor", reader), "s")
        for reader in READERS:
            yield Row(_name(corpus, "peak memory", reader), "MiB")
        yield Row(f"{corpus}: peak memory, of the data server's", "×", at_most=0.5)


ROWS = (*_rows(), ONE_TAG, COMPARED, COMPARED_WORST, SMOOTHED, GROUPED)


def prepare(cache: Path) -> None:
    """Write the files, and install tbparse, once."""
    with contextlib.suppress(RuntimeError):  # told in its rows
        python_with(_TBPARSE, cache=cache / "peers")
    for corpus, (runs, tags, steps) in CORPORA.items():
        folder = cache / "events" / corpus
        if folder.exists():
            continue
        values = np.random.default_rng(0).normal(size=(runs, steps, tags)).astype("<f4")
        part = folder.with_name(corpus + ".part")
        for run in range(runs):
            place = part / f"run-{run:04}"
            place.mkdir(parents=True)
            content = _content(values[run], is_tensor=corpus == "tensor")
            (place / "events.out.tfevents.1700000000.host.1.0").write_bytes(content)
        part.rename(folder)


def _content(values: np.ndarray, *, is_tensor: bool) -> bytes:
    """A file; its records are made from one of each tag, which is ten times as fast as protobuf."""
    kind = tensor if is_tensor else simple
    records = [version()]
    marks = (struct.pack("<d", 12345.678), struct.pack("<f", 54321.0))
    for step, row in enumerate(values):
        for tag, value in enumerate(row):
            if step in (0, 1, 128) or step == 16_384:
                message = event(step, kind(f"metric/{tag}", 54321.0), wall=12345.678)[12:-4]
                _TEMPLATES[is_tensor, tag] = tuple(message.index(mark) for mark in marks), message
            (wall_at, value_at), message = _TEMPLATES[is_tensor, tag]
            changed = bytearray(message)
            struct.pack_into("<d", changed, wall_at, 1.7e9 + step + tag / 100)
            changed[value_at : value_at + 4] = value.tobytes()
            if step:
                changed[10 : 10 + (step > 127) + 1] = _varint(step)
            records.append(frame(bytes(changed)))
    return b"".join(records)


_TEMPLATES: dict[tuple[bool, int], tuple[tuple[int, ...], bytes]] = {}


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def measure(cache: Path) -> dict[str, float | str]:
    values: dict[str, float | str] = {}
    for corpus, (runs, tags, steps) in CORPORA.items():
        folder = cache / "events" / corpus
        for reader in READERS:
            found = _read(reader, folder, runs, cache / "peers")
            if isinstance(found, str):
                values[_name(corpus, "speed", reader)] = found
                continue
            part = max(round(runs * _PART.get(reader, 1)), 1) / runs
            count = runs * tags * steps * part
            assert reader == "plain" or found["points"] == count, (reader, found)
            values[_name(corpus, "speed", reader)] = count / found["s"] / 1e6
            values[_name(corpus, "elapsed", reader)] = found["s"]
            values[_name(corpus, "processor", reader)] = found["cpu_s"]
            values[_name(corpus, "peak memory", reader)] = found["mib"]
        ours, theirs = (float(values[_name(corpus, "peak memory", one)]) for one in ("files", "server"))
        values[f"{corpus}: peak memory, of the data server's"] = ours / theirs
    return {**values, **_queries(cache / "events" / "wide")}


def _read(reader: str, folder: Path, runs: int, cache: Path) -> dict[str, float] | str:
    if reader.startswith("server"):
        return _served(folder, *(["--checksum"] if reader.endswith("checksum") else []))
    python: Path | str = sys.executable
    if reader == "tbparse":
        try:
            python = python_with(_TBPARSE, cache=cache)
        except RuntimeError as error:
            return str(error)
    part = max(round(runs * _PART.get(reader, 1)), 1)
    program = str(ROOT / "tests" / "benchmarks" / "event_readers.py")
    command = [str(python), "-W", "ignore", program, reader, str(folder), str(part)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=200)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _served(folder: Path, *flags: str) -> dict[str, float]:
    with data_server(folder, *flags) as server:
        process = psutil.Process(server.pid)
        times = process.cpu_times()
        status = Path(f"/proc/{server.pid}/status").read_text()
        peak_kib = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
        count = sum(len(points) for tags in server.scalars().values() for points in tags.values())
    return {"s": server.loaded_s, "cpu_s": times.user + times.system, "mib": peak_kib / 1024, "points": count}


def _queries(wide: Path) -> dict[str, float]:
    store = LocalStore(wide)
    readers = [RunReader(store, [file]) for file in store.list()]
    rng = np.random.default_rng(0)
    step, wall = np.arange(1000), 1.7e9 + np.arange(1000.0)
    runs = [Series("loss", wall, step, rng.normal(size=1000).cumsum().astype(np.float32)) for _ in range(1000)]
    groups = [f"group {number % 10}" for number in range(len(runs))]
    plain = _times(lambda: compared(runs))
    return {
        ONE_TAG.name: _percentile(_times(lambda: [run.series("metric/3") for run in readers]), 99),
        COMPARED.name: _percentile(plain, 50),
        COMPARED_WORST.name: _percentile(plain, 99),
        SMOOTHED.name: _percentile(_times(lambda: compared(runs, CurveView(smooth=0.9))), 50),
        GROUPED.name: _percentile(_times(lambda: compared(runs, groups=groups, band="std")), 50),
    }


def _times(query: Callable[[], object]) -> list[float]:
    """The milliseconds of each of many queries."""
    found = []
    for _ in range(_QUERIES):
        begun = time.perf_counter()
        query()
        found.append((time.perf_counter() - begun) * 1000)
    return found


def _percentile(values: list[float], percent: int) -> float:
    return float(np.percentile(values, percent))
