"""The log of an instance by line numbers, from a service that counts in pages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from pai_sdk._client.api.later_parts import LaterParts, LogPart
from pai_sdk._client.api.log_pages import LogPages
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.pai.record import LogPage
from pai_sdk.errors import ApiError, InvalidRequestError

_log = logging.getLogger(__name__)
_MAX_PAGE_LINES = 1000
_DOCUMENTED_PAGE_LINES = 100
_MIN_PAGE_LINES = 20  # the page size of alipai
_MAX_LINES_BY_NUMBER = 10_000
_NO_INSTANCE_YET = "TRAINING_JOB_INSTANCE_NOT_FOUND"
_MIN_SERVED_LINES = 1000  # no service is known that gives fewer lines of a log than this
_OVERLAP = 200  # lines of an earlier part that the search for a later one reads again
_NO_END = 1 << 62


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
        self._pages = LogPages(transport)
        self._later_parts = LaterParts(self._pages, self._read_part)
        self._size = _MAX_PAGE_LINES
        self._is_size_final = False
        self._max_observed_lines = _MIN_PAGE_LINES  # the longest page so far
        self._refused: set[tuple[str, str]] = set()  # logs that were refused in pages of every size
        self._refused_end = (
            _NO_END  # the end of the shortest refused page; the service returns pages that end before it
        )

    def read(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Returns lines from number `start` on, at most `limit`; see `Backend.read_log`."""
        assumed, log = self._size, (job_id, instance)
        try:
            if log in self._refused:  # a log that did not exist is refused too: one request shows that
                self._pages.page(*log, 0, _MIN_PAGE_LINES)
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
        return self._pages.times(job_id, instance, start=start, count=count)

    def _read(self, job_id: str, instance: str, start: int, limit: int, wait_s: float) -> LogPage:
        if self._pages.by_line:
            page = self._pages.page(job_id, instance, start, min(limit, _MAX_LINES_BY_NUMBER), wait_s)
            if page.first == start:
                return page.part(start, limit)
        return self._read_by_page(job_id, instance, start, limit, wait_s)

    def _read_by_page(self, job_id: str, instance: str, start: int, limit: int, wait_s: float) -> LogPage:
        if start >= 2 * self._max_observed_lines and not self._is_size_final:
            self._find_size(job_id, instance, min_lines=start)
            if self._pages.by_line:
                return self._read(job_id, instance, start, limit, wait_s)
        log = job_id, instance
        part = self._later_parts.part_with(log, start)
        try:
            page = self._read_part(log, part, start, limit)
        except InvalidRequestError:
            if not self._is_size_final or start - part.first < _MIN_SERVED_LINES:
                raise
            count = self._pages.page(*log, 0, _MIN_PAGE_LINES, since=part.since).total
            # The service may refuse pages beyond its limit: the log has no more lines in pages.
            page = LogPage((), total=None if count is None else count + part.first)
        if page.lines or not self._can_be_truncated(part, start, page.total):
            return page
        later, unsure = self._later_parts.search(log, part, start, page.total)
        if later is None:
            return replace(page, unsure=unsure)
        missing = max(0, later.first - start)
        return replace(self._read_part(log, later, start + missing, limit), missing=missing)

    def _read_part(self, log: tuple[str, str], part: LogPart, start: int, limit: int | None = None) -> LogPage:
        offset, limit = start - part.first, self._size if limit is None else limit
        page, size = self._page_before_limit(log, part, offset, self._size_for(offset, limit))
        if (
            offset < size == self._size == len(page.lines)
        ):  # a shorter page may be truncated, or its log at its end
            self._is_size_final = True
        self._max_observed_lines = max(self._max_observed_lines, len(page.lines))
        part_page = page.part(offset, limit)
        return replace(part_page, total=None if part_page.total is None else part_page.total + part.first)

    def _page_before_limit(
        self, log: tuple[str, str], part: LogPart, offset: int, size: int
    ) -> tuple[LogPage, int]:
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
                page = self._pages.page(*log, offset, tried, since=part.since)
            except InvalidRequestError as error:
                refusal = error
                if is_deep:
                    self._refused_end = min(self._refused_end, end)
                continue
            if end >= self._refused_end:  # that page was refused for another reason
                self._refused_end = _NO_END
            return page, tried
        raise refusal

    def _can_be_truncated(self, part: LogPart, start: int, total: int | None) -> bool:
        """Returns True if the service may hold back lines: it counts more, or its count is truncated."""
        is_round = (start - part.first) % 100 == 0
        return start - part.first >= _MIN_SERVED_LINES and (total is None or total > start or is_round)

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
                page = self._pages.page(job_id, instance, 0, size)
            except InvalidRequestError:
                if size == _MIN_PAGE_LINES:
                    raise
                continue
            if self._pages.by_line:
                return
            # The log has at least `min_lines` lines, so a shorter page has the maximum size.
            is_truncated = 0 < len(page.lines) < min(size, min_lines)
            self._size = len(page.lines) if is_truncated else size
            # The refusal of a larger page proves nothing: the log may not have existed yet.
            self._is_size_final = is_truncated or len(page.lines) == size
            self._max_observed_lines = max(self._max_observed_lines, len(page.lines))
            _log.debug("log pages of %d lines", self._size)
            return


def _sizes_before(end: int, offset: int, largest: int) -> Iterator[int]:
    """Yields sizes of pages with a line that end before another: with most lines from it on, half as many, ..."""
    ends = {(offset // size + 1) * size: size for size in range(_MIN_PAGE_LINES, largest + 1)}
    while fitting := [each for each in ends if each < end]:
        yield ends[max(fitting)]
        end = offset + (max(fitting) - offset) // 2 + 1
