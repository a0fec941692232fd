"""A manager watches runs that grow; the file of one of them is large and damaged: zeros, noise, or numbers.

A new point of each other run must be seen soon, while the damaged file is being passed over. Ending the manager in
the middle of it takes no time.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pai_sdk import RunManager
from pai_sdk._data.run.events.writer import EventWriter
from tests.support.waiting import PATIENCE_S

__all__ = ["damaged_file", "main", "run"]

DAMAGED = "damaged"
KINDS = ("zeros", "noise", "numbers")


def damaged_file(folder: Path, kind: str, size_bytes: int) -> Path:
    """A file without any record. Zeros take no place on the disk."""
    folder.mkdir(parents=True)
    path = folder / "events.out.tfevents.1790000000.host.1.0"
    with path.open("wb") as file:
        if kind == "zeros":
            file.truncate(size_bytes)
        for begin in range(0, size_bytes if kind != "zeros" else 0, 1 << 20):
            count = min(1 << 20, size_bytes - begin)
            numbers = b"".join(number.to_bytes(8, "little") for number in range(count // 8))
            file.write(random.randbytes(count) if kind == "noise" else numbers)
    return path


def run(folder: Path, *, runs: int, size_bytes: int, kind: str = "zeros", least_rounds: int = 1) -> list[float]:
    """The seconds after which new points were seen, until the damaged file was passed over."""
    damaged_file(folder / DAMAGED, kind, size_bytes)
    writers = [EventWriter(folder / f"run-{number}") for number in range(runs - 1)]
    seen_after: list[float] = []
    try:
        with RunManager(folder) as manager:
            step = 0
            while step < least_rounds or manager.run(DAMAGED).brief.is_loading:
                begun = time.monotonic()
                for writer in writers:
                    writer.scalars({"loss": 1 / (step + 1)}, step)
                    writer.flush()
                step += 1
                missing = {f"run-{number}" for number in range(runs - 1)}
                while missing:
                    assert time.monotonic() - begun < PATIENCE_S, f"{len(missing)} runs are not seen"
                    time.sleep(0.01)
                    new = [one.id for one in manager.runs(limit=1000).runs if "loss" in one.tags]
                    new = [one for one in new if manager.run(one).brief.tags["loss"].count >= step]
                    seen_after += [time.monotonic() - begun] * len(missing.intersection(new))
                    missing.difference_update(new)
    finally:
        for writer in writers:
            writer.close()
    return seen_after


def closed_after(folder: Path, *, size_bytes: int) -> float:
    """The seconds that it takes to end a manager while it reads the damaged file."""
    damaged_file(folder / DAMAGED, "zeros", size_bytes)
    manager = RunManager(folder).start()
    while not manager.runs().total:
        time.sleep(0.01)
    begun = time.monotonic()
    manager.close()
    return time.monotonic() - begun


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials watch", description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--megabytes", type=int, default=1024, help="of the damaged file; of numbers, a tenth")
    parser.add_argument("--longest", type=float, default=1.0, help="seconds until a new point must be seen")
    options = parser.parse_args(arguments)
    failed = False
    for kind in KINDS:
        size_bytes = (options.megabytes << 20) // (10 if kind == "numbers" else 1)
        with tempfile.TemporaryDirectory(prefix="trial-") as folder:
            begun = time.monotonic()
            seen = run(Path(folder), runs=options.runs, size_bytes=size_bytes, kind=kind)
            failed |= max(seen) > options.longest
            print(
                f"{size_bytes >> 20} MiB of {kind}: passed over in {time.monotonic() - begun:.1f} s; "
                f"{len(seen)} new points of {options.runs - 1} other runs were seen, each after {max(seen):.2f} s "
                "or less",
                flush=True,
            )
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        closed_s = closed_after(Path(folder), size_bytes=options.megabytes << 20)
        failed |= closed_s > options.longest
        print(f"a manager in the middle of it ended in {closed_s:.2f} s")
    return 1 if failed else 0
