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

from pai_sdk._wire.base import wire_names
from pai_sdk._wire.logs import LogLines
from pai_sdk.api.paging import number_of
from pai_sdk.api.training_jobs import offers_of, prefer_wait, read_timeout
from pai_sdk.api.transport import ApiResponse, Transport
from pai_sdk.errors import ApiError, BadAnswerError, InvalidRequestError, PaiError
from pai_sdk.schemas.record import LogPage

_log = logging.getLogger(__name__)
_LARGEST = 1000
_DOCUMENTED = 100
_SMALLEST = 20  # the page size of alipai
_BY_LINE_LARGEST = 10_000
_NO_INSTANCE_YET = "TRAINING_JOB_INSTANCE_NOT_FOUND"
_ATTEMPTS = 3
_LEAST_CAP = 1000  # no service is known that gives fewer lines of a log than this
_OVERLAP = 200  # lines that two parts of a log have in common
_LEAST_OVERLAP = 20  # fewer may be the same by chance
_LOOK_BACK_S = tuple(60 * 2**power for power in range(21))  # two years
_LOOKED_AT = (600, 3000)  # lines of a later part that are searched for the common ones
_MOST_PLACES = 1000
_NO_END = 1 << 62

_Read = TypeVar("_Read")
_Begin = Literal["early", "late", "end"]  # of a part: before a line, behind it, and that there are no later lines


