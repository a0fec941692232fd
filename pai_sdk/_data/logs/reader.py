"""Reads logs by line, from the end, by time and by byte, whatever their size.

The service, the page and the local backend read with a `LogReader`: the log of one instance, or those of several
instances in one order. `OpenLogs` caches the logs that were read last: an index costs a read of the full log.
"""

from __future__ import annotations

import stat
import sys
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from pai_sdk._core.files import open_regular
from pai_sdk._data.logs.index import LineBlock, LogIndex
from pai_sdk._data.logs.merged import MergedOrder, SingleOrder
from pai_sdk._data.logs.stamps import stamp_of
from pai_sdk._data.logs.times import LogTimes

_PAGE_BYTES = 4 << 20  # a limit on lines alone would let ten thousand long lines fill the memory
_MAX_LINE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20
_CHUNK_LINES = 10_000
_GZIP = 31  # zlib's number for the format of gzip

_Key = TypeVar("_Key", bound=Hashable)


class StoredLine(NamedTuple):
    """A line of a log."""

    number: int  # in the log that is read, from 0
    offset: int  # in bytes, in the log of the instance
    instance: str
    # The time at the line's beginning, or when the line was first observed in the log; None if that is unknown.
    time: float | None
    text: str  # without the line end; at most 1 MiB


class LogWindow(NamedTuple):
    """A span of time, in seconds since 1970; None is open."""

    started_at: float | None = None
    ended_at: float | None = None


ALWAYS = LogWindow()
"""The window that has all lines."""


class InstanceLog:
    """The log of one instance: a file named like the instance, and a file with its sizes and times."""

    def __init__(self, path: Path, *, times: Path | None = None, makes_cuts: bool = True) -> None:
        self.name = path.stem
        self.path = path
        self._times = times or path.with_suffix(".times")
        self.index = LogIndex(path, makes_cuts=makes_cuts)

    def read_times(self, after: int = 0) -> LogTimes:
        """Reads the recorded sizes of the log and their times, at least for the bytes from `after` on."""
        return LogTimes.read(self._times, after)

    @property
    def size_bytes(self) -> int:
        """Returns the size of the file; 0 if there is none."""
        try:
            status = self.path.stat()
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def line_at_time(self, seconds: float, *, is_open: bool) -> int:
        """Returns the number of the first line whose end was written at a time or later, within about a second."""
        size, count = self.read_times().size_before(seconds), self.index.count(is_open=is_open)
        return self.index.line_at(size) if size < self.index.indexed_bytes else count

    def lines_in(self, window: LogWindow, lifetime: LogWindow, *, is_open: bool) -> range:
        """Returns the numbers of the lines that were written in a window, within about a second."""
        # Nothing was written outside of the job's lifetime, which decides where no times were recorded.
        count = self.index.count(is_open=is_open)
        if window == ALWAYS:
            return range(count)
        times, first, last = self.read_times(), 0, count
        if window.ended_at is not None:
            if window.ended_at < min([lifetime.started_at or 0.0, *times.times[:1]]):
                return range(0)
            # A line has the time at which it was found in the log: one that was found later is in a later window.
            if (size := times.size_at(window.ended_at)) is not None:
                last = min(count, self.index.line_at(size))
        if window.started_at is not None:
            if lifetime.ended_at is not None and window.started_at > max([lifetime.ended_at, *times.times[-1:]]):
                return range(0)
            first = self.line_at_time(window.started_at, is_open=is_open)
        return range(first, max(first, last))


class OpenLog:
    """The logs of instances of a job, in rank order, and the file that stores the order of their lines."""

    def __init__(self, instances: Sequence[InstanceLog], order: Path) -> None:
        self.instances = instances
        logs = [log.index for log in instances]
        times = [log.read_times for log in instances]
        self.order = SingleOrder(logs[0]) if len(logs) == 1 else MergedOrder(order, logs, times)

    @property
    def is_truncated(self) -> bool:
        """Returns True if a file has become shorter, so that its index is wrong."""
        return any(log.index.indexed_bytes > log.size_bytes for log in self.instances)


