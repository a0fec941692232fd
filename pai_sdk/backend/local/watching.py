"""Reading the logs of local jobs: lines by number, and the metrics in them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.contract import instances
from pai_sdk.execution.docker.shared_folder import SharedFolder
from pai_sdk.execution.log_index import LogIndex
from pai_sdk.execution.metric_source import MetricSource, MetricValue, RegexPattern
from pai_sdk.schemas.record import LogPage, MetricPoint
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.schemas.wire import wire_time

_LOOK_S = 0.02
_MOST_INDEXES = 256
_LATEST_EVERY_S = 1.0


class LocalLogs:
    """The logs of local jobs. What was read once is found again quickly; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: dict[Path, LogIndex] = {}

    def read(self, path: Path, start: int, limit: int, *, wait_s: float, is_open: Callable[[], bool]) -> LogPage:
        """Lines of one log; when there are none yet, the answer waits for some."""
        index = self._index(path)
        deadline = time.monotonic() + wait_s
        while True:
            # Asked before the lines: what was written before the end is among them then.
            goes_on = is_open()
            lines = index.lines(start, start + limit, is_open=goes_on)
            if lines or not goes_on or time.monotonic() >= deadline:
                total = index.count(is_open=goes_on)
                complete = not goes_on and start + len(lines) >= total
                return LogPage(tuple(lines), complete=complete, waited=wait_s > 0, total=total)
            time.sleep(_LOOK_S)

    def ends(self, path: Path, start: int, count: int, *, is_open: bool) -> list[int]:
        """Where lines of one log end, in bytes."""
        return self._index(path).ends(start, start + count, is_open=is_open)

    def _index(self, path: Path) -> LogIndex:
        with self._lock:
            if path not in self._indexes and len(self._indexes) >= _MOST_INDEXES:
                self._indexes.pop(next(iter(self._indexes)))
            return self._indexes.setdefault(path, LogIndex(path))


@dataclass(frozen=True)
class MetricFiles:
    """Where the metrics of a job are.

    Attributes:
        sandbox: the job's folder.
        job_id: the job.
        request: its description.
        outputs: output channels whose folder is not in the sandbox.
    """

    sandbox: Sandbox
    job_id: str
    request: TrainingJobRequest
    outputs: Mapping[str, Path]


def metric_values(files: MetricFiles, *, name: str | None) -> Iterator[MetricPoint]:
    """The values that the job has reported, and those that its metric definitions find in its logs.

    Args:
        files: where they are.
        name: of the only metric that is wanted.
    """
    patterns = [pattern for pattern in _patterns(files.request) if name is None or pattern.name == name]
    for value in _source(files).values(patterns):
        if name is None or value.name == name:
            yield _point(value)


class LatestMetrics:
    """The last value of each metric of local jobs. Files are read on from where they were read before.

    `_lock` guards all of it, reads of files included: callers of one job want the same answer.

    Args:
        clock: monotonic, in seconds; a job's files are read once a second at most.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: dict[str, _LatestReader] = {}

    def of(self, job_id: str, files: Callable[[], MetricFiles], *, is_final: bool) -> list[MetricPoint]:
        """The last values now, in the order in which the metrics first appeared.

        Args:
            job_id: the job.
            files: says where its metrics are; called once for each job.
            is_final: whether the job has ended, so that its last line counts without its line end.
        """
        with self._lock:
            reader = self._readers.get(job_id)
            if reader is None:
                if len(self._readers) >= _MOST_INDEXES:
                    self._readers.pop(next(iter(self._readers)))
                found = files()
                reader = self._readers[job_id] = _LatestReader(_source(found), _patterns(found.request))
            now = self._clock()
            if now >= reader.due_at or is_final > reader.is_final:
                reader.due_at, reader.is_final = now + _LATEST_EVERY_S, is_final
                reader.read_on()
            return list(reader.latest.values())


@dataclass
class _LatestReader:
    source: MetricSource
    patterns: Sequence[RegexPattern]
    latest: dict[str, MetricPoint] = field(default_factory=dict)
    due_at: float = 0.0
    is_final: bool = False

    def read_on(self) -> None:
        """Read what was written since the last time."""
        for file in self.source.sources():
            while (piece := file.read(self.patterns, is_final=self.is_final)) is not None:
                file.offset = piece.end
                for value in piece.values:
                    self.latest[value.name] = _point(value)
                if not piece.is_more:
                    break


def _patterns(request: TrainingJobRequest) -> list[RegexPattern]:
    spec = request.algorithm_spec
    definitions = spec.metric_definitions or () if spec else ()
    return [RegexPattern(definition.name, re.compile(definition.regex)) for definition in definitions]


def _source(files: MetricFiles) -> MetricSource:
    return MetricSource(
        files.sandbox,
        [instance.name for instance in instances(files.job_id, files.request)],
        times=SharedFolder(files.sandbox.shared_dir).log_times,
        tensorboard=files.outputs.get("tensorboard"),
    )


def _point(value: MetricValue) -> MetricPoint:
    return MetricPoint(
        name=value.name,
        value=value.value,
        timestamp=wire_time(value.time),
        step=value.step,
        instance=value.instance,
    )
