"""Reads the samples of the resource usage of jobs, which `background/usage.py` writes.

The samples of an instance are in a file next to its log, one per line: time, and a number for each of `MEASURED`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

MEASURED = ("CpuCoreUsage", "MemoryUsage", "DiskReadRate", "DiskWriteRate")
"""Percent of the machine's cores, percent of its memory, bytes per second."""

CPU_USAGE, MEMORY_USAGE, *_ = MEASURED

_TAIL_BYTES = 1024  # several samples


def read_usage(log: Path, metric: str, *, start: float, end: float, step_s: float) -> list[tuple[float, float]]:
    """Returns one metric of one instance between two times (seconds since 1970): start and mean of each step."""
    steps: dict[float, list[float]] = {}
    if metric in MEASURED:
        for moment, values in _samples(usage_file(log)):
            if start <= moment <= end:
                steps.setdefault(math.floor(moment / step_s) * step_s, []).append(values[MEASURED.index(metric)])
    return [(moment, sum(values) / len(values)) for moment, values in sorted(steps.items())]


def last_sample(log: Path, *, after: float) -> dict[str, float]:
    """Returns the newest sample of one instance since a time, by metric; empty without one."""
    newest: tuple[float, Sequence[float]] = max(
        _samples(usage_file(log), tail_bytes=_TAIL_BYTES), default=(0.0, ())
    )
    return dict(zip(MEASURED, newest[1], strict=False)) if newest[0] >= after else {}


def usage_file(log: Path) -> Path:
    """Returns the file of the samples of an instance."""
    return log.with_suffix(".usage")


def _samples(file: Path, *, tail_bytes: int | None = None) -> Iterator[tuple[float, Sequence[float]]]:
    with suppress(FileNotFoundError), file.open("rb") as lines:
        if tail_bytes is not None and file.stat().st_size > tail_bytes:
            lines.seek(-tail_bytes, 2)
            lines.readline()  # the end of a line
        for line in lines:
            try:
                moment, *values = map(float, line.split())
            except ValueError:
                continue  # truncated by a full disk
            if len(values) == len(MEASURED):
                yield moment, values
