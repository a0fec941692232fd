"""Writes what metric definitions find in the logs of a job as events into the run's folder.

    logs/<instance>.log ──definitions──> tensorboard/log-metrics/events.out.tfevents.<time>.<instance>.0.0

So the values are where those that a job reports are, and every reader of event files finds them. The log is what
counts: the file can be made from it again at any time.

A line with values becomes one record; its step counts such lines. Records are appended in batches, and each batch
ends with a mark: a record without values that says how much of the log is read. After a kill, what stands behind
the last mark is cut off and read from the log once more, so each value is in the file exactly once. A lock in the
job's folder lets one process at a time append; it is held for one piece of a log.
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

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import locked, open_plain, read_at, write_at
from pai_sdk.logs.times import LogTimes
from pai_sdk.run.events.writer import FILE_VERSION, double_field, event_file_source, framed, scalars_record
from pai_sdk.run.report.layout import RunLayout

__all__ = ["MAX_LINE", "LogMetrics", "Pattern", "RegexPattern", "is_refused"]

_CHUNK_BYTES = 1 << 20
MAX_LINE = 32 << 10
"""The bytes of a line up to which all of it is searched: the time of a pattern may grow with their square."""

_MARK_AFTER_BYTES = 1 << 18  # of a log without values; so much may be read again after a restart
_SEARCHED_BYTES = 1 << 20
_LOCK = "log-metrics.lock"
_NAMES = RunLayout("").log_metrics.split("/")
_FILE_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))
_FOLDER_FLAGS = _FILE_FLAGS | getattr(os, "O_DIRECTORY", 0)
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)


class Pattern(Protocol):
    """A definition of a metric, or of a figure of the progress of a job."""

    @property
    def name(self) -> str:
        """Of the metric, or of the figure."""
        ...

    @property
    def is_progress(self) -> bool:
        """True for a figure of the progress."""
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


def is_refused(error: OSError) -> bool:
    """Returns True when a retry is useless: the folder is no folder, or may not be written to."""
    return error.errno in _REFUSALS


class LogMetrics:
    """The metrics in the logs of one job. Not safe to use from several threads at once; processes may share a job.

    Args:
        sandbox: the job's folder.
        instances: the names of its instances.
        times: when the log of an instance had which size.
        tensorboard: the folder of that output channel, where it is not in the sandbox.
        now: the time of a line for which none is noted; 0 leaves it unknown.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        instances: Iterable[str],
        *,
        times: Callable[[str], LogTimes],
        tensorboard: Path | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._lock = sandbox.state_dir / _LOCK
        folder = _EventsFolder(sandbox.ml / "output", tensorboard)
        self._logs = [_Log(name, sandbox.log_file(name), folder, partial(times, name), now) for name in instances]

    @property
    def long_lines(self) -> int:
        """How many lines were longer than `MAX_LINE`: their middles were not searched."""
        return sum(log.long_lines for log in self._logs)

    def read_on(self, patterns: Sequence[Pattern], *, is_final: bool) -> Iterator[Mapping[str, float]]:
        """Write what is new, one piece of a log with each step of the iteration.

        Args:
            patterns: what is looked for.
            is_final: no instance writes any more: the last line counts without its end too.

        Returns:
            For each piece, the last figures of progress in it.

        Raises:
            OSError: the events cannot be written; see `is_refused`.
        """
        for log in self._logs if patterns else ():
            is_more = log.may_have_more(is_final=is_final)
            while is_more:
                try:
                    with locked(self._lock):
                        is_more, progress = log.read_piece(patterns, is_final=is_final)
                except FileNotFoundError:  # the job was deleted
                    return
                yield progress


