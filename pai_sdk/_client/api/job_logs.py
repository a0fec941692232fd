"""The log of an instance by line numbers, from a service that counts in pages."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import chain, takewhile
from typing import Any, Literal, TypeVar

from pai_sdk._client.api.paging import number_of
from pai_sdk._client.api.training_jobs import offers_of, prefer_wait, read_timeout
from pai_sdk._client.api.transport import ApiResponse, Transport
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.logs import LogLines
from pai_sdk._wire.pai.record import LogPage
from pai_sdk.errors import ApiError, InvalidRequestError, InvalidResponseError, PaiError

_log = logging.getLogger(__name__)
_MAX_PAGE_LINES = 1000
_DOCUMENTED_PAGE_LINES = 100
_MIN_PAGE_LINES = 20  # the page size of alipai
_MAX_LINES_BY_NUMBER = 10_000
_NO_INSTANCE_YET = "TRAINING_JOB_INSTANCE_NOT_FOUND"
_ATTEMPTS = 3
_MIN_SERVED_LINES = 1000  # no service is known that gives fewer lines of a log than this
_OVERLAP = 200  # lines that two parts of a log have in common
_MIN_OVERLAP = 20  # fewer may be the same by chance
_SEARCH_SPANS_S = tuple(60 * 2**power for power in range(21))  # two years
_WINDOW_LINES = (600, 3000)  # lines of a later part that are searched for the common ones
_MAX_SEARCHES = 1000
_NO_END = 1 << 62

_Read = TypeVar("_Read")
# Where a part starts: before a line or behind it; "end" if there are no later lines.
_PartStart = Literal["early", "late", "end"]


class JobLogs:
    """Reads logs with ListTrainingJobLogs, addressed by line.

    The maximum page size of PAI is not documented. If a service silently returns smaller pages than requested,
    page 6 has other lines than expected. The first page starts with the same line in every size, so it shows the
    size; until then, later pages are never larger than the largest one observed.

    The embedded service needs none of this: it announces (`x-pai-offers`) and accepts the number of the line
    (`Prefer: first-line=N`) and a long poll (`Prefer: wait=N`), and names the instance in its response, so that a
    response to another request is detected.

    A service may return no lines beyond some page of a longer log. From there on, the log is read by time
    (`StartTime`): such a part starts before the last line that was read, and the lines that both have in common
    give the number of its first line. If more lines were written within a second than the service returns, there
    is no such part; then reading continues with the next one, and the page has the number of missing lines.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._size = _MAX_PAGE_LINES
        self._is_size_final = False
        self._max_observed_lines = _MIN_PAGE_LINES  # the longest page so far
        self._by_line = False
        self._has_times = False
        self._parts: dict[tuple[str, str], list[_Part]] = {}  # of each log that is read by time
        self._refused: set[tuple[str, str]] = set()  # logs that were refused in pages of every size
        self._refused_end = (
            _NO_END  # the end of the shortest refused page; the service returns pages that end before it
        )
        self._searches: dict[tuple[str, str, int], _Search] = {}  # by log and line
        self._now = time.time()  # by the service's clock

    def read(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Returns lines from number `start` on, at most `limit`; see `Backend.read_log`."""
        assumed, log = self._size, (job_id, instance)
        try:
            if log in self._refused:  # a log that did not exist is refused too: one request shows that
                self._page(*log, 0, _MIN_PAGE_LINES)
                self._refused.discard(log)
            return self._read(job_id, instance, start, limit, wait_s)
        except ApiError as error:
            if error.code == _NO_INSTANCE_YET:
                return LogPage(())
            is_final = (self._is_size_final and self._size == assumed) or log in self._refused
            if is_final or not isinstance(error, InvalidRequestError):
                raise
        # The service may have refused the page size. Otherwise the next request fails in the same way.
        if not self._is_size_final:  # two threads can arrive here; the second one uses the size of the first
            try:
                self._find_size(job_id, instance, min_lines=0)
            except InvalidRequestError:
                self._refused.add(log)
                raise
        return self._read(job_id, instance, start, limit, wait_s)

    def times(self, job_id: str, instance: str, *, start: int, count: int) -> list[str | None] | None:
        """Returns the times of lines; see `Backend.line_times`. The offer is known after the first `read`."""
        if not self._has_times:
            return None
        query = wire_names(instance_id=instance, page_number=1, page_size=count)
        response = self._call(job_id, query, f"first-line={start}, line-times")
        times = LogLines.model_validate(response.json).line_times
        if times is None:
            return None
        line_times = [time if isinstance(time, str) else None for time in times[:count]]
        return line_times + [None] * (count - len(line_times))

    def _read(self, job_id: str, instance: str, start: int, limit: int, wait_s: float) -> LogPage:
        if self._by_line:
            page = self._page(job_id, instance, start, min(limit, _MAX_LINES_BY_NUMBER), wait_s)
            if page.first == start:
                return page.part(start, limit)
        return self._read_by_page(job_id, instance, start, limit, wait_s)

    def _read_by_page(self, job_id: str, instance: str, start: int, limit: int, wait_s: float) -> LogPage:
        if start >= 2 * self._max_observed_lines and not self._is_size_final:
            self._find_size(job_id, instance, min_lines=start)
            if self._by_line:
                return self._read(job_id, instance, start, limit, wait_s)
        log = job_id, instance
        part = [*takewhile(lambda candidate: candidate.first <= start, self._parts.get(log, [_FULL_LOG]))][-1]
        try:
            page = self._read_part(log, part, start, limit)
        except InvalidRequestError:
            if not self._is_size_final or start - part.first < _MIN_SERVED_LINES:
                raise
            count = self._page(*log, 0, _MIN_PAGE_LINES, since=part.since).total
            # The service may refuse pages beyond its limit: the log has no more lines in pages.
            page = LogPage((), total=None if count is None else count + part.first)
        if page.lines or not self._can_be_truncated(part, start, page.total):
            return page
        search = self._search_at(log, part, start)
        later = search.later
        if later is None:
            if not search.needs_search(page.total, self._now):
                return replace(page, unsure=not search.is_searched)
            num_pages = len(search.pages)
            try:
                later = self._later_part(search, page.total)
            except PaiError as error:
                if len(search.pages) == num_pages:
                    raise
                _log.info("%s; the search for later lines continues with the next read", error)
                # The search has made progress, so the caller must not count the failures before it.
                return replace(page, unsure=True)
            search.is_searched, search.pages = True, {}
            if later is None:
                return page
            parts = self._parts.get(log, [_FULL_LOG])
            self._parts[log] = [*(candidate for candidate in parts if candidate.first < later.first), later]
            search.later = later if later.first > start else None
        missing = max(0, later.first - start)
        return replace(self._read_part(log, later, start + missing, limit), missing=missing)

    def _search_at(self, log: tuple[str, str], part: _Part, start: int) -> _Search:
        if (*log, start) not in self._searches and len(self._searches) >= _MAX_SEARCHES:
            self._searches.clear()
        return self._searches.setdefault((*log, start), _Search(log, part, start))

    def _read_part(self, log: tuple[str, str], part: _Part, start: int, limit: int) -> LogPage:
        offset = start - part.first
        page, size = self._page_before_limit(log, part, offset, self._size_for(offset, limit))
        if (
            offset < size == self._size == len(page.lines)
        ):  # a shorter page may be truncated, or its log at its end
            self._is_size_final = True
        self._max_observed_lines = max(self._max_observed_lines, len(page.lines))
        part_page = page.part(offset, limit)
        return replace(part_page, total=None if part_page.total is None else part_page.total + part.first)

    def _page_before_limit(self, log: tuple[str, str], part: _Part, offset: int, size: int) -> tuple[_Page, int]:
        """Returns the page with a line, and its size: a smaller one if the service refuses large deep pages."""
        end = (offset // size + 1) * size
        # Pages of the first lines, and those of an unknown size, are refused for another reason.
        is_deep = self._is_size_final and offset >= _MIN_SERVED_LINES - _OVERLAP
        smaller = _sizes_before(min(end, self._refused_end), offset, size)
        is_beyond = end >= self._refused_end
        first = next(smaller, size) if is_beyond else size
        for tried in chain((first,), smaller if is_deep or is_beyond else ()):
            end = (offset // tried + 1) * tried
            try:
                page = self._page(*log, offset, tried, since=part.since)
            except InvalidRequestError as error:
                refusal = error
                if is_deep:
                    self._refused_end = min(self._refused_end, end)
                continue
            if end >= self._refused_end:  # that page was refused for another reason
                self._refused_end = _NO_END
            return page, tried
        raise refusal

    def _can_be_truncated(self, part: _Part, start: int, total: int | None) -> bool:
        """Returns True if the service may hold back lines: it counts more, or its count is truncated."""
        is_round = (start - part.first) % 100 == 0
        return start - part.first >= _MIN_SERVED_LINES and (total is None or total > start or is_round)

    def _later_part(self, search: _Search, total: int | None) -> _Part | None:
        """Returns the part of the log that starts at a later time and has the line of a search; or None."""
        # After an error, the next call starts here again, and reuses the pages of this one (`_Search.once`).
        late = early = search.started_at + 60  # a part since then starts behind the line
        result: _Part | _PartStart = "late" if self._filters_by_time(search, late) else "end"
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
            page = search.once("future", partial(self._page, *search.log, 0, 1, since=_wire_time(future)))
        except InvalidRequestError:  # a time in the future
            return True
        return not page.lines

    def _next_part(self, search: _Search, since_s: int, total: int) -> _Part | None:
        """Returns the part of the log since a time; the lines before its first one cannot be read."""
        since, first, is_exact = _wire_time(since_s), total, False
        with contextlib.suppress(InvalidRequestError):
            page = self._page(*search.log, 0, _MIN_PAGE_LINES, since=since)
            # The counts of two responses differ while the log grows, and some services ignore the time: the part
            # counts only if the total is the same after it.
            first = total - (page.total or 0)
            is_exact = bool(page.lines) and first > search.start - _MIN_OVERLAP
            is_exact = is_exact and self._page(*search.log, 0, 1).total == total
        if not is_exact or first > search.start:
            _log.warning(
                "the service counts %d lines in the log of %s, and does not return %d of them, from line %d on",
                total,
                search.log[1],
                (first if is_exact else total) - search.start,
                search.start,
            )
        return _Part(since, first) if is_exact else None

    def _part_since(self, search: _Search, since_s: int, total: int | None) -> _Part | _PartStart:
        """Returns the part since a time if it has the line and lines before it; otherwise where it starts."""
        log, part, start = search.log, search.part, search.start
        since, is_counted = _wire_time(since_s), total is not None and total > start
        offset, lines, end = 0, [], None
        try:
            previous = self._lines(search, part, start - _OVERLAP, _OVERLAP)
            if 0 < len(previous) < _OVERLAP:  # they end before the line, so they cannot locate it
                return "early"
            count = search.once((since, None), lambda: self._page(*log, 0, _MIN_PAGE_LINES, since=since))
            if not count.lines:
                return "late"
            # The approximate number of its first line.
            if is_counted and total is not None and count.total is not None:
                first = total - count.total
            else:  # the service may truncate the count as it does the lines
                until = partial(self._page, *log, 0, 1, since=part.since, until=since)
                before = search.once((None, since), until).total
                first = start if before is None else part.first + before
                if before == 0:
                    return "early"
            if is_counted and first > start:
                return "late"
            for count_lines in _WINDOW_LINES:
                offset = max(0, start - first - count_lines // 2)
                lines = self._lines(search, _Part(since, 0), offset, count_lines)
                near = start - first - offset if first < start or is_counted else len(lines)
                end = _end_of(previous, lines, near=near, is_part_start=offset == 0)
                if end is not None or not lines:
                    break
        except InvalidRequestError:  # some services refuse times before the job, or times with seconds
            return "early"
        if end is None:
            return "early" if first <= start - _MIN_OVERLAP else "late"
        if end < len(lines):
            return _Part(since, start - offset - end)
        # The part ends with the previous lines: there are no others, or this page does not have them either.
        return "early" if is_counted else "end"

    def _lines(self, search: _Search, part: _Part, start: int, count: int) -> list[str]:
        lines: list[str] = []
        while len(lines) < count:
            at = start + len(lines)
            # With small pages, the last lines may be beyond the last page that the service returns.
            read = partial(self._read_part, search.log, part, at, self._size)
            try:
                more = search.once((part.since, at), read).lines
            except InvalidRequestError:
                break
            if not more:
                break
            lines += more
        return lines[:count]

    def _size_for(self, start: int, limit: int) -> int:
        """Returns the page size with which the requested lines start a page, or are at least on one."""
        largest = self._size if self._is_size_final or start == 0 else min(self._size, self._max_observed_lines)
        if start == 0:
            return min(limit, largest)
        # The lines before it on the page were read already; each poll would transfer them again.
        max_size = min(limit, largest, max(start, _MIN_PAGE_LINES))
        return min(range(max_size, max_size // 2, -1), key=lambda size: start % size)

    def _find_size(self, job_id: str, instance: str, *, min_lines: int) -> None:
        for size in (_MAX_PAGE_LINES, _DOCUMENTED_PAGE_LINES, _MIN_PAGE_LINES):
            try:
                page = self._page(job_id, instance, 0, size)
            except InvalidRequestError:
                if size == _MIN_PAGE_LINES:
                    raise
                continue
            if self._by_line:
                return
            # The log has at least `min_lines` lines, so a shorter page has the maximum size.
            is_truncated = 0 < len(page.lines) < min(size, min_lines)
            self._size = len(page.lines) if is_truncated else size
            # The refusal of a larger page proves nothing: the log may not have existed yet.
            self._is_size_final = is_truncated or len(page.lines) == size
            self._max_observed_lines = max(self._max_observed_lines, len(page.lines))
            _log.debug("log pages of %d lines", self._size)
            return

    def _page(
        self,
        job_id: str,
        instance: str,
        start: int,
        size: int,
        wait_s: float = 0.0,
        *,
        since: str | None = None,
        until: str | None = None,
    ) -> _Page:
        """Returns the page that has the line, or starts with it if the service offers that."""
        number = start // size + 1
        query = wire_names(instance_id=instance, page_number=number, page_size=size)
        if since is not None:
            query |= wire_names(start_time=since)
        if until is not None:
            query |= wire_names(end_time=until)
        prefer = ", ".join([*prefer_wait(wait_s).values(), f"first-line={start}"]) if self._by_line else ""
        for _ in range(_ATTEMPTS):
            response = self._call(job_id, query, prefer, wait_s)
            offers = offers_of(response)
            self._now = _date_of(response.headers) or time.time()
            self._by_line = "first-line" in offers
            self._has_times = "line-times" in offers
            first = response.headers.get("x-pai-log-first-line")
            expected = start if prefer and first == str(start) else (number - 1) * size
            if first not in (None, str(expected)) or (
                first is not None and response.headers.get("x-pai-log-instance") != instance
            ):
                _log.info("ListTrainingJobLogs: the response belongs to another request; sending it again")
                continue
            body = LogLines.model_validate(response.json)
            return _Page(
                _line_strings(body.logs or [], strip=not self._by_line),
                first=expected,
                total=number_of(body.total_count),
                complete=response.headers.get("x-pai-log-complete", "").lower() == "true",
                waited="wait" in offers,
            )
        raise InvalidResponseError(
            f"ListTrainingJobLogs: {_ATTEMPTS} responses in a row belong to another request; a proxy or cache "
            "in between mixes them up",
            status_code=response.status_code,
            request_id=response.request_id,
        )

    def _call(self, job_id: str, query: dict[str, Any], prefer: str, wait_s: float = 0.0) -> ApiResponse:
        return self._transport.call(
            "ListTrainingJobLogs",
            "GET",
            "/api/v1/trainingjobs/{training_job_id}/logs",
            {"training_job_id": job_id},
            query,
            headers={"Prefer": prefer} if prefer else {},
            timeout_s=read_timeout(self._transport.timeout_s, wait_s if prefer else 0.0),
        )


@dataclass(frozen=True)
class _Part:
    """A part of a log: all lines since a time. `first` is the number of its first line in the full log."""

    since: str | None
    first: int


_FULL_LOG = _Part(None, 0)


@dataclass
class _Search:
    """The search for a later part of a log, from a line on whose page was empty."""

    log: tuple[str, str]
    part: _Part
    start: int  # the line
    times: int = 0  # the number of empty pages
    total: int | None = None  # of the last empty page
    is_searched: bool = False  # with this total
    later: _Part | None = None  # the next lines of the log, behind lines that cannot be read
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


@dataclass(frozen=True)
class _Page(LogPage):
    """A page by the service's page numbers; its first line has the number `first`."""

    first: int = 0

    def part(self, start: int, limit: int) -> LogPage:
        end = start - self.first + limit
        complete = self.complete and end >= len(self.lines)
        lines = self.lines[start - self.first : end]
        return LogPage(lines, complete=complete, waited=self.waited, total=self.total)


def _line_strings(lines: list[object], *, strip: bool) -> tuple[str, ...]:
    r"""Returns the lines; the embedded service sends them without line ends, so a `\r` is part of the line."""
    strings = ("" if line is None else str(line) for line in lines)
    return tuple(text.removesuffix("\n").removesuffix("\r") for text in strings) if strip else tuple(strings)


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


def _wire_time(seconds: int) -> str:
    """Returns a time for the query, with seconds only where they are needed."""
    form = "%Y-%m-%dT%H:%M:%SZ" if seconds % 60 else "%Y-%m-%dT%H:%MZ"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)


def _date_of(headers: Mapping[str, str]) -> float | None:
    try:
        return parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return None


def _sizes_before(end: int, offset: int, largest: int) -> Iterator[int]:
    """Yields sizes of pages with a line that end before another: with most lines from it on, half as many, ..."""
    ends = {(offset // size + 1) * size: size for size in range(_MIN_PAGE_LINES, largest + 1)}
    while fitting := [each for each in ends if each < end]:
        yield ends[max(fitting)]
        end = offset + (max(fitting) - offset) // 2 + 1
