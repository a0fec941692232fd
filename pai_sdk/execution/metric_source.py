"""The metrics of a job on a machine that we control: those it reports, and those that patterns find in its logs.

Both readers of metrics use this module: the collector of a service, which reads on from where it was and stores
what it finds, and a local job, which is read from the beginning each time. The files grow while they are read.
"""

from __future__ import annotations

import heapq
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import open_plain
from pai_sdk.execution.log_times import END_OF_TIME_S, LogTimes
from pai_sdk.run.events import ScalarEvent, event_file_source, read_records, scalars_in
from pai_sdk.run.layout import RunLayout

__all__ = ["EventSource", "LogSource", "MetricPiece", "MetricSource", "MetricValue", "Pattern", "RegexPattern"]

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 4096
_LONGEST_NAME = 500
_MOST_EVENTS = 5000
_MOST_FILES = 1000
_RANK_FOLDER = re.compile(r"rank-[0-9]{1,9}")


@dataclass(frozen=True)
class MetricValue:
    """One value of one metric.

    Attributes:
        name: of the metric.
        value: finite.
        instance: the instance that reported it or wrote the line.
        step: as reported; None for a value from a log.
        time: seconds since 1970; None where the time of a line is not known.
    """

    name: str
    value: float
    instance: str
    step: int | None = None
    time: float | None = None


@dataclass(frozen=True)
class MetricPiece:
    """What one bounded read of a file found.

    Attributes:
        values: in the order of the file.
        progress: name to last figure, of patterns for the progress of the job.
        end: the offset behind what was read.
        is_more: whether the file may have more now.
    """

    values: Sequence[MetricValue]
    end: int
    is_more: bool
    progress: Mapping[str, float] = field(default_factory=dict)


class Pattern(Protocol):
    """A definition of a metric, or of a figure of the progress of a job."""

    @property
    def name(self) -> str:
        """Of the metric, or of the figure."""
        ...

    @property
    def is_progress(self) -> bool:
        """Whether it is a figure of the progress."""
        ...

    def texts(self, lines: list[str]) -> Iterator[tuple[int, str | None]]:
        """The first group of each match, with the number of its line."""
        ...


@dataclass(frozen=True)
class RegexPattern:
    """A pattern of the caller's own, which is trusted to end."""

    name: str
    regex: re.Pattern[str]
    is_progress: bool = False

    def texts(self, lines: list[str]) -> Iterator[tuple[int, str | None]]:
        """The first group of each match, with the number of its line."""
        if self.regex.groups:
            for number, line in enumerate(lines):
                for match in self.regex.finditer(line):
                    yield number, match.group(1)


class Source(Protocol):
    """A file with metrics. `offset` is how far it was read; the reader moves it when it has stored a piece."""

    offset: int

    @property
    def key(self) -> str:
        """Under which the offset is stored."""
        ...

    def read(self, patterns: Sequence[Pattern], *, is_final: bool) -> MetricPiece | None:
        """The next piece from the offset on; None when there is none."""
        ...


@dataclass
class LogSource:
    """The log of an instance."""

    instance: str
    path: Path
    times: Callable[[], LogTimes]
    offset: int = 0
    _last_time: float = 0.0

    @property
    def key(self) -> str:
        """The name of the instance."""
        return self.instance

    def read(self, patterns: Sequence[Pattern], *, is_final: bool) -> MetricPiece | None:
        """The values in the next whole lines; with `is_final`, the last one counts without its end too."""
        if not patterns:
            return None
        try:
            with open_plain(self.path) as file:
                file.seek(self.offset)
                chunk, changed_at = file.read(_CHUNK_BYTES), os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        is_whole = len(chunk) == _CHUNK_BYTES
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1  # a progress bar ends its states with `\r`
        if end == 0 and (is_whole or is_final):
            end = len(chunk)  # a line beyond all bounds, or the last one without its end
        if end == 0:
            return None
        states = chunk[:end].splitlines(keepends=True)
        lines = [state[:_LONGEST_LINE].decode("utf-8", errors="replace").rstrip("\r\n") for state in states]
        progress: dict[str, float] = {}
        found: list[tuple[int, str, float]] = []
        for pattern in patterns:
            numbers = [
                (line, number) for line, text in pattern.texts(lines) if (number := _finite(text)) is not None
            ]
            if not pattern.is_progress:
                found += [(line, pattern.name, number) for line, number in numbers]
            elif numbers:
                progress[pattern.name] = numbers[-1][1]
        found.sort(key=lambda one: one[0])
        times = self._times_of(states, {line for line, _, _ in found}, changed_at)
        values = [MetricValue(name, number, self.instance, None, times[line]) for line, name, number in found]
        return MetricPiece(values, self.offset + end, is_whole or is_final, progress)

    def _times_of(self, states: Sequence[bytes], wanted: set[int], changed_at: float) -> dict[int, float | None]:
        """When lines were written; behind the last note, the log's own time counts, where notes are taken."""
        if not wanted:
            return {}
        noted, offset = self.times(), self.offset
        found: dict[int, float | None] = {}
        for line, state in enumerate(states):
            offset += len(state)
            if line in wanted:
                at = noted.of_byte(offset - 1)
                if at is None and noted.times:
                    at = changed_at
                # Notes are taken now and then, so the time of an earlier line may be noted as a later one.
                self._last_time = max(self._last_time, at or 0.0)
                found[line] = None if at is None else self._last_time
        return found


