"""A run is traced into a folder, and killed and resumed many times: `read_trace` has each step once.

The run flushes its trace before each checkpoint. A kill between the two leaves a commit whose steps are written
again: only these may be there twice, and the column `_attempt` tells them apart.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk._data.trace.parquet import ParquetSink
from pai_sdk._data.trace.trace_data import read_trace
from pai_sdk._data.trace.trace_writer import TraceWriter

__all__ = ["ResumeReport", "main", "run"]

EVERY, ROWS = 7, 3
NEWEST = (
    "SELECT step FROM trace "
    "QUALIFY _attempt IS NOT DISTINCT FROM max(_attempt) OVER (PARTITION BY run, _rank, step)"
)


@dataclass
class ResumeReport:
    """What was seen. `problems` is empty when all is well."""

    kills: int = 0
    steps: int = 0
    left_out: int = 0
    doubled: int = 0
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            [
                *(f"PROBLEM: {problem}" for problem in self.problems),
                f"{self.steps} steps, {self.kills} kills, {self.left_out} blocks left out, {self.took_s:.0f} s",
                f"{self.doubled} steps of commits before a lost checkpoint are there twice",
                "each other step once" if not self.problems else f"{len(self.problems)} problems",
            ]
        )


def run(root: Path, kills: int, seed: int) -> ResumeReport:
    """Trace one run until it was killed so often, and then to its end."""
    chance, report, began = random.Random(seed), ResumeReport(), time.monotonic()
    folder, checkpoint = root / "trace", root / "checkpoint"
    excused: set[int] = set()
    command = [sys.executable, "-m", "tests.trials.resume", "--write", str(folder), str(checkpoint)]
    while report.kills < kills:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            for _ in zip(range(chance.randint(1, 5 * EVERY)), program.stdout, strict=False):
                pass
            time.sleep(chance.random() * 0.02)
            program.kill()
        report.kills += 1
        excused |= set(range(_step(checkpoint), _step(checkpoint) + EVERY))
    report.steps = _step(checkpoint) + 10 * EVERY
    _write(folder, checkpoint, report.steps)
    trace = read_trace(folder)
    report.left_out = len(trace.left_out)
    _check(report, Counter(trace.to_arrow()["step"].to_pylist()), excused)
    newest = Counter(step for (step,) in trace.with_attempts().query(NEWEST).fetchall())
    if newest != Counter(dict.fromkeys(range(report.steps), ROWS)):
        report.problems.append("the rows of the last attempts are not each step once")
    report.took_s = time.monotonic() - began
    return report


def _check(report: ResumeReport, counts: Counter[int], excused: set[int]) -> None:
    if missing := sorted(set(range(report.steps)) - set(counts)):
        report.problems.append(f"{len(missing)} steps are missing, the first is {missing[0]}")
    more = {step for step, count in counts.items() if count != ROWS}
    report.doubled = len(more & excused)
    if wrong := sorted(more - excused):
        report.problems.append(f"{len(wrong)} steps are not there once: {[(s, counts[s]) for s in wrong[:5]]}")


def _write(folder: Path, checkpoint: Path, last: int | None = None) -> None:
    """What is killed: it resumes at the checkpoint."""
    sink = ParquetSink(folder, partition={"dt": str(_step(checkpoint) // 50)})
    with TraceWriter({"step": "bigint"}, sink, run_id="trial", block_bytes=1) as writer:
        step = _step(checkpoint)
        while last is None or step < last:
            writer.write(step=[step] * ROWS)
            step += 1
            if step % EVERY == 0:
                writer.flush()
                draft = checkpoint.with_suffix(".new")
                draft.write_text(str(step), encoding="utf-8")
                os.replace(draft, checkpoint)  # noqa: PTH105
            if last is None:
                sys.stdout.write(f"{step}\n")
                sys.stdout.flush()


def _step(checkpoint: Path) -> int:
    return int(checkpoint.read_text(encoding="utf-8")) if checkpoint.exists() else 0


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials resume", description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), options.kills, options.seed)
    sys.stdout.write(f"{report}\n")
    return 1 if report.problems else 0


if __name__ == "__main__" and sys.argv[1:2] == ["--write"]:
    _write(*map(Path, sys.argv[2:]))
