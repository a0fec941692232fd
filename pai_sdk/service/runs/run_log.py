r"""The log of a run by line, by time, by byte and from its end, whatever its length.

Lines are those of `LogIndex`: what a progress bar draws over and over is cut into lines, and such a line ends with
`\r`. The lines of several instances have one order; each line also has the byte in the log of its instance.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pai_sdk.execution.log_index import LogIndex
from pai_sdk.execution.log_times import LogTimes
from pai_sdk.service.jobs.merged_log import MergedLog

__all__ = ["LogPart", "RunLog", "RunLogLine", "RunLogPage"]

_PAGE_BYTES = 4 << 20
_LONGEST_LINE_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
_GZIP = 31  # zlib's number for the format of gzip


@dataclass(frozen=True)
class RunLogLine:
    """A line of a log.

    Attributes:
        number: its number in the log that was asked for, from 0.
        offset: the byte at which it begins in the log of its instance.
        instance: who wrote it.
        time: seconds since 1970 when it was first seen in the log; None where that is not known.
        text: without its line end; at most 1 MiB of it.
    """

    number: int
    offset: int
    instance: str
    time: float | None
    text: str


@dataclass(frozen=True)
class LogPart:
    """The log of one instance.

    Attributes:
        instance: its name.
        index: of its lines.
        times: when it had which size.
    """

    instance: str
    index: LogIndex
    times: Callable[[], LogTimes]


@dataclass(frozen=True)
class RunLogPage:
    """Consecutive lines of a log.

    Attributes:
        lines: may be fewer than were asked for, where lines are long.
        total: how many lines the log has now.
        is_complete: no line will follow the last one of all.
    """

    lines: Sequence[RunLogLine]
    total: int
    is_complete: bool


class RunLog:
    """The log of one instance of a run, or of all of its instances. Safe to use from several threads.

    Args:
        parts: the instances' logs, in rank order.
        merged: the one order of all lines; None for a single instance.
        is_open: whether lines may follow.
        epoch: of the files; another one when they were replaced. A job's logs only grow.
    """

    def __init__(
        self, parts: Sequence[LogPart], merged: MergedLog | None, *, is_open: bool, epoch: str = "0"
    ) -> None:
        self.parts = parts
        self.is_open = is_open
        self.epoch = epoch
        self._merged = merged

    @property
    def total(self) -> int:
        """How many lines there are now."""
        if self._merged is not None:
            return self._merged.count(is_open=self.is_open)
        return self.parts[0].index.count(is_open=self.is_open) if self.parts else 0

    def page(self, start: int, count: int) -> RunLogPage:
        """The lines from a number on.

        Args:
            start: number of the first line, from 0; a negative one counts from the end.
            count: the most lines.
        """
        total = self.total
        first = max(0, total + start) if start < 0 else start
        lines: list[RunLogLine] = []
        left_bytes = _PAGE_BYTES
        for instance, numbers in self._places(first, min(total, first + count)):
            if lines and left_bytes <= 0:
                break
            found = self._lines(self.parts[instance], numbers, first + len(lines), left_bytes)
            lines += found
            if len(found) < len(numbers):
                break
            left_bytes -= sum(len(line.text) for line in found)
        return RunLogPage(lines, total, not self.is_open)

    def line_at_time(self, seconds: float) -> int:
        """The number of the first line that was written at that time or later; as fine as times were noted."""
        found = [
            self._number_of(number, self._line_at_time(part, seconds)) for number, part in enumerate(self.parts)
        ]
        return min(found, default=0)

    def line_at_byte(self, offset: int, instance: str | None = None) -> int:
        """The number of the first line that begins at that byte of an instance's log, or behind it.

        Args:
            offset: counted from 0.
            instance: whose log; the first one's without it.
        """
        number = next((n for n, part in enumerate(self.parts) if part.instance == instance), 0)
        if not self.parts:
            return 0
        index = self.parts[number].index
        line = index.line_at(offset)
        begin, end = index.span(line, line + 1, is_open=self.is_open)
        return self._number_of(number, line + (begin < offset < end))

    def size_bytes(self) -> int:
        """The bytes of all parts together; changes with every write."""
        return sum(_size_bytes(part.index.path) for part in self.parts)

    def gzip(self) -> Iterator[bytes]:
        """All lines as a gzip file; of several instances in their one order, each line with its instance."""
        packer = zlib.compressobj(1, wbits=_GZIP)
        for piece in self._pieces():
            if packed := packer.compress(piece):
                yield packed
        yield packer.flush()

    def _pieces(self) -> Iterator[bytes]:
        if self._merged is None:
            for part in self.parts:
                yield from _bytes_of(part.index.path)
            return
        start = 0
        while lines := self.page(start, 10_000).lines:
            yield "".join(f"[{line.instance}] {line.text}\n" for line in lines).encode(errors="replace")
            start += len(lines)

    def _places(self, start: int, end: int) -> list[tuple[int, range]]:
        if start >= end:
            return []
        if self._merged is not None:
            return self._merged.places(start, end, is_open=self.is_open)
        return [(0, range(start, end))]

    def _number_of(self, instance: int, line: int) -> int:
        return line if self._merged is None else self._merged.number_of(instance, line)

    def _line_at_time(self, part: LogPart, seconds: float) -> int:
        noted = part.times()
        later = bisect_left(noted.times, seconds)
        if later == len(noted.times) and noted.times:
            return part.index.count(is_open=self.is_open)
        return part.index.line_at(noted.sizes[later - 1]) if later else 0

    def _lines(self, part: LogPart, numbers: range, first: int, most_bytes: int) -> list[RunLogLine]:
        """The lines with these numbers in the log of an instance; the first of them has the number `first`."""
        end = part.index.fitting(numbers.start, numbers.stop, is_open=self.is_open, most_bytes=most_bytes)
        begin, stop = part.index.span(numbers.start, end, is_open=self.is_open)
        with part.index.path.open("rb") as file:
            file.seek(begin)
            content = file.read(min(stop - begin, most_bytes + _LONGEST_LINE_BYTES))
        cuts = part.index.cuts.between(begin, stop + 1)
        noted = part.times()
        found = []
        for number, (offset, raw) in enumerate(_split(content, begin, cuts)):
            time = noted.of_byte(offset + max(len(raw) - 1, 0))
            text = raw[:_LONGEST_LINE_BYTES].decode("utf-8", errors="replace")
            found.append(RunLogLine(first + number, offset, part.instance, time, text))
        return found


def _split(content: bytes, begin: int, cuts: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    r"""The lines of a part of a log, each with the byte it begins at; one that was cut ends with `\r`."""
    at, ahead = 0, 0
    while at < len(content):
        newline = content.find(b"\n", at)
        end = len(content) if newline < 0 else newline
        if ahead < len(cuts) and cuts[ahead] - begin <= end:
            cut = cuts[ahead] - begin
            yield begin + at, content[at:cut] + b"\r"
            at, ahead = cut, ahead + 1
        else:
            raw = content[at:end]
            yield begin + at, raw.removesuffix(b"\r") if newline >= 0 else raw
            at = end + 1


def _bytes_of(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
    except FileNotFoundError:
        return


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