class _Mark(NamedTuple):
    """The end of a batch of records.

    Attributes:
        log_bytes: how much of the log is read.
        lines: how many lines with values there were.
        last_time: of such a line, in seconds since 1970; 0 where it is not known.
    """

    log_bytes: int = 0
    lines: int = 0
    last_time: float = 0.0

    def record(self) -> bytes:
        """The mark as a record of an event file; TensorBoard skips the fields that it does not know."""
        return framed(
            double_field(1, self.last_time) + _MARK_FIELDS.pack(_LOG_BYTES, self.log_bytes, _LINES, self.lines)
        )

    @classmethod
    def last_in(cls, file: int) -> tuple[_Mark, int]:
        """The last mark of a file, and where it ends; the beginning of everything where there is none."""
        begin = end = os.fstat(file).st_size
        while end:
            begin = max(end - _SEARCHED_BYTES, 0)
            data = read_at(file, end - begin, begin)
            at = len(data)
            while (at := data.rfind(_MARK_HEAD, 0, at)) >= 0:
                record = data[at : at + _MARK_BYTES]
                if len(record) == _MARK_BYTES:
                    (last_time,) = _DOUBLE.unpack_from(record, len(_MARK_HEAD))
                    _, log_bytes, _, lines = _MARK_FIELDS.unpack_from(record, len(_MARK_HEAD) + _DOUBLE.size)
                    mark = cls(log_bytes, lines, last_time)
                    if mark.record() == record:
                        return mark, begin + at + _MARK_BYTES
            end = begin and min(begin + _MARK_BYTES, end - 1)  # a mark may lie across the edge
        return cls(), 0


_LOG_BYTES, _LINES = b"\xa9\x06", b"\xb1\x06"  # the keys of fields 101 and 102, each with eight bytes behind it
_MARK_FIELDS = struct.Struct("<2sQ2sQ")
_DOUBLE = struct.Struct("<d")
_MARK_BYTES = len(_Mark().record())
_MARK_HEAD = _Mark().record()[: _MARK_BYTES - 4 - _MARK_FIELDS.size - _DOUBLE.size]