class OpenLogs(Generic[_Key]):
    """Caches the logs that were read last. Safe to use from several threads."""

    def __init__(self, max_logs: int) -> None:
        self._max_logs = max_logs
        self._lock = threading.Lock()  # not held while a log is read
        self._recent: OrderedDict[_Key, OpenLog] = OrderedDict()
        # All logs that a thread is reading now, also those that the cache has dropped: two objects for one log
        # would write its order twice. The entries vanish with their readers.
        self._in_use: WeakValueDictionary[_Key, OpenLog] = WeakValueDictionary()

    def get(self, key: _Key, open_log: Callable[[], OpenLog]) -> OpenLog:
        """Returns the log with a key; opens it if it is not cached."""
        with self._lock:  # also around `open_log`: two threads must not open one log
            log = self._recent.pop(key, None) or self._in_use.get(key) or open_log()
            self._recent[key] = self._in_use[key] = log
            if len(self._recent) > self._max_logs:
                self._recent.popitem(last=False)
            return log

    def forget(self, is_gone: Callable[[_Key], bool]) -> None:
        """Drops the logs of a job that was deleted, or of a file that was replaced."""
        with self._lock:
            for logs in (self._recent, self._in_use):
                for key in [key for key in logs if is_gone(key)]:
                    logs.pop(key, None)  # a reader can end meanwhile, and its entry with it


@dataclass(frozen=True)
class StoredPage:
    """Consecutive lines of a log."""

    blocks: Sequence[tuple[InstanceLog, LineBlock]]  # the lines; fewer than requested if they are long
    first: int
    total: int  # the number of lines of the log now
    is_final: bool  # no line will follow the last one of the log
    has_unfinished_line: bool  # the log ends with text that can become a line without a further write
    error: OSError | None  # why lines are missing: they could not be added to the order

    @property
    def is_complete(self) -> bool:
        """Returns True if no line will follow the last one of the page."""
        return self.is_final and self.first + self.count >= self.total

    @property
    def count(self) -> int:
        """Returns the number of lines of the page."""
        return sum(len(block.numbers) for _, block in self.blocks)

    @property
    def decoded_lines(self) -> list[str]:
        """Returns the lines, decoded from UTF-8."""
        return [text for _, block in self.blocks for text in block.decoded_lines]

    def lines(self) -> Iterator[StoredLine]:
        """Yields the lines with their offsets and times."""
        number, times = self.first, dict[InstanceLog, LogTimes]()
        for log, block in self.blocks:
            log_times, offset = times.get(log) or times.setdefault(log, log.read_times(block.start)), block.start
            for line, end in zip(block.lines, block.ends, strict=True):
                text = line[:_MAX_LINE_BYTES].decode("utf-8", errors="replace")
                at = log_times.of_byte(end - 1)
                if at is not None and (written_at := stamp_of(line, at)) is not None:
                    at = written_at
                yield StoredLine(number, offset, log.name, at, text)
                number, offset = number + 1, end


