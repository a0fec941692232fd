"""Writes the values that metric definitions match in a job's logs as events into the run's folder.

    logs/<instance>.log ──definitions──> tensorboard/log-metrics/events.out.tfevents.<time>.<instance>.0.0

Readers of event files find these values beside those that the job reports. The log is the source of truth: the
event file can be rebuilt from it at any time.

A line with values becomes one record; its step counts such lines. Records are appended in batches, and each batch
ends with a mark: a record without values that stores how far the log was read. After a kill, records behind the
last mark are truncated and read from the log again, so each value is in the file exactly once. A lock in the job's
folder allows one writing process at a time; it is held for one chunk of a log.
"""

from __future__ import annotations

import errno
import math
import os
import re
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from pai_sdk._core.files import locked, open_plain, read_at, write_at
from pai_sdk._data.logs.times import LogTimes
from pai_sdk._data.run.events.points import Part
from pai_sdk._data.run.events.writer import (
    FILE_VERSION,
    double_field,
    event_file_source,
    framed,
    scalars_record,
)
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._host.agent.sandbox import Sandbox

_CHUNK_BYTES = 1 << 20
MAX_LINE = 32 << 10
"""Longer lines are searched only at both ends: the time of a pattern may grow with the square of the length."""

_MARK_AFTER_BYTES = 1 << 18  # of a log without values: at most this much is read again after a restart
_SEARCHED_BYTES = 1 << 20
_MAX_NOT_FINITE = 200  # values of one metric and chunk
_LOCK = "log-metrics.lock"
_NAMES = RunLayout("").log_metrics.split("/")
_FILE_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))
_FOLDER_FLAGS = _FILE_FLAGS | getattr(os, "O_DIRECTORY", 0)
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)


class Pattern(Protocol):
    """A metric definition, or a pattern for the job's progress."""

    @property
    def name(self) -> str:
        """Returns the name of the metric or of the progress value."""
        ...

    @property
    def is_progress(self) -> bool:
        """Returns whether the values are progress and not a metric."""
        ...

    def matches(self, lines: list[str]) -> Iterator[tuple[int, str | None]]:
        """Yields the first group of each match, with its line number."""
        ...


@dataclass(frozen=True)
class RegexPattern:
    """A regular expression of the caller, which is trusted to terminate."""

    name: str
    regex: re.Pattern[str]
    is_progress: bool = False

    def matches(self, lines: list[str]) -> Iterator[tuple[int, str | None]]:
        """Yields the first group of each match, with its line number."""
        if self.regex.groups:
            for number, line in enumerate(lines):
                for match in self.regex.finditer(line):
                    yield number, match.group(1)


def is_refused(error: OSError) -> bool:
    """Returns whether a retry is useless: the folder is not a folder, or not writable."""
    return error.errno in _REFUSALS


