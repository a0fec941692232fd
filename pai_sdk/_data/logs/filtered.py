"""The lines of a log that match a filter, by their number among them, with lines before and after each.

The matching lines of a log are found once and cached; later calls read what was written since.

    logs --(read once)--> matching lines of each instance --> with context, in the order of the log --> pages
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pai_sdk._core.files import open_regular
from pai_sdk._data.logs.levels import LevelScanner
from pai_sdk._data.logs.reader import InstanceLog, LogReader, StoredLine
from pai_sdk._data.logs.search import LogQuery

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_CHUNK_BYTES = 1 << 20
_MAX_MATCHES = 2_000_000  # of all instances; four bytes each
_MAX_GAP = 50  # lines between two pages that are read together
_MAX_PAGE_TEXT = 4 << 20  # characters; ten thousand long lines would fill the memory
_MAX_CACHED_BYTES = 64 << 20


@dataclass(frozen=True)
class LineFilter:
    """Which lines are shown: those of a level with a text, and lines before and after each."""

    query: LogQuery | None = None
    level: int = 0  # or a higher one; see `levels`
    context: int = 0


class FilteredLine(NamedTuple):
    """A line of a filtered log; `is_match` is false for the lines before and after one."""

    line: StoredLine
    is_match: bool


@dataclass(frozen=True)
class FilteredPage:
    """Consecutive lines among those of a filter."""

    first: int  # the number of the first line among them
    total: int
    lines: Sequence[FilteredLine]  # fewer than requested if they are long
    is_final: bool  # no line will follow the last one
    trouble: str  # why lines are missing; otherwise empty


@dataclass
class _Scan:
    """The matching lines of one instance's log up to an offset."""

    levels: LevelScanner | None
    offset: int = 0  # of a line
    line: int = 0
    matches: array[int] = field(default_factory=lambda: array("I"))
    # The matches of the last line, which has not ended: it is scanned again.
    unfinished: list[int] = field(default_factory=list)


