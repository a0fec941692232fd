"""Reading logs by line, from the end, by time and by byte, whatever their length.

The service, the page and the local backend read with a `LogReader`: the log of one instance, or those of several
instances in one order. `OpenLogs` keeps the logs that were read last: making an index means reading the whole log.
"""

from __future__ import annotations

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

from pai_sdk.logs.index import LineBlock, LogIndex
from pai_sdk.logs.merged import MergedOrder, SingleOrder
from pai_sdk.logs.times import LogTimes

__all__ = ["ALWAYS", "InstanceLog", "LogReader", "LogWindow", "OpenLog", "OpenLogs", "StoredLine", "StoredPage"]

_PAGE_BYTES = 4 << 20  # ten thousand long lines at once would fill the memory
_LONGEST_LINE_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
_PIECE_LINES = 10_000
_GZIP = 31  # zlib's number for the format of gzip

_Key = TypeVar("_Key", bound=Hashable)


class StoredLine(NamedTuple):
    """A line of a log.

    Attributes:
        number: its number in the log that is read, from 0.
        offset: the byte at which it begins in the log of its instance.
        instance: the instance that wrote it.
        time: seconds since 1970 at which it was first seen in the log; None if that is not known.
        text: without its line end; at most 1 MiB of it.
    """

    number: int
    offset: int
    instance: str
    time: float | None
    text: str


class LogWindow(NamedTuple):
    """A span of time, in seconds since 1970; None is open."""

    started_at: float | None = None
    ended_at: float | None = None


ALWAYS = LogWindow()
"""The window that has all lines."""


class InstanceLog:
    """The log of one instance: a file, and the notes of its sizes and times.

    Args:
        path: the file; its name is that of the instance.
        times: the file with the notes; the one beside the log by default.
        makes_cuts: see `LogIndex`.
    """

    def __init__(self, path: Path, *, times: Path | None = None, makes_cuts: bool = True) -> None:
        self.name = path.stem
        self.path = path
        self._times = times or path.with_suffix(".times")
        self.index = LogIndex(path, makes_cuts=makes_cuts)

    @property
    def times(self) -> LogTimes:
        """The times at which it had which sizes, as noted until now."""
        return self.read_times()

    def read_times(self) -> LogTimes:
        """Reads the times at which it had which sizes."""
        return LogTimes.read(self._times)

    @property
    def size_bytes(self) -> int:
        """The size of the file; 0 if there is none."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def line_at_time(self, seconds: float, *, is_open: bool) -> int:
        """The number of the first line whose end was written at a time or later; as exact as times were noted."""
        size, count = self.times.size_before(seconds), self.index.count(is_open=is_open)
        return self.index.line_at(size) if size < self.index.known_bytes else count

    def lines_in(self, window: LogWindow, lifetime: LogWindow, *, is_open: bool) -> range:
        """The numbers of the lines that were written in a window.

        Args:
            window: as exact as times were noted.
            lifetime: of the job; nothing was written before it and after it.
            is_open: whether lines may follow.
        """
        count = self.index.count(is_open=is_open)
        if window == ALWAYS:
            return range(count)
        noted, first, last = self.times, 0, count
        if window.ended_at is not None:
            if window.ended_at < min([lifetime.started_at or 0.0, *noted.times[:1]]):
                return range(0)
            if (size := noted.size_after(window.ended_at)) is not None:
                last = min(count, self.index.line_at(size))
        if window.started_at is not None:
            if lifetime.ended_at is not None and window.started_at > max([lifetime.ended_at, *noted.times[-1:]]):
                return range(0)
            first = self.line_at_time(window.started_at, is_open=is_open)
        return range(first, max(first, last))


class OpenLog:
    """The logs of some instances of a job, with their order.

    Args:
        instances: in rank order.
        order: the file that stores the order of their lines; unused if there is one instance.
    """

    def __init__(self, instances: Sequence[InstanceLog], order: Path) -> None:
        self.instances = instances
        logs = [log.index for log in instances]
        times = [log.read_times for log in instances]
        self.order = SingleOrder(logs[0]) if len(logs) == 1 else MergedOrder(order, logs, times)

    @property
    def is_truncated(self) -> bool:
        """True if a file is shorter than it was, so that its index is wrong."""
        return any(log.index.known_bytes > log.size_bytes for log in self.instances)


class OpenLogs(Generic[_Key]):
    """The logs that were read last. Safe to use from several threads.

    Args:
        most: how many logs to keep.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()  # not held while a log is read
        self._kept: OrderedDict[_Key, OpenLog] = OrderedDict()
        # All logs that a thread is reading now: two objects for one log would write its order twice.
        self._in_use: WeakValueDictionary[_Key, OpenLog] = WeakValueDictionary()

    def get(self, key: _Key, open_log: Callable[[], OpenLog]) -> OpenLog:
        """The log with a key; it is opened if it is not kept."""
        with self._lock:
            log = self._kept.pop(key, None) or self._in_use.get(key) or open_log()
            self._kept[key] = self._in_use[key] = log
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return log

    def forget(self, is_gone: Callable[[_Key], bool]) -> None:
        """Drop the logs of a job that was deleted, or of a file that was replaced."""
        with self._lock:
            for known in (self._kept, self._in_use):
                for key in [key for key in known if is_gone(key)]:
                    known.pop(key, None)  # a weak reference may be gone already