class _Log:
    """The log of an instance, and the file with what was found in it."""

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
        self._looked_at: tuple[int, bool] | None = None  # the size of the log at the last look, and whether final
        # How far the log is read where nothing was found behind the mark; valid while the file is the same.
        self._ahead: tuple[tuple[int, int], _Mark] | None = None

    def may_have_more(self, *, is_final: bool) -> bool:
        """Returns True when the log has grown since the last look, or is final now."""
        try:
            return (self._path.lstat().st_size, is_final) != self._looked_at
        except OSError:
            return False

    def read_piece(self, patterns: Sequence[Pattern], *, is_final: bool) -> tuple[bool, Mapping[str, float]]:
        """Read a piece; returns whether the log may have more, and the figures of progress in it."""
        with ExitStack() as stack:
            try:
                log = stack.enter_context(open_plain(self._path))
            except OSError:  # not written yet, removed with the job, or something else than a file
                return False, {}
            status = os.fstat(log.fileno())
            writes = any(not pattern.is_progress for pattern in patterns)
            events = self._folder.open(self._instance, stack) if writes else None
            marked, end = (_Mark(), 0) if events is None else _Mark.last_in(events)
            if marked.log_bytes > status.st_size:  # it is not that of this log
                marked, end = _Mark(), 0
            mark = self._ahead[1] if self._ahead and self._ahead[0] == _identity(events) else marked
            log.seek(mark.log_bytes)
            chunk = log.read(_CHUNK_BYTES)
            size = _size_of_lines(chunk, is_final=is_final)
            records, mark, progress = self._records_of(chunk[:size], mark, patterns, status.st_mtime)
            if records or (end and mark.log_bytes - marked.log_bytes >= _MARK_AFTER_BYTES):
                if events is None:
                    events = self._folder.open(self._instance, stack, makes=True)
                _append(events, end, [*records, mark.record()])
            self._ahead = (_identity(events), mark)
        is_more = len(chunk) == _CHUNK_BYTES or (is_final and 0 < size < len(chunk))
        self._looked_at = None if is_more else (status.st_size, is_final)
        return is_more, progress

    def _records_of(
        self, content: bytes, mark: _Mark, patterns: Sequence[Pattern], changed_at: float
    ) -> tuple[list[bytes], _Mark, Mapping[str, float]]:
        """A record for each line with values, the mark behind the content, and the last figures of progress."""
        states = content.splitlines(keepends=True)
        lines = [self._searched(state) for state in states]
        progress: dict[str, float] = {}
        found: dict[int, list[tuple[str, float]]] = {}
        for pattern in patterns:
            for line, text in pattern.texts(lines):
                if (number := _finite(text)) is None:
                    continue
                if pattern.is_progress:
                    progress[pattern.name] = number
                else:
                    found.setdefault(line, []).append((pattern.name, number))
        noted = self._times() if found else LogTimes()
        records, offset, count, last_time = [], mark.log_bytes, mark.lines, mark.last_time
        for line, state in enumerate(states):
            offset += len(state)
            if line in found:
                at = noted.of_byte(offset - 1)
                if at is None:  # behind the last note, the time of the log itself counts
                    at = changed_at if noted.times else self._now()
                # Notes are taken now and then, so the time of an earlier line may be noted as a later one.
                last_time, count = max(last_time, at), count + 1
                records.append(scalars_record(last_time, count, found[line]))
        return records, _Mark(offset, count, last_time), progress

    def _searched(self, state: bytes) -> str:
        """The text of a line that is searched: of a very long one, its beginning and its end."""
        if len(state) > MAX_LINE:
            self.long_lines += 1
            state = state[: MAX_LINE // 2] + b"\n" + state[-(MAX_LINE // 2) :]
        return state.decode("utf-8", errors="replace").rstrip("\r\n")


def _size_of_lines(chunk: bytes, *, is_final: bool) -> int:
    """Counts the bytes in whole lines; a progress bar ends its states with a carriage return."""
    end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
    # A line beyond all bounds counts as it is, and so does the last one without its end.
    return len(chunk) if end == 0 and (is_final or len(chunk) == _CHUNK_BYTES) else end


def _finite(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# ---- the file -------------------------------------------------------------------------------------------------


class _EventsFolder:
    """The folder of the files. A job can put anything into its outputs, so no link there is followed.

    Args:
        outputs: the folder of the output channels, which a job cannot replace.
        tensorboard: the folder of that channel, where it is another one; it may be a link of its owner's.
    """

    def __init__(self, outputs: Path, tensorboard: Path | None) -> None:
        self._outputs, self._tensorboard = outputs, tensorboard

    def open(self, instance: str, stack: ExitStack, *, makes: bool = False) -> int | None:
        """The file of an instance, open until the stack ends; None where there is none.

        Args:
            instance: which.
            stack: closes it.
            makes: make it where there is none.

        Raises:
            OSError: it cannot be opened, or is not a file of ours.
        """
        try:
            with ExitStack() as folders:
                if makes and self._tensorboard:
                    self._tensorboard.mkdir(parents=True, exist_ok=True)
                folder = _opened(folders, self._tensorboard or self._outputs, os.O_RDONLY)
                for name in _NAMES[1:] if self._tensorboard else _NAMES:
                    if makes:
                        with suppress(FileExistsError):
                            os.mkdir(name, dir_fd=folder)
                    folder = _opened(folders, name, os.O_RDONLY | _FOLDER_FLAGS, folder)
                names = sorted(os.listdir(folder))  # noqa: PTH208 - a Path knows no descriptor
                known = (name for name in names if (event_file_source(name) or ("",))[0] == instance)
                name = next(known, f"events.out.tfevents.{int(time.time()):010d}.{instance}.0.0")
                flags = os.O_RDWR | _FILE_FLAGS | (os.O_CREAT if makes else 0)
                file = _opened(stack, name, flags, folder)
        except FileNotFoundError:
            if makes:
                raise
            return None
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.ELOOP, "is not a file of this folder", name)
        return file


def _opened(stack: ExitStack, path: str | Path, flags: int, folder: int | None = None) -> int:
    file = os.open(path, flags, 0o666, dir_fd=folder)
    stack.callback(os.close, file)
    return file


def _identity(file: int | None) -> tuple[int, int]:
    """Changes when a file is replaced or written; the same as long as there is none."""
    status = None if file is None else os.fstat(file)
    return (0, 0) if status is None else (status.st_ino, status.st_size)


def _append(file: int | None, end: int, records: Sequence[bytes]) -> None:
    """Write a batch at the end of the last one; a part of it does not stay."""
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
