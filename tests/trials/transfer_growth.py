"""Uploads of more and more: one object of 1 MiB to 100 GiB, and a sync of 100 to 1,000,000 files.

`python -m tests.trials transfer_growth [--objects MIB,…] [--files COUNT,…]`

The files are sparse or of 100 bytes, and the store acknowledges and keeps nothing. Each upload is a program of its
own. Its processor time for a MiB or a file, and its memory, must not grow with the size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.store import OssStore
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
from pai_sdk._data.storage.transfer import upload
from pai_sdk._data.storage.uri import OssUri

OBJECTS_MIB = (1, 100, 10_240, 102_400)
FILES = (100, 10_000, 1_000_000)
FILE_BYTES = 100
# Of the largest to the smallest but one: the smallest one is mostly the start.
MAX_GROWTH = 1.5
MAX_MORE_MIB = 64


def measured(endpoint: str, what: str, source: Path) -> dict[str, float]:
    """Uploads in this process; returns processor time and memory."""
    key = Credentials("id", "secret")
    with OssClient(endpoint, lambda: key, region="cn-test") as client:
        before, cpu, started = _peak_mib(), time.process_time(), time.perf_counter()
        if what == "object":
            upload(client, source, OssUri("bucket", "object"), progress=False)
        else:
            DirSync(
                LocalStore(source), OssStore(client, OssUri("bucket", "files/")), remember=source / ".." / "m"
            ).run()
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return {"seconds": seconds, "cpu_s": cpu_s, "more_mib": _peak_mib() - before, "peak_mib": _peak_mib()}


def _peak_mib() -> float:
    # Not ru_maxrss: it has that of the process which started this one.
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**10


@contextmanager
def acknowledging() -> Iterator[str]:
    """Serves a store that keeps nothing; yields its endpoint."""
    command = [sys.executable, "-m", "tests.support.acknowledging_oss"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def _run(endpoint: str, what: str, source: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.trials", "transfer_growth", "--measure", endpoint, what, str(source)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(source.parent / "cache")}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def objects(sizes_mib: Sequence[int], folder: Path) -> list[dict[str, float]]:
    """Uploads one sparse object of each size."""
    found = []
    with acknowledging() as endpoint:
        for size_mib in sizes_mib:
            source = folder / "object.bin"
            with source.open("wb") as stream:
                stream.truncate(size_mib << 20)
            found.append({"size": size_mib, **_run(endpoint, "object", source)})
    return found


def files(counts: Sequence[int], folder: Path) -> list[dict[str, float]]:
    """Syncs a folder of so many files, each time a new one."""
    found = []
    with acknowledging() as endpoint:
        for count in counts:
            source = folder / f"files-{count}" / "source"
            for number in range(count):
                path = source / f"{number // 1000:04d}" / f"{number % 1000:03d}.bin"
                if number % 1000 == 0:
                    path.parent.mkdir(parents=True)
                path.write_bytes(number.to_bytes(8, "big") * (FILE_BYTES // 8))
            found.append({"size": count, **_run(endpoint, "files", source)})
    return found


def problems(found: Sequence[dict[str, float]]) -> list[str]:
    """Compares the largest with the second smallest."""
    base, last = found[min(1, len(found) - 1)], found[-1]
    result = []
    growth = (last["cpu_s"] / last["size"]) / (base["cpu_s"] / base["size"])
    if growth > MAX_GROWTH:
        result.append(f"processor time for each grew {growth:.2f} times")
    if last["more_mib"] - base["more_mib"] > MAX_MORE_MIB:
        result.append(f"memory grew by {last['more_mib'] - base['more_mib']:.0f} MiB")
    return result


def main(arguments: Sequence[str]) -> int:
    """Prints a table; returns 1 if something grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials transfer_growth", description=__doc__)
    parser.add_argument("--objects", default=",".join(map(str, OBJECTS_MIB)), help="sizes in MiB")
    parser.add_argument("--files", default=",".join(map(str, FILES)), help="numbers of files")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        endpoint, what, source = options.measure
        print(json.dumps(measured(endpoint, what, Path(source))))
        return 0
    failed = 0
    for title, act, sizes in (("MiB", objects, options.objects), ("files", files, options.files)):
        wanted = [int(size) for size in sizes.split(",") if size]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = act(wanted, Path(folder))
        for row in found:
            each = f"{1e3 * row['cpu_s'] / row['size']:.3f} ms of processor time for each"
            memory = f"{row['more_mib']:.0f} MiB more, {row['peak_mib']:.0f} in all"
            print(f"{row['size']:>9,.0f} {title}: {row['seconds']:8.2f} s, {each}, {memory}")
        for problem in problems(found):
            failed = 1
            print(f"FAILED: {title}: {problem}")
    return failed