@dataclass(frozen=True)
class StoredPage:
    """Consecutive lines of a log.

    Attributes:
        blocks: the lines; fewer than requested if they are long.
        first: the number of the first one.
        total: the number of lines of the log now.
        is_final: no line will follow the last one of the log.
        has_unfinished_line: the log ends with text that may become a line without a further write.
        error: why lines could not be put in order, so that they are missing.
    """

    blocks: Sequence[tuple[InstanceLog, LineBlock]]
    first: int
    total: int
    is_final: bool
    has_unfinished_line: bool
    error: OSError | None

    @property
    def is_complete(self) -> bool:
        """True if no line will follow the last one of the page."""
        return self.is_final and self.first + self.count >= self.total

    @property
    def count(self) -> int:
        """The number of lines of the page."""
        return sum(len(block.numbers) for _, block in self.blocks)

    @property
    def texts(self) -> list[str]:
        """The lines as text."""
        return [text for _, block in self.blocks for text in block.texts]

    def lines(self) -> Iterator[StoredLine]:
        """The lines with their places and times."""
        number, times = self.first, dict[InstanceLog, LogTimes]()
        for log, block in self.blocks:
            noted, begin = times.get(log) or times.setdefault(log, log.times), block.begin
            for line, end in zip(block.lines, block.ends, strict=True):
                text = line[:_LONGEST_LINE_BYTES].decode("utf-8", errors="replace")
                yield StoredLine(number, begin, log.name, noted.of_byte(end - 1), text)
                number, begin = number + 1, end


class LogReader:
    """Reads a log, as it is at one moment. Safe to use from several threads.

    Args:
        log: of one instance, or of several in one order.
        is_open: whether lines may follow. Find out before creating the reader: the log of a job that has ended by
            then is complete.
        window: leaves out lines that were written at other times.
        lifetime: the time in which the job has written.
        epoch: another one if the files were replaced. The logs of jobs only grow.
    """

    def __init__(
        self,
        log: OpenLog,
        *,
        is_open: bool,
        window: LogWindow = ALWAYS,
        lifetime: LogWindow = ALWAYS,
        epoch: str = "0",
    ) -> None:
        self.instances = log.instances
        self.is_open = is_open
        self.epoch = epoch
        self._log = log  # `OpenLogs` knows it as long as this reader does
        self._order = log.order
        self._window = window
        self._lifetime = lifetime

    @property
    def total(self) -> int:
        """The number of lines now."""
        return self.page(0, 0).total

    @property
    def size_bytes(self) -> int:
        """The size of all files together: it changes with every write, and is found quickly."""
        return sum(log.size_bytes for log in self.instances)

    def page(
        self, start: int, limit: int, *, most_bytes: int = _PAGE_BYTES, has_whole_lines: bool = False
    ) -> StoredPage:
        """The lines from a number on.

        Args:
            start: number of the first line, from 0; a negative one counts from the end.
            limit: the most lines.
            most_bytes: fewer lines rather than more bytes; one line at least.
            has_whole_lines: read all of a line that has more than `most_bytes`, instead of the first 1 MiB.
        """
        total, error = self._order.update(is_open=self.is_open)
        windows = None
        if self._window != ALWAYS:
            windows = [log.lines_in(self._window, self._lifetime, is_open=self.is_open) for log in self.instances]
            total = sum(len(numbers) for _, numbers in self._order.stretches(0, windows))
        first = max(0, total + start) if start < 0 else start
        blocks: list[tuple[InstanceLog, LineBlock]] = []
        left, left_bytes = min(limit, total - first), most_bytes
        for instance, numbers in self._order.stretches(first, windows):
            if left <= 0 or left_bytes <= 0:
                break
            log, wanted = self.instances[instance], numbers[:left]
            block = log.index.read(
                wanted.start,
                wanted.stop,
                is_open=self.is_open,
                most_bytes=left_bytes,
                longest_line_bytes=sys.maxsize if has_whole_lines else _LONGEST_LINE_BYTES,
            )
            if block.numbers:
                blocks.append((log, block))
            if len(block.numbers) < len(wanted):
                break
            left -= len(wanted)
            left_bytes -= len(block.content)
        unfinished = self.is_open and any(log.index.has_unfinished_line for log in self.instances)
        return StoredPage(blocks, first, total, not self.is_open and error is None, unfinished, error)

    def line_at_time(self, seconds: float) -> int:
        """The number of the first line that was written at a time or later; as exact as times were noted."""
        lines = [log.line_at_time(seconds, is_open=self.is_open) for log in self.instances]
        return min((self._number_of(instance, line) for instance, line in enumerate(lines)), default=0)

    def line_at_byte(self, offset: int, instance: str | None = None) -> int:
        """The number of the first line that begins at a byte of an instance's log, or after it.

        Args:
            offset: from 0.
            instance: whose log; the first one's by default.
        """
        number = next((n for n, log in enumerate(self.instances) if log.name == instance), 0)
        index = self.instances[number].index
        line = index.line_at(offset)
        block = index.read(line, line + 1, is_open=self.is_open, most_bytes=0, longest_line_bytes=0)
        return self._number_of(number, line + (block.begin < offset < block.end))

    def gzip(self) -> Iterator[bytes]:
        """All lines as a gzip file; of several instances in their one order, each line with its instance."""
        packer = zlib.compressobj(1, wbits=_GZIP)
        for piece in self._contents() if len(self.instances) == 1 else self._lines_with_names():
            if packed := packer.compress(piece):
                yield packed
        yield packer.flush()

    def _contents(self) -> Iterator[bytes]:
        with suppress(FileNotFoundError), self.instances[0].path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    def _lines_with_names(self) -> Iterator[bytes]:
        start = 0
        while blocks := (page := self.page(start, _PIECE_LINES)).blocks:
            lines = (f"[{log.name}] {text}\n" for log, block in blocks for text in block.texts)
            yield "".join(lines).encode(errors="replace")
            start += page.count

    def _number_of(self, instance: int, line: int) -> int:
        self._order.update(is_open=self.is_open)
        return self._order.number_of(instance, line)
