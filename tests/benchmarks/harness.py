"""Runs benchmarks: every repetition of each in a process, a HOME and a folder of its own; medians count.

A benchmark is a module `bench_<name>.py` with

- a docstring, whose first line is its title;
- `ROWS`: what it measures, each row with its unit and, where there is one, its aim;
- `REPETITIONS`: how often at most, see `run`;
- `prepare(cache)` (optional): done once before, in a folder that is kept between runs;
- `measure(cache)`: one repetition; gives a value for each row, by name. For a row that cannot be measured here,
  the reason as text takes its place.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType

from tests.support.leftovers import end_processes_of

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 300
SHARE_S = 70
"""What a benchmark may take, unless one repetition takes longer: twenty of them end within 25 minutes."""

QUICK = ("import", "code", "transfer", "report", "events")
"""What a newcomer sees in three minutes: beside alipai, oss2, Ray Tune and TensorBoard."""

QUICK_VARIABLE = "BENCH_QUICK"


@dataclass(frozen=True)
class Row:
    """One thing measured.

    Attributes:
        name: what it is.
        unit: what its numbers are.
        at_most: the aim, where less is better.
        at_least: the aim, where more is better.
    """

    name: str
    unit: str = "s"
    at_most: float | None = None
    at_least: float | None = None

    @property
    def aim(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}"

    def is_met_by(self, value: float) -> bool:
        if self.at_most is not None:
            return value <= self.at_most
        return self.at_least is None or value >= self.at_least


@dataclass
class Result:
    """A row with the values of all repetitions, or with the reason why there are none."""

    row: Row
    values: list[float] = field(default_factory=list)
    missing: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def to_json(self) -> dict[str, object]:
        facts: dict[str, object] = {**asdict(self.row), "values": self.values}
        return {**facts, "missing": self.missing} if self.missing else {**facts, "median": self.median}


class BenchmarkError(Exception):
    """A benchmark could not be measured."""


def find(names: Sequence[str] = ()) -> dict[str, ModuleType]:
    """The benchmarks there are, by name; all, or those that are asked for."""
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    if unknown := set(names) - set(known):
        raise SystemExit(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    return {name: importlib.import_module(f"tests.benchmarks.bench_{name}") for name in names or known}


def is_quick() -> bool:
    """True in a short run, in which a benchmark may use less data."""
    return QUICK_VARIABLE in os.environ


def run(
    name: str, benchmark: ModuleType, cache: Path, repetitions: int | None = None, *, warm_up: bool = True
) -> Iterator[Result]:
    """Measure one benchmark.

    One repetition more is made first, to warm the caches; it counts only where there is time for no other.

    Args:
        name: the name of the benchmark.
        benchmark: its module.
        cache: a folder that is kept between runs.
        repetitions: how many; by default as many as the benchmark wants and `SHARE_S` allows.
        warm_up: whether the additional repetition is made.
    """
    if prepare := getattr(benchmark, "prepare", None):
        prepare(cache)
    share_s = SHARE_S if repetitions is None else float("inf")
    wanted = (repetitions or benchmark.REPETITIONS) + warm_up
    found: list[Mapping[str, float | str]] = []
    begun = time.monotonic()
    while len(found) < wanted and (time.monotonic() - begun) * (1 + 1 / max(len(found), 1)) < share_s:
        found.append(_repeat(name, cache))
    if warm_up and len(found) > 1:
        del found[0]
    for row in benchmark.ROWS:
        given = [values[row.name] for values in found if row.name in values]
        reasons = [value for value in given if isinstance(value, str)]
        yield Result(row, [v for v in given if not isinstance(v, str)], reasons[0] if reasons else "")


def environment(home: Path, cache: Path) -> dict[str, str]:
    """What a measured process starts with: nobody's settings, and a place for byte code outside the tree."""
    foreign = ("PAI_", "ALIBABA_CLOUD_", "OSS_", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {
        **kept,
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": str(cache / "pycache"),
        "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
    }


def _repeat(name: str, cache: Path) -> Mapping[str, float | str]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        try:
            done = _measure(name, Path(folder), cache)
        finally:
            end_processes_of(Path(folder))
    if done.returncode != 0:
        raise BenchmarkError(f"ended with {done.returncode}; what it said stands above")
    values: Mapping[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return values


def _measure(name: str, folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    # Its output goes into a file: a service that a benchmark leaves behind would hold a pipe open.
    with (folder / "values").open("w+") as output:
        command = [sys.executable, "-m", "tests.benchmarks", "--measure", name, "--cache", str(cache)]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment(folder, cache),
                stdin=subprocess.DEVNULL,
                stdout=output,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"a repetition took more than {LONGEST_S} s") from None
        output.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, output.read())
