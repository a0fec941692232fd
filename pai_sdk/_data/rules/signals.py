"""What is recorded of a running job at one time, and what rules conclude from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pai_sdk._data.rules.rules import Action
from pai_sdk._data.stacks.processes import ProcessStack

BUSY_CORES = 0.05  # an instance that uses at least so many cores works
BUSY_BYTES_PER_S = 64 << 10  # or reads and writes so much


PRINTED = -1
"""The rank of points that a job has only printed."""


class Point(NamedTuple):
    """A point of a metric; `value` may be NaN or infinite."""

    name: str
    value: float
    instance: str = ""
    rank: int = 0
    step: int | None = None
    wall_s: float | None = None  # seconds since 1970


@dataclass(frozen=True)
class InstanceSample:
    """One instance since the last sample; None where something is not measured."""

    log_bytes: int = 0  # the size of its log
    lines: Sequence[str] = ()  # the new lines of its log, or the last ones of many; states of a progress bar too
    cores: float | None = None  # CPU time per second of all its processes
    io_bytes_per_s: float | None = None
    gpu_percent: float | None = None
    is_stopped: bool = False  # a process is stopped by a signal
    is_debugged: bool = False  # a debugger holds a process, or a breakpoint waits
    is_blocked: bool = False  # a process is in uninterruptible I/O
    is_placeholder: bool = False  # its processes only sleep, as those of `sleep infinity`
    has_ended: bool = False

    @property
    def is_measured(self) -> bool:
        """Returns whether its CPU time is readable."""
        return self.cores is not None

    @property
    def is_busy(self) -> bool:
        """Returns whether it works, as far as is readable."""
        io_bytes_per_s = self.io_bytes_per_s or 0.0
        return (self.cores or 0.0) >= BUSY_CORES or io_bytes_per_s >= BUSY_BYTES_PER_S or self.is_blocked


@dataclass(frozen=True)
class Sample:
    """One job at one time.

    Attributes:
        at_s: of a monotonic clock.
        instances: by name, in rank order.
        points: of metrics, since the last sample.
        stacks: of all processes, where they were requested.
        elapsed_s: since the start of the attempt.
        fraction: the completed part of the work, 0 to 1.
        remaining_s: until the end, as the job prints it.
        max_run_s: the time limit.
        disk_free: bytes.
        disk_total: bytes.
    """

    at_s: float
    instances: Mapping[str, InstanceSample]
    points: Sequence[Point] = ()
    stacks: Sequence[ProcessStack] | None = None
    elapsed_s: float | None = None
    fraction: float | None = None
    remaining_s: float | None = None
    max_run_s: float | None = None
    disk_free: int | None = None
    disk_total: int | None = None


@dataclass(frozen=True)
class Condition:
    """What one rule observes now: a reason to report, with the numbers behind it."""

    code: str
    message: str
    instance: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""  # distinguishes conditions of one rule, such as several metrics


@dataclass(frozen=True)
class Finding:
    """A change that is reported: a rule's condition appears, or is cleared."""

    code: str
    status: Literal["raised", "cleared"]
    message: str
    action: Action
    instance: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""  # of its condition

    @property
    def text(self) -> str:
        """Returns the text of the event."""
        return (
            f"{self.code}: {self.message}" if self.status == "raised" else f"{self.code} cleared: {self.message}"
        )
