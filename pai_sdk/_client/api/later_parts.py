"""Parts of a log by time, for lines beyond the last page that a service returns."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from weakref import WeakMethod

from pai_sdk._client.api.log_pages import LogPages, wire_time
from pai_sdk._wire.pai.record import LogPage
from pai_sdk.errors import InvalidRequestError, PaiError

_log = logging.getLogger(__name__)
_MIN_PAGE_LINES = 20
_OVERLAP = 200  # lines that two parts of a log have in common
_MIN_OVERLAP = 20  # fewer may be the same by chance
_SEARCH_SPANS_S = tuple(60 * 2**power for power in range(21))  # two years
_WINDOW_LINES = (600, 3000)  # lines of a later part that are searched for the common ones
_MAX_SEARCHES = 1000

_Read = TypeVar("_Read")
# Where a part starts: before a line or behind it; "end" if there are no later lines.
_PartStart = Literal["early", "late", "end"]


@dataclass(frozen=True)
class LogPart:
    """A part of a log: all lines since a time. `first` is the number of its first line in the full log."""

    since: str | None
    first: int


class PartResult(NamedTuple):
    """The result of a search: the part with the next lines; None if none was found, which may be unsure."""

    part: LogPart | None
    unsure: bool = False


class _Match(NamedTuple):
    end: int  # the index behind the previous lines, in the part
    is_at_end: bool  # no more lines are behind it


class ReadPart(Protocol):
    """Reads lines of a part, from a line number of the full log on."""

    def __call__(self, log: tuple[str, str], part: LogPart, start: int, /) -> LogPage: ...


_FULL_LOG = LogPart(None, 0)


class LaterParts:
    """The parts of logs that are read by time; each starts before the end of the previous one."""

    def __init__(self, pages: LogPages, read_part: ReadPart) -> None:
        self._pages = pages
        # Weak: its object has this one, and in a cycle a dropped session would keep its sockets open.
        self._read_part = WeakMethod(read_part)
        self._parts: dict[tuple[str, str], list[LogPart]] = {}  # of each log that is read by time
        self._searches: dict[tuple[str, str, int], _Search] = {}  # by log and line

    def part_with(self, log: tuple[str, str], start: int) -> LogPart:
        """Returns the last part that starts before a line."""
        return [*takewhile(lambda part: part.first <= start, self._parts.get(log, [_FULL_LOG]))][-1]

    def search(self, log: tuple[str, str], part: LogPart, start: int, total: int | None) -> PartResult:
        """Records that the page with a line was empty, and searches for a later part if that is due."""
        search = self._search_at(log, part, start)
        if search.later is not None:
            return PartResult(search.later)
        if not search.needs_search(total, self._pages.now_s):
            return PartResult(None, unsure=not search.is_searched)
        num_pages = len(search.pages)
        try:
            later = self._part_behind(search, total)
        except PaiError as error:
            if len(search.pages) == num_pages:
                raise
            _log.info("%s; the search for later lines continues with the next read", error)
            # The search has made progress, so the caller must not count the failures before it.
            return PartResult(None, unsure=True)
        search.is_searched, search.pages = True, {}
        if later is not None:
            parts = self._parts.get(log, [_FULL_LOG])
            self._parts[log] = [*(each for each in parts if each.first < later.first), later]
            search.later = later if later.first > start else None
        return PartResult(later)

    def _search_at(self, log: tuple[str, str], part: LogPart, start: int) -> _Search:
        if (*log, start) not in self._searches and len(self._searches) >= _MAX_SEARCHES:
            self._searches.clear()
        return self._searches.setdefault((*log, start), _Search(log, part, start))

    def _part_behind(self, search: _Search, total: int | None) -> LogPart | None:
        """Returns the part of the log that starts at a later time and has the line of a search; or None."""
        # After an error, the next call starts here again, and reuses the pages of this one (`_Search.once`).
        late = early = search.started_at + 60  # a part since then starts behind the line
        result: LogPart | _PartStart = "late" if self._filters_by_time(search, late) else "end"
        for span_s in _SEARCH_SPANS_S if result == "late" else ():
            late, early = early, search.started_at - span_s
            result = self._part_since(search, early, total)
            if result != "late":
                break
        # Bisects whole minutes first, which every service accepts; some refuse seconds.
        while result in ("early", "late") and late - early > 1:
            middle = (early + late) // 2
            middle -= middle % 60 if late - early > 60 else 0
            result = self._part_since(search, middle, total)
            early, late = (early, middle) if result == "late" else (middle, late)
        if not isinstance(result, str):
            return result
        # The service counts more lines: the part may start behind the line, and the lines between cannot be read.
        return self._next_part(search, late, total) if total is not None and total > search.start else None

    def _filters_by_time(self, search: _Search, future: int) -> bool:
        """Returns True if the service returns the lines since a time, and not all of them."""
        try:
            page = search.once("future", partial(self._pages.page, *search.log, 0, 1, since=wire_time(future)))
        except InvalidRequestError:  # a time in the future
            return True
        return not page.lines

    def _next_part(self, search: _Search, since_s: int, total: int) -> LogPart | None:
        """Returns the part of the log since a time; the lines before its first one cannot be read."""
        since, first, is_exact = wire_time(since_s), total, False
        with contextlib.suppress(InvalidRequestError):
            page = self._pages.page(*search.log, 0, _MIN_PAGE_LINES, since=since)
            # The counts of two responses differ while the log grows, and some services ignore the time: the part
            # counts only if the total is the same after it.
            first = total - (page.total or 0)
            is_exact = bool(page.lines) and first > search.start - _MIN_OVERLAP
            is_exact = is_exact and self._pages.page(*search.log, 0, 1).total == total
        if not is_exact or first > search.start:
            _log.warning(
                "the service counts %d lines in the log of %s, and does not return %d of them, from line %d on",
                total,
                search.log[1],
                (first if is_exact else total) - search.start,
                search.start,
            )
        return LogPart(since, first) if is_exact else None

    def _part_since(self, search: _Search, since_s: int, total: int | None) -> LogPart | _PartStart:
        """Returns the part since a time if it has the line and lines before it; otherwise where it starts."""
        start, is_counted = search.start, total is not None and total > search.start
        try:
            previous = self._lines(search, search.part, start - _OVERLAP, _OVERLAP)
            if 0 < len(previous) < _OVERLAP:  # they end before the line, so they cannot locate it
                return "early"
            first = self._first_line_since(search, since_s, total if is_counted else None)
            if isinstance(first, str):
                return first
            if is_counted and first > start:
                return "late"
            match = self._match_since(search, since_s, first, previous, is_counted=is_counted)
        except InvalidRequestError:  # some services refuse times before the job, or times with seconds
            return "early"
        if match is None:
            return "early" if first <= start - _MIN_OVERLAP else "late"
        if not match.is_at_end:
            return LogPart(wire_time(since_s), start - match.end)
        # The part ends with the previous lines: there are no others, or this page does not have them either.
        return "early" if is_counted else "end"

    def _first_line_since(self, search: _Search, since_s: int, total: int | None) -> int | _PartStart:
        """Returns the approximate number of the first line since a time, or where a part since then starts."""
        log, since = search.log, wire_time(since_s)
        count = search.once((since, None), lambda: self._pages.page(*log, 0, _MIN_PAGE_LINES, since=since))
        if not count.lines:
            return "late"
        if total is not None and count.total is not None:
            return total - count.total
        # The service may truncate the count as it does the lines.
        until = partial(self._pages.page, *log, 0, 1, since=search.part.since, until=since)
        before = search.once((None, since), until).total
        if before == 0:
            return "early"
        return search.start if before is None else search.part.first + before

    def _match_since(
        self, search: _Search, since_s: int, first: int, previous: list[str], *, is_counted: bool
    ) -> _Match | None:
        """Locates the previous lines in the part since a time, whose first line has about this number."""
        start, part = search.start, LogPart(wire_time(since_s), 0)
        for count in _WINDOW_LINES:
            offset = max(0, start - first - count // 2)
            lines = self._lines(search, part, offset, count)
            near = start - first - offset if first < start or is_counted else len(lines)
            end = _end_of(previous, lines, near=near, is_part_start=offset == 0)
            if end is not None:
                return _Match(offset + end, is_at_end=end == len(lines))
            if not lines:
                break
        return None

    def _lines(self, search: _Search, part: LogPart, start: int, count: int) -> list[str]:
        lines: list[str] = []
        read_part = self._read_part()
        while read_part is not None and len(lines) < count:
            at = start + len(lines)
            # With small pages, the last lines may be beyond the last page that the service returns.
            read = partial(read_part, search.log, part, at)
            try:
                more = search.once((part.since, at), read).lines
            except InvalidRequestError:
                break
            if not more:
                break
            lines += more
        return lines[:count]


@dataclass
class _Search:
    """The search for a later part of a log, from a line on whose page was empty."""

    log: tuple[str, str]
    part: LogPart
    start: int  # the line
    times: int = 0  # the number of empty pages
    total: int | None = None  # of the last empty page
    is_searched: bool = False  # with this total
    later: LogPart | None = None  # the next lines of the log, behind lines that cannot be read
    started_at: int = 0  # when the search started, in whole minutes
    pages: dict[object, Any] = field(default_factory=dict)  # of the search so far

    def once(self, key: object, read: Callable[[], _Read]) -> _Read:
        """Returns a page of the search; a page that was read before an error is not requested again."""
        pages = self.pages  # another thread may replace it, when it starts a new search
        if key not in pages:
            pages[key] = read()
        page: _Read = pages[key]
        return page

    def needs_search(self, total: int | None, now: float) -> bool:
        """Records an empty page; returns whether to search for a later part of the log."""
        # A total may be ahead of the lines for a moment. A search costs some requests: it is made when the total
        # was the same twice, once for each total, and after 2, 4, 8 … empty pages.
        is_settled = self.times > 0 and self.total == total
        self.times += 1
        if not is_settled:
            self.total, self.is_searched, self.pages = total, False, {}  # those pages belong to another total
        is_power = not self.times & (self.times - 1)  # of two
        # With pages of an earlier call: an error has interrupted the search, and this read continues it.
        is_due = self.times > 1 and (is_power or bool(self.pages) or (is_settled and not self.is_searched))
        if is_due and not self.pages:
            self.is_searched, self.started_at = False, int(now) // 60 * 60
        return is_due


def _end_of(previous: list[str], lines: list[str], *, near: int, is_part_start: bool) -> int | None:
    """Returns the index in `lines` after the previous lines, the nearest to `near` of several; or None."""
    # Lines may repeat, so the match nearest to the expected index counts.
    for end in sorted(range(len(previous), len(lines) + 1), key=lambda end: abs(end - near)):
        if lines[end - len(previous) : end] == previous:
            return end
    min_size = min(_MIN_OVERLAP, len(previous) - 1)
    # A part may start in the middle of the previous lines.
    for size in range(min(len(previous) - 1, len(lines)), min_size - 1, -1) if is_part_start else ():
        if lines[:size] == previous[-size:]:
            return size
    return None
