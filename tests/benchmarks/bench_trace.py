"""Traces of 1,000 rows a step, beside pyodps' arrow writer in a thread and a process with data frames.

Each writer has a process of its own, and the tables are those of a service in another process on the same cores.
Speed is measured without a pause between steps, from the first step until all rows are visible. The time of a step
is that of steps with a pause after each, as in a training. The original has a queue for one step.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from tests.benchmarks.harness import ROOT, Row
from tests.benchmarks.trace_writers import PROJECT
from tests.benchmarks.trace_writers import ROWS as STEP_ROWS

REPETITIONS = 3

KINDS = {
    "ours": "pai_sdk into a table",
    "plain": "pai_sdk into a table, not compressed",
    "files": "pai_sdk into files",
    "pyodps": "pyodps in a thread",
    "original": "process and pandas",
}
COLUMNS = {"numbers": "3 numbers", "nested": "a string and 32 doubles"}
# Two blocks of 64 MiB and some more, and half of that with pauses.
STEPS = {"numbers": 6_000, "nested": 500}
PAUSES_S = {"numbers": 0.001, "nested": 0.01}
_PARTS = {
    "rows_s": ("rows", "rows/s"),
    "mean_ms": ("a step, mean", "ms"),
    "p50_ms": ("a step, median", "ms"),
    "worst_ms": ("a step, worst", "ms"),
    "peak_mib": ("peak memory", "MiB"),
}
# At least so many rows a second; at most so much of the others.
_AIMS = {
    ("numbers", "rows_s"): 6e6,
    ("numbers", "worst_ms"): 10.0,
    ("nested", "worst_ms"): 10.0,
    ("nested", "mean_ms"): 0.2,
    ("nested", "peak_mib"): 200.0,
}


def _name(part: str, kind: str, columns: str) -> str:
    return f"{_PARTS[part][0]}, {COLUMNS[columns]}: {KINDS[kind]}"


def _rows() -> Iterator[Row]:
    for columns in COLUMNS:
        for part, (_, unit) in _PARTS.items():
            for kind in KINDS:
                aim = _AIMS.get((columns, part)) if kind == "ours" else None
                is_speed = part == "rows_s"
                name = _name(part, kind, columns)
                yield Row(name, unit, at_least=aim if is_speed else None, at_most=None if is_speed else aim)


ROWS = tuple(_rows())


def measure(cache: Path) -> dict[str, float | str]:
    values: dict[str, float | str] = {}
    root = Path("served")
    with _served(root) as url:
        for columns in COLUMNS:
            for kind in KINDS:
                fast = _written(kind, columns, STEPS[columns], 0.0, url)
                paced = _written(kind, columns, STEPS[columns] // 2, PAUSES_S[columns], url)
                for part in _PARTS:
                    found = paced if part.endswith("_ms") else fast
                    values[_name(part, kind, columns)] = found[part]
                if kind != "files":
                    _check(root, f"{kind}_{columns}_fast", STEPS[columns])
                    _check(root, f"{kind}_{columns}_paced", STEPS[columns] // 2)
    return values


def _check(root: Path, table: str, steps: int) -> None:
    files = root.glob(f"tables/{PROJECT}/{table}/data/*/*.parquet")
    assert sum(pq.read_metadata(path).num_rows for path in files) == steps * STEP_ROWS


def _written(kind: str, columns: str, steps: int, pause_s: float, url: str) -> dict[str, float]:
    arguments = ["write", kind, columns, str(steps), str(pause_s), url]
    done = subprocess.run([*_PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=200)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def _served(root: Path) -> Iterator[str]:
    command = [*_PROGRAM, "serve", str(root.absolute())]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().strip()
        finally:
            process.kill()


_PROGRAM = (sys.executable, "-W", "ignore", "-m", "tests.benchmarks.trace_writers")
