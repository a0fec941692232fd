"""The metrics of one job: those in its logs are written into event files, and all its event files are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pai_sdk._data.logs.times import LogTimes
from pai_sdk._data.run.events.points import EventFolder, JobPoints, Part
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.contract import instances
from pai_sdk._host.execution.log_metrics import LogMetrics, Pattern
from pai_sdk._wire.pai.request import TrainingJobRequest


def open_points(
    job_id: str, request: TrainingJobRequest, sandbox: Sandbox, tensorboard: Path | None = None
) -> JobPoints:
    """Opens the points of a job on this machine; `tensorboard` is the folder of that output if outside."""
    folder = tensorboard or Path(RunLayout(str(sandbox.ml / "output")).tensorboard)
    # A link that the job has created is not followed; `tensorboard` is a folder of the user.
    events = EventFolder(folder, is_link_allowed=tensorboard is not None)
    return JobPoints(events, [instance.name for instance in instances(job_id, request)])


class JobMetrics:
    """Writes and reads the metrics of one job. Not thread-safe; several processes can share a job."""

    def __init__(
        self,
        job_id: str,
        request: TrainingJobRequest,
        sandbox: Sandbox,
        *,
        times: Callable[[str], LogTimes],
        tensorboard: Path | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        names = [instance.name for instance in instances(job_id, request)]
        self._logs = LogMetrics(sandbox, names, times=times, tensorboard=tensorboard, now=now)
        self._points = open_points(job_id, request, sandbox, tensorboard)
        self._sources: dict[str, tuple[Any, ...]] = {}  # by metric: sort key of the source of the latest value
        self._has_long_lines = False

    def call_not_finite(self, function: Callable[[Part], object]) -> None:
        """Calls a function with points that are NaN or infinite, which no part has."""
        self._points.on_not_finite = function
        self._logs.call_not_finite(function)

    def write(self, patterns: Sequence[Pattern], *, is_final: bool) -> Iterator[Mapping[str, float]]:
        """Writes new values of the logs, see `LogMetrics.read_on`."""
        yield from self._logs.read_on(patterns, is_final=is_final)

    def read_on(self) -> Iterator[Part]:
        """Reads the points that were written since the last call."""
        return self._points.read_on()

    def read_latest(self) -> Iterator[tuple[Part, bool]]:
        """Reads on; yields each part, and whether its last point is the latest value of its metric."""
        for part in self.read_on():
            # Several instances report one metric: the preferred source wins, whenever it was read.
            is_latest = len(part.value) > 0 and self._sources.get(part.name, part.order) >= part.order
            if is_latest:
                self._sources[part.name] = part.order
            yield part, is_latest

    def has_first_long_line(self) -> bool:
        """Returns True once: after a line was read that is too long to be searched completely."""
        is_first = bool(self._logs.long_lines) and not self._has_long_lines
        self._has_long_lines = self._has_long_lines or is_first
        return is_first
