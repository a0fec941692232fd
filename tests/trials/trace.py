"""Rows are traced into tables through a proxy that breaks what passes; some writers are killed.

Where the writer lived, the table has the rows that were fed, each once. Where it was killed, the table has whole
commits: every commit that was reported is there, and at most one more.

With `--syncs`, so many writers into a folder that is synced are killed, too: `trace_sync.py`.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import uvicorn

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.trace.odps import OdpsSink
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk._service.odps.table_store import TableStore
from pai_sdk._service.odps.tables_app import TablesApp
from tests.faults.proxy import FaultProxy, Faults
from tests.support.waiting import PATIENCE_S, until
from tests.trials import trace_sync

__all__ = ["TraceReport", "main", "run"]

KINDS = ("reset", "lost", "truncated", "429", "500", "503", "html", "empty")
KEY = Credentials("trial-id", "trial-secret")
RETRY = RetryPolicy(deadline_s=120.0, first_pause_s=0.005, longest_pause_s=0.05)
WORKERS = (1, 2, 4)
KILLED = 4  # every fourth seed is one whose writer is killed
STEPS, ROWS = 24, 10


@dataclass
class TraceReport:
    """What was seen. `problems` is empty when all is well."""

    seeds: int = 0
    killed: int = 0
    rows_fed: int = 0
    rows_stored: int = 0
    retries: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return "\n".join(
            [
                *(f"PROBLEM: {problem}" for problem in self.problems),
                f"{self.seeds} seeds in {self.took_s:.0f} s, {self.killed} with a killed writer",
                f"with a live writer {self.rows_fed} rows fed, {self.rows_stored} stored, {self.retries} retries",
                f"{self.faults.total()} faults ({kinds})",
                "each row once, whole commits" if not self.problems else f"{len(self.problems)} problems",
            ]
        )


def run(root: Path, seeds: Sequence[int]) -> TraceReport:
    """Try the seeds one after the other, on one service of tables."""
    report, began = TraceReport(), time.monotonic()
    with _serving(root) as url:
        for seed in seeds:
            faults = Faults(rate=0.25, kinds=KINDS, only=lambda method, path: "upload" in path)
            with FaultProxy(url, seed=seed, faults=faults) as proxy:
                trial = _killed if seed % KILLED == KILLED - 1 else _lived
                trial(root, proxy.url, seed, report)
                report.faults.update(text.partition(":")[0] for text in proxy.happened)
            report.seeds += 1
    report.took_s = time.monotonic() - began
    return report


def _lived(root: Path, url: str, seed: int, report: TraceReport) -> None:
    chance, table = random.Random(seed), f"lived_{seed}"
    writer = TraceWriter(
        {"n": "bigint"}, _sink(table, url), block_bytes=240, workers=WORKERS[seed % 3], retry=RETRY, run_id="trial"
    )
    fed: list[int] = []
    try:
        for _ in range(STEPS):
            rows = list(range(len(fed), len(fed) + ROWS))
            writer.write(n=rows)
            fed += rows
            if chance.random() < 0.1:
                writer.flush()
        report.retries += writer.close().retries
    except Exception as error:
        report.problems.append(f"seed {seed}: {error}")
    stored = _values(root, table)
    report.rows_fed += len(fed)
    report.rows_stored += len(stored)
    if sorted(stored) != fed:
        missing, doubled = set(fed) - set(stored), len(stored) - len(set(stored))
        report.problems.append(f"seed {seed}: {len(missing)} rows are missing, {doubled} are doubled")


def _killed(root: Path, url: str, seed: int, report: TraceReport) -> None:
    chance, table = random.Random(seed), f"killed_{seed}"
    command = [sys.executable, "-m", "tests.trials.trace", "--write", table, url, str(WORKERS[seed % 3])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        told = sum(1 for _ in zip(range(chance.randint(1, 4)), program.stdout, strict=False))
        time.sleep(chance.random() * 0.05)
        program.kill()
        told += len(program.stdout.read().splitlines())
    report.killed += 1
    counts = Counter(_values(root, table))
    if any(count != ROWS * 5 for count in counts.values()):
        report.problems.append(f"seed {seed}: not whole commits: {dict(counts)}")
    if set(range(told)) - set(counts) or len(counts) > told + 1:
        report.problems.append(f"seed {seed}: {told} commits were reported, and {sorted(counts)} are stored")


def _write(table: str, url: str, workers: str) -> None:
    """What is killed: each commit has one number, in as many rows as five steps have."""
    writer = TraceWriter({"n": "bigint"}, _sink(table, url), block_bytes=240, workers=int(workers), retry=RETRY)
    number = 0
    while True:
        for _ in range(5):
            writer.write(n=[number] * ROWS)
        writer.flush()
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        number += 1


def _sink(table: str, url: str) -> OdpsSink:
    return OdpsSink(table, project="trial", endpoint=url, tunnel_endpoint=url, credentials=KEY)


def _values(root: Path, table: str) -> list[int]:
    files = root.glob(f"tables/trial/{table}/data/*/*.parquet")
    return [value for path in files for value in pq.ParquetFile(path).read(["n"])["n"].to_pylist()]


@contextmanager
def _serving(root: Path) -> Iterator[str]:
    app = TablesApp(TableStore(root), {KEY.access_key_id: KEY.access_key_secret})
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the server's start")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials trace", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--syncs", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), range(options.first, options.first + options.seeds))
    sys.stdout.write(f"{report}\n")
    problems = report.problems
    if options.syncs:
        with tempfile.TemporaryDirectory() as folder:
            synced = trace_sync.run(Path(folder), kills=options.syncs, seed=options.first)
        sys.stdout.write(f"{synced}\n")
        problems += synced.problems
    return 1 if problems else 0


if __name__ == "__main__" and sys.argv[1:2] == ["--write"]:
    _write(*sys.argv[2:])