class FilteredLog:
    """The lines of one log that match one filter. Thread-safe."""

    def __init__(self, instances: Sequence[InstanceLog], line_filter: LineFilter) -> None:
        self._filter = line_filter
        self._instances = instances
        self._lock = threading.Lock()  # held while the log is read
        level = line_filter.level
        self._scans = [_Scan(LevelScanner(level) if level else None) for _ in instances]
        self._selection: tuple[tuple[int, ...], npt.NDArray[np.int64], npt.NDArray[np.bool_]] | None = None

    @property
    def size_bytes(self) -> int:
        """Returns the size of the numbers in memory."""
        selection = self._selection
        selected = selection[1].nbytes + selection[2].nbytes if selection is not None else 0
        return selected + sum(len(scan.matches) * scan.matches.itemsize for scan in self._scans)

    def page(
        self, log: LogReader, start: int, limit: int, *, time_limit_s: float, check: Callable[[], None]
    ) -> FilteredPage:
        """Returns at most `limit` of the shown lines, from a number on; a negative one counts from the end.

        `check` is called after each MiB of the log, and stops the search by raising.
        """
        with self._lock:
            total = log.page(0, 0)  # first: lines that are written meanwhile wait for the next call
            trouble = self._read(log, time.monotonic() + time_limit_s, check)
            numbers, is_match = self._numbers(log, total.total)
        first = max(0, len(numbers) + start) if start < 0 else start
        page = numbers[first : first + limit]
        matching = dict(zip(page.tolist(), is_match[first : first + limit].tolist(), strict=True))
        lines = [FilteredLine(line, matching[line.number]) for line in _lines(log, [*matching])]
        return FilteredPage(first, len(numbers), lines, total.is_final and not trouble, trouble)

    def _read(self, log: LogReader, ends_at: float, check: Callable[[], None]) -> str:
        """Reads what was written since the last call; returns why it stopped early, or an empty string."""
        for instance, scan in zip(self._instances, self._scans, strict=True):
            for content, is_last in _parts(instance, scan.offset):
                check()
                if time.monotonic() > ends_at:
                    return "time"
                if sum(len(each.matches) for each in self._scans) > _MAX_MATCHES:
                    return f"more than {_MAX_MATCHES:,} lines match"
                end = content.rfind(b"\n") + 1 if is_last else len(content)
                cuts = instance.index.cuts.between(scan.offset, scan.offset + len(content))
                end = max(end, cuts[-1] - scan.offset if cuts else 0)
                split = _split(content[:end], [offset - scan.offset for offset in cuts])
                try:
                    scan.matches.extend(scan.line + each for each in self._matches(scan, split, ends_at, check))
                    tail = content[end:]
                    # Without a change of the scan's state: it is scanned again.
                    again = replace(scan, levels=copy(scan.levels))
                    unfinished = self._matches(again, tail, ends_at, check) if tail else []
                except TimeoutError:
                    return "the regular expression takes too long; use a simpler one"
                scan.offset += end
                scan.line += split.count(b"\n")
                scan.unfinished = [scan.line] if unfinished else []
        return ""

    def _matches(self, scan: _Scan, content: bytes, ends_at: float, check: Callable[[], None]) -> list[int]:
        """Returns the numbers of the matching lines within a part of the log."""
        lines = scan.levels.lines(content) if scan.levels else None
        query = self._filter.query
        if query is None or lines == []:
            return lines or []
        text = content.decode("utf-8", errors="surrogateescape")
        matches, at, line = list[int](), 0, 0
        for start, _ in query.matches(text, max(0.05, ends_at - time.monotonic()), check):
            line += text.count("\n", at, start)
            at = start
            if not matches or matches[-1] != line:
                matches.append(line)
        return matches if lines is None else sorted({*matches}.intersection(lines))

    def _numbers(self, log: LogReader, total: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Returns the numbers of the shown lines in the log, and which of them match."""
        import numpy as np

        state = (total, *(len(scan.matches) + len(scan.unfinished) for scan in self._scans))
        if self._selection is not None and self._selection[0] == state:
            return self._selection[1:]
        matches: list[npt.NDArray[np.int64]] = []
        shown: list[npt.NDArray[np.int64]] = []
        for instance, scan in enumerate(self._scans):
            matched = np.append(np.array(scan.matches, dtype=np.int64), np.array(scan.unfinished, dtype=np.int64))
            count = log.count_of(instance)
            matched = matched[matched < count]
            mask = np.zeros(count, dtype=bool)
            mask[matched] = True
            width = 0
            while width < self._filter.context:
                step = min(2 * width + 1, self._filter.context - width)
                before = mask.copy()
                mask[step:] |= before[:-step]
                mask[:-step] |= before[step:]
                width += step
            starts, firsts = (np.array(column, dtype=np.int64) for column in log.stretches_of(instance))
            for numbers, lines in ((matches, matched), (shown, np.flatnonzero(mask))):
                stretch = np.searchsorted(starts, lines, side="right") - 1
                numbers.append(firsts[stretch] + lines - starts[stretch] if len(lines) else lines)
        selected = np.sort(np.concatenate(shown))
        is_match = np.isin(selected, np.concatenate(matches))
        self._selection = (state, selected, is_match)
        return selected, is_match


class FilteredLogs:
    """Caches the filtered logs that were read last. Thread-safe."""

    def __init__(self, max_logs: int = 8, max_bytes: int = _MAX_CACHED_BYTES) -> None:
        self._max_logs = max_logs
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._recent: OrderedDict[tuple[object, ...], FilteredLog] = OrderedDict()

    def get(self, log: LogReader, line_filter: LineFilter) -> FilteredLog:
        """Returns the lines of a log that match a filter."""
        query = line_filter.query
        text = (query.text, query.is_regex, query.ignores_case) if query is not None else None
        key = (log.identity, log.epoch, line_filter.level, line_filter.context, text)
        with self._lock:
            filtered = self._recent.pop(key, None) or FilteredLog(log.instances, line_filter)
            self._recent[key] = filtered
            while len(self._recent) > self._max_logs or (len(self._recent) > 1 and self._is_full):
                self._recent.popitem(last=False)
            return filtered

    @property
    def _is_full(self) -> bool:
        return sum(filtered.size_bytes for filtered in self._recent.values()) > self._max_bytes


def _parts(log: InstanceLog, offset: int) -> Iterator[tuple[bytes, bool]]:
    """Yields a log from an offset on as parts that end with a line, except the last one (True)."""
    try:
        with open_regular(log.path) as file:
            file.seek(offset)
            leftover = b""
            while chunk := file.read(_CHUNK_BYTES):
                content = leftover + chunk
                end = content.rfind(b"\n") + 1
                if len(chunk) < _CHUNK_BYTES:
                    yield content, True
                    return
                # A line of more than two chunks is searched in parts.
                end = end or (len(content) if len(content) > 2 * _CHUNK_BYTES else 0)
                if end:
                    yield content[:end], False
                leftover = content[end:]
            if leftover:
                yield leftover, True
    except FileNotFoundError:
        return


def _split(content: bytes, cuts: Sequence[int]) -> bytes:
    """Returns the content with a line end at each cut."""
    if not cuts:
        return content
    edges = [0, *cuts, len(content)]
    return b"\n".join(content[start:end] for start, end in pairwise(edges))


def _lines(log: LogReader, numbers: Sequence[int]) -> Iterator[StoredLine]:
    """Reads lines by their numbers, in ascending order; neighbouring lines in one read.

    Stops after `_MAX_PAGE_TEXT`, but not before the first line.
    """
    requested = set(numbers)
    at, length = 0, 0
    while at < len(numbers):
        end = at + 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] <= _MAX_GAP:
            end += 1
        page = log.page(numbers[at], numbers[end - 1] - numbers[at] + 1)
        got = 0
        for line in page.lines():
            if line.number in requested:
                got += 1
                length += len(line.text)
                yield line
                if length >= _MAX_PAGE_TEXT:
                    return
        if got == 0:
            return
        at += got