class JobLogs:
    """ListTrainingJobLogs, addressed by line.

    The largest page of the service is not documented. If the service silently gives smaller pages than requested,
    page 6 has other lines than expected. So the first page, which begins with the same line in every size, shows
    the size; until it is known, later pages are never larger than the largest one seen.

    The embedded service needs none of this: it takes the number of the line (`Prefer: first-line=N`), and offers a
    long poll (`Prefer: wait=N`). It announces both (`x-pai-offers`); other services get no preference. It names
    the instance in its response, so a response to another request is detected, and requested again.

    A service may give no lines beyond some page, even if the log is longer. From there on, the log is read by time
    (`StartTime`): such a part begins before the last line that was read, and the lines that both have in common
    give the number of its first line. Where more lines were written within a second than the service gives, there
    is no such part. Then the log goes on with the next one, and the page says how many are missing before it.

    Args:
        transport: to the PAI API.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._size = _LARGEST
        self._is_known = False
        self._seen = _SMALLEST  # the longest page so far
        self._by_line = False
        self._has_times = False
        self._parts: dict[tuple[str, str], list[_Part]] = {}  # by log: its parts, when it is read by time
        self._refused: set[tuple[str, str]] = set()  # logs that were refused in pages of every size
        self._refused_end = _NO_END  # where the shortest refused page ended; pages that end before it are given
        self._places: dict[tuple[str, str, int], _Place] = {}  # by log and line
        self._now = time.time()  # by the service's clock

    def read(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Lines from number `start` on, at most `limit`; see `Backend.read_log`."""
        assumed, log = self._size, (job_id, instance)
        try:
            if log in self._refused:  # a service refuses a log that is not there yet; one request shows that
                self._page(*log, 0, _SMALLEST)
                self._refused.discard(log)
            return self._read(job_id, instance, start, limit, wait_s)
        except ApiError as error:
            if error.code == _NO_INSTANCE_YET:
                return LogPage(())
            is_told = (self._is_known and self._size == assumed) or log in self._refused
            if is_told or not isinstance(error, InvalidRequestError):
                raise
        # The size may have been refused; if not, the same error is raised again.
        if not self._is_known:  # another thread may have found it meanwhile
            try:
                self._find_size(job_id, instance, at_least=0)
            except InvalidRequestError:
                self._refused.add(log)
                raise
        return self._read(job_id, instance, start, limit, wait_s)

    def times(self, job_id: str, instance: str, *, start: int, count: int) -> list[str | None] | None:
        """The times of lines; see `Backend.line_times`. Called after `read`, which learns of the offer."""
        if not self._has_times:
            return None
        query = wire_names(instance_id=instance, page_number=1, page_size=count)
        response = self._call(job_id, query, f"first-line={start}, line-times")
        times = LogLines.model_validate(response.json).line_times
        if times is None:
            return None
        found = [time if isinstance(time, str) else None for time in times[:count]]
        return found + [None] * (count - len(found))

    def _read(self, job_id: str, instance: str, start: int, limit: int, wait_s: float) -> LogPage:
        if self._by_line:
            page = self._page(job_id, instance, start, min(limit, _BY_LINE_LARGEST), wait_s)
            if page.first == start:
                return page.part(start, limit)
        return self._read_by_page(job_id, instance, start, limit, wait_s)

    def _read_by_page(self, job_id: str, instance: str, start: int, limit: int, wait_s: float) -> LogPage:
        if start >= 2 * self._seen and not self._is_known:
            self._find_size(job_id, instance, at_least=start)
            if self._by_line:
                return self._read(job_id, instance, start, limit, wait_s)
        log = job_id, instance
        part = [*takewhile(lambda one: one.first <= start, self._parts.get(log, [_WHOLE]))][-1]
        try:
            page = self._read_part(log, part, start, limit)
        except InvalidRequestError:
            if not self._is_known or start - part.first < _LEAST_CAP:
                raise
            count = self._page(*log, 0, _SMALLEST, since=part.since).total
            page = LogPage(
                (), total=None if count is None else count + part.first
            )  # pages beyond the limit may be refused
        if page.lines or not self._may_be_cut(part, start, page.total):
            return page
        place = self._place_at(log, part, start)
        later = place.later
        if later is None:
            if not place.needs_search(page.total, self._now):
                return replace(page, unsure=not place.is_searched)
            before = len(place.pages)
            try:
                later = self._later_part(place, page.total)
            except PaiError as error:
                if len(place.pages) == before:
                    raise
                _log.info("%s; the search for later lines goes on with the next read", error)
                return replace(page, unsure=True)  # progress: the failures before it no longer count
            place.is_searched, place.pages = True, {}
            if later is None:
                return page
            known = self._parts.get(log, [_WHOLE])
            self._parts[log] = [*(one for one in known if one.first < later.first), later]
            place.later = later if later.first > start else None
        missing = max(0, later.first - start)
        return replace(self._read_part(log, later, start + missing, limit), missing=missing)

    def _place_at(self, log: tuple[str, str], part: _Part, start: int) -> _Place:
        if (*log, start) not in self._places and len(self._places) >= _MOST_PLACES:
            self._places.clear()
        return self._places.setdefault((*log, start), _Place(log, part, start))

    def _read_part(self, log: tuple[str, str], part: _Part, start: int, limit: int) -> LogPage:
        offset = start - part.first
        page, size = self._page_before_limit(log, part, offset, self._size_for(offset, limit))
        if offset < size == self._size == len(page.lines):  # a shorter page may be cut, or the total ahead of it
            self._is_known = True
        self._seen = max(self._seen, len(page.lines))
        found = page.part(offset, limit)
        return replace(found, total=None if found.total is None else found.total + part.first)

    def _page_before_limit(self, log: tuple[str, str], part: _Part, offset: int, size: int) -> tuple[_Page, int]:
        """The page with a line, and its size: a smaller one, if the service refuses pages that end far behind."""
        end = (offset // size + 1) * size
        # Pages of the first lines, and those of an unknown size, are refused for another reason.
        is_deep = self._is_known and offset >= _LEAST_CAP - _OVERLAP
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

    def _may_be_cut(self, part: _Part, start: int, total: int | None) -> bool:
        """Returns True if the service may hold back lines: it counts more, or its count is cut off."""
        is_round = (start - part.first) % 100 == 0
        return start - part.first >= _LEAST_CAP and (total is None or total > start or is_round)

    def _later_part(self, place: _Place, total: int | None) -> _Part | None:
        """The part of the log that begins at a later time and has the line of a place; None if there is none.

        If the service counts more lines, it may be a part that begins behind that line: nothing in between can be
        read. After an error, the next call goes on with what this one has found out.
        """
        late = early = place.began_at + 60  # a part since then begins behind the line
        found: _Part | _Begin = "late" if self._knows_times(place, late) else "end"
        for look_back_s in _LOOK_BACK_S if found == "late" else ():
            late, early = early, place.began_at - look_back_s
            found = self._part_since(place, early, total)
            if found != "late":
                break
        # Bisect: whole minutes first, which every service takes.
        while found in ("early", "late") and late - early > 1:
            middle = (early + late) // 2
            middle -= middle % 60 if late - early > 60 else 0
            found = self._part_since(place, middle, total)
            early, late = (early, middle) if found == "late" else (middle, late)
        if not isinstance(found, str):
            return found
        return self._next_part(place, late, total) if total is not None and total > place.start else None

    def _knows_times(self, place: _Place, future: int) -> bool:
        """Returns True if the service returns the lines since a time, and not all of them."""
        try:
            page = place.once("future", partial(self._page, *place.log, 0, 1, since=_wire_time(future)))
        except InvalidRequestError:  # a time in the future
            return True
        return not page.lines

    def _next_part(self, place: _Place, since_s: int, total: int) -> _Part | None:
        """The part of the log since a time; the lines between the place and its first one cannot be read."""
        since, first, is_exact = _wire_time(since_s), total, False
        with contextlib.suppress(InvalidRequestError):
            page = self._page(*place.log, 0, _SMALLEST, since=since)
            # While the log grows, the counts do not fit together. Some services ignore the time.
            first = total - (page.total or 0)
            is_exact = bool(page.lines) and first > place.start - _LEAST_OVERLAP
            is_exact = is_exact and self._page(*place.log, 0, 1).total == total
        if not is_exact or first > place.start:
            _log.warning(
                "the service counts %d lines in the log of %s, and does not return %d of them, from line %d on",
                total,
                place.log[1],
                (first if is_exact else total) - place.start,
                place.start,
            )
        return _Part(since, first) if is_exact else None

    def _part_since(self, place: _Place, since_s: int, total: int | None) -> _Part | _Begin:
        """The part since a time if it has the line, and lines before it to recognize; or else when it begins."""
        log, part, start = place.log, place.part, place.start
        since, is_counted = _wire_time(since_s), total is not None and total > start
        offset, lines, end = 0, [], None
        try:
            known = self._lines(place, part, start - _OVERLAP, _OVERLAP)
            if 0 < len(known) < _OVERLAP:  # they do not reach the line, so they do not show where it is
                return "early"
            count = place.once((since, None), lambda: self._page(*log, 0, _SMALLEST, since=since))
            if not count.lines:
                return "late"
            # The approximate number of its first line.
            if is_counted and total is not None and count.total is not None:
                first = total - count.total
            else:  # the count may be cut off as the lines are
                until = partial(self._page, *log, 0, 1, since=part.since, until=since)
                before = place.once((None, since), until).total
                first = start if before is None else part.first + before
                if before == 0:
                    return "early"
            if is_counted and first > start:
                return "late"
            for count_lines in _LOOKED_AT:
                offset = max(0, start - first - count_lines // 2)
                lines = self._lines(place, _Part(since, 0), offset, count_lines)
                near = start - first - offset if first < start or is_counted else len(lines)
                end = _end_of(known, lines, near=near, begins=offset == 0)
                if end is not None or not lines:
                    break
        except InvalidRequestError:  # some services refuse times before the job, or seconds
            return "early"
        if end is None:
            return "early" if first <= start - _LEAST_OVERLAP else "late"
        if end < len(lines):
            return _Part(since, start - offset - end)
        # Its lines end with the known ones: there are no others, or they are not returned here either.
        return "early" if is_counted else "end"

    def _lines(self, place: _Place, part: _Part, start: int, count: int) -> list[str]:
        lines: list[str] = []
        while len(lines) < count:
            at = start + len(lines)
            # Large pages: of small ones, the last lines may be beyond the last page that the service gives.
            read = partial(self._read_part, place.log, part, at, self._size)
            try:
                more = place.once((part.since, at), read).lines
            except InvalidRequestError:
                break
            if not more:
                break
            lines += more
        return lines[:count]

    def _size_for(self, start: int, limit: int) -> int:
        """The page size with which the wanted lines begin a page, or are at least on one."""
        largest = self._size if self._is_known or start == 0 else min(self._size, self._seen)
        if start == 0:
            return min(limit, largest)
        # Lines before it on the page are already known, and would be sent again with every poll.
        most = min(limit, largest, max(start, _SMALLEST))
        return min(range(most, most // 2, -1), key=lambda size: start % size)

    def _find_size(self, job_id: str, instance: str, *, at_least: int) -> None:
        for size in (_LARGEST, _DOCUMENTED, _SMALLEST):
            try:
                page = self._page(job_id, instance, 0, size)
            except InvalidRequestError:
                if size == _SMALLEST:
                    raise
                continue
            if self._by_line:
                return
            # The log has that many lines, so a shorter page is as long as pages get.
            is_cut = 0 < len(page.lines) < min(size, at_least)
            self._size = len(page.lines) if is_cut else size
            # A refusal of a larger page proves nothing: there may have been no log yet.
            self._is_known = is_cut or len(page.lines) == size
            self._seen = max(self._seen, len(page.lines))
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
        """The page that holds the line, or begins with it if the service offers that."""
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
                _texts(body.logs or [], strip=not self._by_line),
                first=expected,
                total=number_of(body.total_count),
                complete=response.headers.get("x-pai-log-complete", "").lower() == "true",
                waited="wait" in offers,
            )
        raise BadAnswerError(
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
    """A part of a log: all lines since a time. `first` is the number of its first line in the whole log."""

    since: str | None
    first: int


_WHOLE = _Part(None, 0)


@dataclass
class _Place:
    """A place in a log where a page was empty, and the search for a later part."""

    log: tuple[str, str]
    part: _Part
    start: int  # the line
    times: int = 0  # that the page was empty
    total: int | None = None  # at the last time
    is_searched: bool = False  # with this count
    later: _Part | None = None  # where the log goes on, behind lines that cannot be read
    began_at: int = 0  # when the search began, in whole minutes
    pages: dict[object, Any] = field(default_factory=dict)  # that the search has read

    def once(self, key: object, read: Callable[[], _Read]) -> _Read:
        """A page of the search; one that was read before an error is not requested again."""
        pages = self.pages  # another thread may begin a search anew
        if key not in pages:
            pages[key] = read()
        page: _Read = pages[key]
        return page

    def needs_search(self, total: int | None, now: float) -> bool:
        """Note an empty page; returns whether to search for a later part of the log, which costs some requests.

        A count may be ahead of the lines for a moment. So the search is made when the count was the same twice,
        once for each count, and after 2, 4, 8 … empty pages. An error interrupts it; the next read continues it.
        """
        is_settled = self.times > 0 and self.total == total
        self.times += 1
        if not is_settled:
            self.total, self.is_searched, self.pages = total, False, {}  # other counts do not fit to those pages
        is_power = not self.times & (self.times - 1)  # of two
        is_due = self.times > 1 and (is_power or bool(self.pages) or (is_settled and not self.is_searched))
        if is_due and not self.pages:
            self.is_searched, self.began_at = False, int(now) // 60 * 60
        return is_due


@dataclass(frozen=True)
class _Page(LogPage):
    """A page as the service counts them; its first line has the number `first`."""

    first: int = 0

    def part(self, start: int, limit: int) -> LogPage:
        end = start - self.first + limit
        complete = self.complete and end >= len(self.lines)
        lines = self.lines[start - self.first : end]
        return LogPage(lines, complete=complete, waited=self.waited, total=self.total)


def _texts(lines: list[object], *, strip: bool) -> tuple[str, ...]:
    r"""The lines as text; the embedded service sends them without line ends, so a `\r` is part of the line."""
    texts = ("" if line is None else str(line) for line in lines)
    return tuple(text.removesuffix("\n").removesuffix("\r") for text in texts) if strip else tuple(texts)


def _end_of(known: list[str], lines: list[str], *, near: int, begins: bool) -> int | None:
    """The index after the known lines in others; with `begins`, those may begin in the middle of the known ones.

    Lines may repeat; of several indices, the one that is nearest to `near`.

    Example:
        >>> _end_of(["a", "b"], ["x", "a", "b", "c"], near=0, begins=False)
        3
        >>> _end_of(["a", "b"], ["b", "c"], near=0, begins=True)
        1
    """
    for end in sorted(range(len(known), len(lines) + 1), key=lambda end: abs(end - near)):
        if lines[end - len(known) : end] == known:
            return end
    least = min(_LEAST_OVERLAP, len(known) - 1)
    for size in range(min(len(known) - 1, len(lines)), least - 1, -1) if begins else ():
        if lines[:size] == known[-size:]:
            return size
    return None


def _wire_time(seconds: int) -> str:
    """A time of the query, with seconds only where they are needed."""
    form = "%Y-%m-%dT%H:%M:%SZ" if seconds % 60 else "%Y-%m-%dT%H:%MZ"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)


def _date_of(headers: Mapping[str, str]) -> float | None:
    try:
        return parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return None


def _sizes_before(end: int, offset: int, largest: int) -> Iterator[int]:
    """Yields sizes of pages with a line that end before another: with most lines from it on, half as many, ..."""
    ends = {(offset // size + 1) * size: size for size in range(_SMALLEST, largest + 1)}
    while fitting := [each for each in ends if each < end]:
        yield ends[max(fitting)]
        end = offset + (max(fitting) - offset) // 2 + 1
