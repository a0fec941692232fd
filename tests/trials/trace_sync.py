"""A trace is read while it is written and synced; writers and syncs are killed and begin again, some moves fail.

Whoever reads the source or the target sees whole commits at every moment. At the end, after a sync without faults,
the target has every commit that was reported, each once, and at most one more of each killed writer.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk._data.storage.base import FileMove
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
from pai_sdk._data.trace.parquet import ParquetSink
from pai_sdk._data.trace.trace_data import read_trace
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk.errors import TraceError

__all__ = ["SyncedTraceReport", "run"]

BLOCKS, ROWS = 4, 5  # of each commit
FAILS = 0.3  # of all moves of files
ATTEMPT = 100_000  # commits of one writer have numbers in one such range


@dataclass
class SyncedTraceReport:
    """What was seen. `problems` is empty when all is well."""

    writers: int = 0
    syncs: int = 0
    reads: int = 0
    reads_with_gaps: int = 0
    commits: int = 0
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            [
                *(f"PROBLEM: {problem}" for problem in self.problems),
                f"{self.writers} writers and {self.syncs} syncs were killed in {self.took_s:.0f} s; "
                f"{self.commits} commits; {self.reads} reads, {self.reads_with_gaps} of which left something out",
                "only whole commits" if not self.problems else f"{len(self.problems)} problems",
            ]
        )


def run(root: Path, *, kills: int, seed: int) -> SyncedTraceReport:
    """Kill so many writers, and about three times as many syncs.

    Args:
        root: an empty folder.
        kills: of writers.
        seed: of the moments.
    """
    chance, report, began = random.Random(seed), SyncedTraceReport(), time.monotonic()
    here, there, memory = root / "here", root / "there", root / "memory.db"
    here.mkdir()
    reported: set[int] = set()
    sync = _sync_process(here, there, memory, chance)
    try:
        for attempt in range(kills):
            with subprocess.Popen(
                [sys.executable, "-m", __name__, "--write", str(here), str(attempt * ATTEMPT)],
                stdout=subprocess.PIPE,
                text=True,
            ) as writer:
                assert writer.stdout is not None
                lines = [writer.stdout.readline()]
                for _ in range(3):
                    _read(here, report)
                    _read(there, report)
                    time.sleep(chance.random() * 0.4)
                    sync.kill()
                    sync.wait()
                    report.syncs += 1
                    _read(there, report)
                    sync = _sync_process(here, there, memory, chance)
                writer.kill()
                lines += writer.stdout.readlines()
                report.writers += 1
            reported |= {int(line) for line in lines if line.endswith("\n")}
    finally:
        sync.kill()
        sync.wait()
    DirSync(LocalStore(here), LocalStore(there), remember=memory).run()
    commits = _read(there, report)
    report.commits = len(commits)
    if missing := reported - commits:
        report.problems.append(f"{len(missing)} commits were reported, and are not stored: {sorted(missing)[:5]}")
    if len(more := commits - reported) > kills:
        report.problems.append(f"{len(more)} commits were not reported, of {kills} killed writers")
    report.took_s = time.monotonic() - began
    return report


def _read(folder: Path, report: SyncedTraceReport) -> set[int]:
    """Read the trace. Returns the numbers of its commits."""
    try:
        trace = read_trace(folder)
    except TraceError:
        return set()  # nothing is there yet
    counts = Counter(trace.to_arrow(columns=["n"])["n"].to_pylist())
    report.reads += 1
    report.reads_with_gaps += bool(trace.left_out)
    if partial := {number: count for number, count in counts.items() if count != BLOCKS * ROWS}:
        report.problems.append(f"{folder.name}: not whole commits: {partial}")
    return set(counts)


def _sync_process(here: Path, there: Path, memory: Path, chance: random.Random) -> subprocess.Popen[bytes]:
    seed = str(chance.randrange(1 << 30))
    command = [sys.executable, "-m", __name__, "--sync", str(here), str(there), str(memory), seed]
    return subprocess.Popen(command)


class _Failing(LocalStore):
    """Fails some moves of its files."""

    chance = random.Random(0)

    def get_file(self, move: FileMove) -> StoredFile:
        if self.chance.random() < FAILS:
            raise OSError(5, "Input/output error")
        return super().get_file(move)


def _sync(here: str, there: str, memory: str, seed: str) -> None:
    """Sync again and again until this process is killed."""
    _Failing.chance.seed(int(seed))
    while True:
        DirSync(_Failing(Path(here)), LocalStore(Path(there)), remember=Path(memory)).attempt()


def _write(here: str, first: str) -> None:
    """Write commits, each with one number in all of its blocks, until this process is killed."""
    with TraceWriter({"n": "bigint"}, ParquetSink(here), run_id="trial", block_bytes=8 * ROWS) as writer:
        number = int(first)
        while True:
            for _ in range(BLOCKS):
                writer.write(n=[number] * ROWS)
            writer.flush()
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            number += 1
            time.sleep(0.02)


if __name__ == "__main__":
    {"--write": _write, "--sync": _sync}[sys.argv[1]](*sys.argv[2:])