@dataclass
class EventSource:
    """A file of events that an instance has reported."""

    instance: str
    path: Path
    key: str
    offset: int = 0

    def read(self, patterns: Sequence[Pattern], *, is_final: bool) -> MetricPiece | None:
        """The next reported values. NaN, infinities and names of more than 500 characters stay in the file."""
        values: list[MetricValue] = []
        end = self.offset
        try:
            with open_plain(self.path) as file:
                for record in read_records(file, self.offset):
                    values += [value for event in scalars_in(record) if (value := self._value(event)) is not None]
                    end = record.end
                    if len(values) >= _MOST_EVENTS or end - self.offset >= _CHUNK_BYTES:
                        return MetricPiece(values, end, True)
        except OSError:
            return None
        return None if end == self.offset else MetricPiece(values, end, False)

    def _value(self, event: ScalarEvent) -> MetricValue | None:
        if not math.isfinite(event.value) or len(event.tag) > _LONGEST_NAME or "\0" in event.tag:
            return None
        # A job can write any time; this one is no date.
        moment = event.wall_time if 0 <= event.wall_time < END_OF_TIME_S else 0.0
        return MetricValue(event.tag, event.value, self.instance, event.step, moment)


class MetricSource:
    """The files with metrics of one job.

    Args:
        sandbox: the job's folder.
        instances: the names of its instances.
        times: when the log of an instance had which size.
        tensorboard: the folder of that output channel, where it is not in the sandbox.
        offsets: how far files were read before, by their keys.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        instances: Iterable[str],
        *,
        times: Callable[[str], LogTimes],
        tensorboard: Path | None = None,
        offsets: Mapping[str, int] | None = None,
    ) -> None:
        self._offsets = offsets or {}
        self._tensorboard = tensorboard
        self._outputs = sandbox.ml / "output"
        self._instances = frozenset(instances)
        self.logs = [
            LogSource(name, sandbox.log_file(name), partial(times, name), self._offsets.get(name, 0))
            for name in instances
        ]
        self._events: dict[str, EventSource] = {}

    def sources(self) -> list[Source]:
        """All files with metrics that there are now, each with the offset of the last read."""
        for path, key in self._event_files():
            if key not in self._events and len(self._events) < _MOST_FILES:
                found = event_file_source(path.name)
                if found is not None and found[0] in self._instances:
                    self._events[key] = EventSource(found[0], path, key, self._offsets.get(key, 0))
        return [*self.logs, *self._events.values()]

    def values(self, patterns: Sequence[Pattern]) -> Iterator[MetricValue]:
        """All values from the beginning, the oldest first where the times are known."""
        return heapq.merge(
            *(_all_of(source, patterns) for source in self.sources()), key=lambda one: one.time or 0.0
        )

    def _event_files(self) -> Iterator[tuple[Path, str]]:
        """The event files: those of rank 0 in `tensorboard`, those of other processes in folders there."""
        folder = self._tensorboard or Path(RunLayout(str(self._outputs)).tensorboard)
        if self._tensorboard is None and folder.is_symlink():
            return  # a job could make it lead anywhere
        for entry in _entries(folder):
            if _RANK_FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                for inner in _entries(Path(entry.path)):
                    yield Path(inner.path), f"tensorboard/{entry.name}/{inner.name}"
            else:
                yield Path(entry.path), f"tensorboard/{entry.name}"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # there is none, or the job has just removed it
        return []


def _all_of(source: Source, patterns: Sequence[Pattern]) -> Iterator[MetricValue]:
    while (piece := source.read(patterns, is_final=True)) is not None:
        yield from piece.values
        source.offset = piece.end
        if not piece.is_more:
            return


def _finite(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
