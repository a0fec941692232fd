"""Reads the samples of the resource usage of jobs, which `background/usage.py` writes.

The samples of an instance are in a file next to its log, one per line: time, and for each of `MEASURED` a number,
or a hyphen where it is not measured. Samples of earlier versions have no GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

MEASURED = ("CpuCoreUsage", "MemoryUsage", "DiskReadRate", "DiskWriteRate", "GpuCoreUsage", "GpuMemoryUsage")
"""Percent of the machine's cores and memory, bytes per second, percent of time and memory of the busiest GPU."""

CPU_USAGE, MEMORY_USAGE, _, _, GPU_USAGE, GPU_MEMORY_USAGE = MEASURED

_NOT_MEASURED = "-"
_COUNTS = (4, 6)  # of values
_TAIL_BYTES = 1024  # several samples


def read_usage(log: Path, metric: str, *, start: float, end: float, step_s: float) -> list[tuple[float, float]]:
    """Returns one metric of one instance between two times (seconds since 1970): start and mean of each step."""
    steps: dict[float, list[float]] = {}
    for moment, values in _samples(usage_file(log)):
        if start <= moment <= end and metric in values:
            steps.setdefault(math.floor(moment / step_s) * step_s, []).append(values[metric])
    return [(moment, sum(values) / len(values)) for moment, values in sorted(steps.items())]


def last_sample(log: Path, *, after: float) -> dict[str, float]:
    """Returns the newest sample of one instance since a time, by metric; empty without one."""
    empty: tuple[float, dict[str, float]] = (0.0, {})
    moment, values = max(_samples(usage_file(log), tail_bytes=_TAIL_BYTES), key=itemgetter(0), default=empty)
    return values if moment >= after else {}


def sample_line(time_s: float, values: Sequence[float | None]) -> bytes:
    """Returns the line of a sample, with a value for each of `MEASURED`."""
    texts = (_NOT_MEASURED if value is None else f"{value:.4f}" for value in values)
    return f"{time_s:.3f} {' '.join(texts)}\n".encode("ascii")


def usage_file(log: Path) -> Path:
    """Returns the file of the samples of an instance."""
    return log.with_suffix(".usage")


def _samples(file: Path, *, tail_bytes: int | None = None) -> Iterator[tuple[float, dict[str, float]]]:
    with suppress(FileNotFoundError), file.open("rb") as lines:
        if tail_bytes is not None and file.stat().st_size > tail_bytes:
            lines.seek(-tail_bytes, 2)
            lines.readline()  # the end of a line
        for line in lines:
            # Other lines were truncated by a full disk.
            with suppress(ValueError):
                moment, *values = line.decode("ascii").split()
                if len(values) in _COUNTS:
                    pairs = zip(MEASURED, values, strict=False)
                    yield float(moment), {name: float(value) for name, value in pairs if value != _NOT_MEASURED}