class LogReader:
    """Reads a log, as it is at one moment. Safe to use from several threads."""

    def __init__(
        self,
        log: OpenLog,
        *,
        # Read the status of the job before creating the reader: the log of a job that has finished by then is
        # complete.
        is_open: bool,
        # Leaves out lines that were written at other times.
        window: LogWindow = ALWAYS,
        # The time in which the job has written.
        lifetime: LogWindow = ALWAYS,
        # Another value if the files were replaced. The logs of jobs only grow.
        epoch: str = "0",
    ) -> None:
        self.instances = log.instances
        self.is_open = is_open
        self.epoch = epoch
        self._log = log  # keeps the entry of `OpenLogs` alive as long as this reader
        self._order = log.order
        self._window = window
        self._lifetime = lifetime

    @property
    def total(self) -> int:
        """Returns the number of lines now."""
        return self.page(0, 0).total

    @property
    def size_bytes(self) -> int:
        """Returns the size of all files together, without reading them: it changes with every write."""
        return sum(log.size_bytes for log in self.instances)

    def page(
        self, start: int, limit: int, *, max_bytes: int = _PAGE_BYTES, has_full_lines: bool = False
    ) -> StoredPage:
        """Returns at most `limit` lines from a number on; a negative `start` counts from the end."""
        total, error = self._order.update(is_open=self.is_open)
        windows = None
        if self._window != ALWAYS:
            windows = [log.lines_in(self._window, self._lifetime, is_open=self.is_open) for log in self.instances]
            total = sum(len(numbers) for _, numbers in self._order.stretches(0, windows))
        first = max(0, total + start) if start < 0 else start
        blocks: list[tuple[InstanceLog, LineBlock]] = []
        remaining, remaining_bytes = min(limit, total - first), max_bytes
        for instance, numbers in self._order.stretches(first, windows):
            if remaining <= 0 or remaining_bytes <= 0:
                break
            log, selected = self.instances[instance], numbers[:remaining]
            block = log.index.read(
                selected.start,
                selected.stop,
                is_open=self.is_open,
                max_bytes=remaining_bytes,
                # One line is returned even if it has more than `max_bytes`.
                max_line_bytes=sys.maxsize if has_full_lines else _MAX_LINE_BYTES,
            )
            if block.numbers:
                blocks.append((log, block))
            if len(block.numbers) < len(selected):
                break
            remaining -= len(selected)
            remaining_bytes -= len(block.content)
        unfinished = self.is_open and any(log.index.has_unfinished_line for log in self.instances)
        return StoredPage(blocks, first, total, not self.is_open and error is None, unfinished, error)

    def line_at_time(self, seconds: float) -> int:
        """Returns the number of the first line that was written at a time or later, within about a second."""
        lines = [log.line_at_time(seconds, is_open=self.is_open) for log in self.instances]
        return min((self._number_of(instance, line) for instance, line in enumerate(lines)), default=0)

    def line_at_byte(self, offset: int, instance: str | None = None) -> int:
        """Returns the number of the first line that starts at an offset of an instance's log, or after it."""
        number = next((n for n, log in enumerate(self.instances) if log.name == instance), 0)
        index = self.instances[number].index
        line = index.line_at(offset)
        block = index.read(line, line + 1, is_open=self.is_open, max_bytes=0, max_line_bytes=0)
        return self._number_of(number, line + (block.start < offset < block.end))

    def chunks(self) -> Iterator[bytes]:
        """Yields the lines that the log has now; of several instances in one order, each with its instance."""
        return self._contents() if len(self.instances) == 1 else self._lines_with_names()

    def gzip(self) -> Iterator[bytes]:
        """Yields the chunks as a gzip file."""
        packer = zlib.compressobj(1, wbits=_GZIP)
        for chunk in self.chunks():
            if packed := packer.compress(chunk):
                yield packed
        yield packer.flush()

    def _contents(self) -> Iterator[bytes]:
        with suppress(FileNotFoundError), open_regular(self.instances[0].path) as file:
            # Not to its end: a job may write faster than a client reads.
            remaining = self.instances[0].size_bytes
            while chunk := file.read(min(remaining, _CHUNK_BYTES)):
                remaining -= len(chunk)
                yield chunk

    def _lines_with_names(self) -> Iterator[bytes]:
        start, total = 0, self.total
        while blocks := (page := self.page(start, min(_CHUNK_LINES, total - start))).blocks:
            lines = (f"[{log.name}] {text}\n" for log, block in blocks for text in block.decoded_lines)
            yield "".join(lines).encode(errors="replace")
            start += page.count

    @property
    def identity(self) -> object:
        """Returns an object that all readers of the same open files share."""
        return self._log

    def count_of(self, instance: int) -> int:
        """Returns the number of lines of one of `instances` that are in the order, as of the last page."""
        return min(self._order.count_of(instance), self.instances[instance].index.count(is_open=self.is_open))

    def stretches_of(self, instance: int) -> tuple[Sequence[int], Sequence[int]]:
        """Returns the first lines of the stretches of one of `instances`, and their numbers in the order."""
        return self._order.stretches_of(instance)

    def _number_of(self, instance: int, line: int) -> int:
        self._order.update(is_open=self.is_open)
        return self._order.number_of(instance, line)