class LogMetrics:
    """The metrics in the logs of one job. Not thread-safe; several processes can share a job."""

    def __init__(
        self,
        sandbox: Sandbox,
        instances: Iterable[str],
        *,
        # Returns the recorded sizes of an instance's log.
        times: Callable[[str], LogTimes],
        # The folder of that output channel, if it is outside the sandbox.
        tensorboard: Path | None = None,
        # The time of a line without a recorded time; 0 leaves it unknown.
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._lock = sandbox.state_dir / _LOCK
        folder = _EventsFolder(sandbox.ml / "output", tensorboard)
        self._logs = [_Log(name, sandbox.log_file(name), folder, partial(times, name), now) for name in instances]

    def call_not_finite(self, function: Callable[[Part], object]) -> None:
        """Calls a function with values that are NaN or infinite, which are not written."""
        for log in self._logs:
            log.on_not_finite = function

    @property
    def long_lines(self) -> int:
        """Returns how many lines were longer than `MAX_LINE`: their middles were not searched."""
        return sum(log.long_lines for log in self._logs)

    def read_on(self, patterns: Sequence[Pattern], *, is_final: bool) -> Iterator[Mapping[str, float]]:
        """Writes new values, one chunk of a log per step; yields the last progress values of each chunk.

        `is_final`: no instance writes any more, so an unterminated last line counts too. An OSError means that the
        events cannot be written; see `is_refused`.
        """
        for log in self._logs if patterns else ():
            is_more = log.might_have_more(is_final=is_final)
            while is_more:
                try:
                    # Per chunk, so that other processes wait for one chunk only.
                    with locked(self._lock):
                        is_more, progress = log.read_chunk(patterns, is_final=is_final)
                except FileNotFoundError:
                    # The job was deleted.
                    return
                yield progress


class _Mark(NamedTuple):
    """The end of a batch of records."""

    log_bytes: int = 0  # how much of the log is read
    lines: int = 0  # how many lines with values there were
    last_time: float = 0.0  # of the last such line, in seconds since 1970; 0 if unknown

    def record(self) -> bytes:
        """Returns the mark as a record of an event file; TensorBoard skips fields that it does not know."""
        return framed(
            double_field(1, self.last_time) + _MARK_FIELDS.pack(_LOG_BYTES, self.log_bytes, _LINES, self.lines)
        )

    @classmethod
    def read_last(cls, file: int) -> tuple[_Mark, int]:
        """Returns the last mark of a file and the offset behind it; an empty mark and 0 if there is none."""
        start = end = os.fstat(file).st_size
        while end:
            start = max(end - _SEARCHED_BYTES, 0)
            data = read_at(file, end - start, start)
            at = len(data)
            while (at := data.rfind(_MARK_HEAD, 0, at)) >= 0:
                record = data[at : at + _MARK_BYTES]
                if len(record) == _MARK_BYTES:
                    (last_time,) = _DOUBLE.unpack_from(record, len(_MARK_HEAD))
                    _, log_bytes, _, lines = _MARK_FIELDS.unpack_from(record, len(_MARK_HEAD) + _DOUBLE.size)
                    mark = cls(log_bytes, lines, last_time)
                    # A record contains checksums, so bytes of the log that only look like a mark do not
                    # match.
                    if mark.record() == record:
                        return mark, start + at + _MARK_BYTES
            # A mark may cross the boundary of two reads.
            end = start and min(start + _MARK_BYTES, end - 1)
        return cls(), 0


# The keys of fields 101 and 102, each with eight bytes behind it.
_LOG_BYTES, _LINES = b"\xa9\x06", b"\xb1\x06"
_MARK_FIELDS = struct.Struct("<2sQ2sQ")
_DOUBLE = struct.Struct("<d")
_MARK_BYTES = len(_Mark().record())
_MARK_HEAD = _Mark().record()[: _MARK_BYTES - 4 - _MARK_FIELDS.size - _DOUBLE.size]


class _Log:
    """The log of an instance, and the event file with its values."""

    def __init__(
        self,
        instance: str,
        path: Path,
        folder: _EventsFolder,
        times: Callable[[], LogTimes],
        now: Callable[[], float],
    ) -> None:
        self._instance, self._path, self._folder, self._times, self._now = instance, path, folder, times, now
        self.long_lines = 0
        self.on_not_finite: Callable[[Part], object] = lambda part: None
        self._last_read: tuple[int, bool] | None = (
            # Size of the log at the last read, and whether that was final.
            None
        )
        # How far the log was read without a value behind the mark; valid while the event file is unchanged.
        self._ahead: tuple[tuple[int, int], _Mark] | None = None

    def might_have_more(self, *, is_final: bool) -> bool:
        """Returns whether the log has grown since the last read, or has become final."""
        try:
            return (self._path.lstat().st_size, is_final) != self._last_read
        except OSError:
            return False

    def read_chunk(self, patterns: Sequence[Pattern], *, is_final: bool) -> tuple[bool, Mapping[str, float]]:
        """Reads a chunk; returns whether the log might have more, and the chunk's progress values."""
        with ExitStack() as stack:
            try:
                log = stack.enter_context(open_plain(self._path))
            except OSError:
                # Not written yet, removed with the job, or something else than a file.
                return False, {}
            status = os.fstat(log.fileno())
            writes_events = any(not pattern.is_progress for pattern in patterns)
            events = self._folder.open(self._instance, stack) if writes_events else None
            marked, end = (_Mark(), 0) if events is None else _Mark.read_last(events)
            # The mark belongs to another log.
            if marked.log_bytes > status.st_size:
                marked, end = _Mark(), 0
            mark = self._ahead[1] if self._ahead and self._ahead[0] == _identity(events) else marked
            log.seek(mark.log_bytes)
            chunk = log.read(_CHUNK_BYTES)
            size = _size_of_lines(chunk, is_final=is_final)
            records, mark, progress = self._parse_records(chunk[:size], mark, patterns, status.st_mtime)
            if records or (end and mark.log_bytes - marked.log_bytes >= _MARK_AFTER_BYTES):
                if events is None:
                    events = self._folder.open(self._instance, stack, create=True)
                _append(events, end, [*records, mark.record()])
            self._ahead = (_identity(events), mark)
        is_more = len(chunk) == _CHUNK_BYTES or (is_final and 0 < size < len(chunk))
        self._last_read = None if is_more else (status.st_size, is_final)
        return is_more, progress

    def _parse_records(
        self, content: bytes, mark: _Mark, patterns: Sequence[Pattern], changed_at: float
    ) -> tuple[list[bytes], _Mark, Mapping[str, float]]:
        """Returns records of the lines with values, the mark behind them, and the last progress values."""
        states = content.splitlines(keepends=True)
        lines = [self._searched_text(state) for state in states]
        values, progress = _values(patterns, lines)
        times = self._times() if values else LogTimes()
        odd = list[tuple[str, float, float]]()
        records, offset, count, last_time = [], mark.log_bytes, mark.lines, mark.last_time
        for line, state in enumerate(states):
            offset += len(state)
            if line in values:
                at = times.of_byte(offset - 1)
                # Written after the last recorded size: the log's own mtime counts.
                if at is None:
                    at = changed_at if times.times else self._now()
                # Sizes are sampled, so an earlier line may get a later time; times must not go backwards.
                last_time = max(last_time, at)
                finite = [pair for pair in values[line] if math.isfinite(pair[1])]
                odd += [(name, last_time, value) for name, value in values[line] if not math.isfinite(value)]
                if finite:
                    count += 1
                    records.append(scalars_record(last_time, count, finite))
        self._report_not_finite(odd, count)
        return records, _Mark(offset, count, last_time), progress

    def _report_not_finite(self, points: Sequence[tuple[str, float, float]], step: int) -> None:
        """Passes on the last values of each metric that are NaN or infinite, with their times."""
        for metric in {name for name, _, _ in points}:
            last = [(at, value) for name, at, value in points if name == metric][-_MAX_NOT_FINITE:]
            wall, value = ([*column] for column in zip(*last, strict=True))
            self.on_not_finite(Part(metric, self._instance, True, "", wall, [step] * len(wall), value))

    def _searched_text(self, state: bytes) -> str:
        """Decodes the part of a line that is searched: only both ends of a very long line."""
        if len(state) > MAX_LINE:
            self.long_lines += 1
            state = state[: MAX_LINE // 2] + b"\n" + state[-(MAX_LINE // 2) :]
        return state.decode("utf-8", errors="replace").rstrip("\r\n")


def _size_of_lines(chunk: bytes, *, is_final: bool) -> int:
    """Returns the size of the complete lines; a progress bar ends its states with a carriage return."""
    end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
    # A line that fills the chunk counts as complete, and so does an unterminated last line.
    return len(chunk) if end == 0 and (is_final or len(chunk) == _CHUNK_BYTES) else end


def _values(
    patterns: Sequence[Pattern], lines: list[str]
) -> tuple[dict[int, list[tuple[str, float]]], dict[str, float]]:
    """Returns the values of the metrics by line, and the last progress values."""
    values: dict[int, list[tuple[str, float]]] = {}
    progress: dict[str, float] = {}
    for pattern in patterns:
        for line, text in pattern.matches(lines):
            number = _number(text)
            if number is None:
                continue
            if not pattern.is_progress:
                values.setdefault(line, []).append((pattern.name, number))
            elif math.isfinite(number):
                progress[pattern.name] = number
    return values, progress


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


# ---- the file -------------------------------------------------------------------------------------------------


class _EventsFolder:
    """The folder of the event files. A job controls the content of its outputs, so no link in it is followed."""

    def __init__(self, outputs: Path, tensorboard: Path | None) -> None:
        # The job cannot replace `outputs`; `tensorboard` is a folder of the user, which may itself be a link.
        self._outputs, self._tensorboard = outputs, tensorboard

    def open(self, instance: str, stack: ExitStack, *, create: bool = False) -> int | None:
        """Opens the event file of an instance until the stack is closed; returns None if it does not exist."""
        try:
            with ExitStack() as folders:
                if create and self._tensorboard:
                    self._tensorboard.mkdir(parents=True, exist_ok=True)
                folder = _open_at(folders, self._tensorboard or self._outputs, os.O_RDONLY)
                for name in _NAMES[1:] if self._tensorboard else _NAMES:
                    if create:
                        with suppress(FileExistsError):
                            os.mkdir(name, dir_fd=folder)
                    folder = _open_at(folders, name, os.O_RDONLY | _FOLDER_FLAGS, folder)
                names = sorted(os.listdir(folder))  # noqa: PTH208 - a Path knows no descriptor
                matches = (name for name in names if (event_file_source(name) or ("",))[0] == instance)
                name = next(matches, f"events.out.tfevents.{int(time.time()):010d}.{instance}.0.0")
                flags = os.O_RDWR | _FILE_FLAGS | (os.O_CREAT if create else 0)
                file = _open_at(stack, name, flags, folder)
        except FileNotFoundError:
            if create:
                raise
            return None
        status = os.fstat(file)
        # A hard link may be another file of this user, outside the outputs.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.ELOOP, "is not a file of this folder", name)
        return file


def _open_at(stack: ExitStack, path: str | Path, flags: int, folder: int | None = None) -> int:
    file = os.open(path, flags, 0o666, dir_fd=folder)
    stack.callback(os.close, file)
    return file


def _identity(file: int | None) -> tuple[int, int]:
    """Returns a value that changes when a file is replaced or written; constant while there is none."""
    status = None if file is None else os.fstat(file)
    return (0, 0) if status is None else (status.st_ino, status.st_size)


def _append(file: int | None, end: int, records: Sequence[bytes]) -> None:
    """Writes a batch behind the last one; a partial batch is removed."""
    if file is None:
        raise FileNotFoundError
    os.ftruncate(file, end)
    content = b"".join(records) if end else framed(double_field(1, time.time()) + FILE_VERSION) + b"".join(records)
    at = end
    try:
        while at - end < len(content):
            at += write_at(file, content[at - end :], at)
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, end)
        raise
