"""The log of an instance by line numbers, from a service that counts in pages."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from itertools import takewhile
from typing import Literal

from pai_sdk.api.paging import number_of
from pai_sdk.api.training_jobs import offers_of, prefer_wait, read_timeout
from pai_sdk.api.transport import Transport
from pai_sdk.errors import ApiError, BadAnswerError, InvalidRequestError
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
_LOOK_BACK_MINUTES = tuple(2**power for power in range(17))  # 45 days
_LOOK_BACK_UNCOUNTED = (1, 2, 4, 8, 16, 32, 64)  # where the count is not known
_LOOKED_AT = 3000  # lines of a later part that are searched for the common ones


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
    give the number of its first line.

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
        # From which line on pages were empty, whether the service counts more lines than that, and how often.
        self._empty: dict[tuple[str, str], tuple[int, bool, int]] = {}
        self._now = time.time()  # by the service's clock

    def read(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Lines from number `start` on, at most `limit`; see `Backend.read_log`."""
        assumed = self._size
        try:
            return self._read(job_id, instance, start, limit, wait_s)
        except ApiError as error:
            if error.code == _NO_INSTANCE_YET:
                return LogPage(())
            is_told = self._is_known and self._size == assumed
            if is_told or not isinstance(error, InvalidRequestError):
                raise
        # The size may have been refused; if not, the same error is raised again.
        if not self._is_known:  # another thread may have found it meanwhile
            self._find_size(job_id, instance, at_least=0)
        return self._read(job_id, instance, start, limit, wait_s)

    def times(self, job_id: str, instance: str, *, start: int, count: int) -> list[str | None] | None:
        """When lines were written; see `Backend.line_times`. Called after `read`, which learns of the offer."""
        if not self._has_times:
            return None
        answer = self._transport.call(
            "ListTrainingJobLogs",
            "GET",
            "/api/v1/trainingjobs/{training_job_id}/logs",
            {"training_job_id": job_id},
            {"InstanceId": instance, "PageNumber": 1, "PageSize": count},
            headers={"Prefer": f"first-line={start}, line-times"},
        )
        times = answer.json.get("LineTimes")
        if not isinstance(times, list):
            return None
        found = [time if isinstance(time, str) else None for time in times[:count]]
        return found + [None] * (count - len(found))

    def _read(self, job_id: str, instance: str, start: int, limit: int, wait_s: float) -> LogPage:
        if self._by_line:
            size = min(limit, _BY_LINE_LARGEST)
            page = self._page(job_id, instance, start, size, wait_s)
            if page.is_by_line:
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
            self._empty.pop(log, None)
            return page
        # A count may be ahead of the lines for a moment, and the search for a later part costs some requests.
        has_more = page.total is None or page.total > start
        *before, times = self._empty.get(log, (start, has_more, 0))
        times = times + 1 if before == [start, has_more] else 1
        self._empty[log] = start, has_more, times
        later = self._later_part(log, part, start, page.total) if times % 8 == 2 else None
        if later is None:
            return page
        del self._empty[log]
        self._parts[log] = [*(one for one in self._parts.get(log, [_WHOLE]) if one.first < later.first), later]
        return self._read_part(log, later, start, limit)

    def _read_part(self, log: tuple[str, str], part: _Part, start: int, limit: int) -> LogPage:
        offset = start - part.first
        size = self._size_for(offset, limit)
        page = self._page(*log, offset, size, since=part.since)
        if offset < size == self._size == len(page.lines):  # a shorter page may be cut, or the total ahead of it
            self._is_known = True
        self._seen = max(self._seen, len(page.lines))
        found = page.part(offset, limit)
        return replace(found, total=None if found.total is None else found.total + part.first)

    def _may_be_cut(self, part: _Part, start: int, total: int | None) -> bool:
        """Whether the service may hold back lines: it counts more, or its count is cut off."""
        is_round = (start - part.first) % 100 == 0
        return start - part.first >= _LEAST_CAP and (total is None or total > start or is_round)

    def _later_part(self, log: tuple[str, str], part: _Part, start: int, total: int | None) -> _Part | None:
        """A part of the log that begins at a later time and has lines beyond `start`; None if there is none."""
        known = self._lines(log, part, start - _OVERLAP, _OVERLAP)
        is_counted = total is not None and total > start
        latest = 0  # minutes: a part since then begins after the line
        for minutes in _LOOK_BACK_MINUTES if is_counted else _LOOK_BACK_UNCOUNTED:
            found = self._part_since(log, known, start, minutes, total)
            if isinstance(found, _Part):
                return found
            if found == "end":
                return None
            if found == "late":
                latest = minutes
                continue
            # Too early: the wanted lines are beyond its limit again. Bisect between the two times.
            early = minutes
            while early - latest > 1:
                middle = (early + latest) // 2
                found = self._part_since(log, known, start, middle, total)
                if isinstance(found, _Part):
                    return found
                early, latest = (early, middle) if found == "late" else (middle, latest)
            break
        if is_counted:
            _log.warning(
                "the service counts %d lines in the log of %s and gives %d; the others cannot be read",
                total,
                log[1],
                start,
            )
        return None

    def _part_since(
        self, log: tuple[str, str], known: list[str], start: int, minutes: int, total: int | None
    ) -> _Part | Literal["early", "late", "end"]:
        since = datetime.fromtimestamp(self._now - 60 * minutes, timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
        count = self._page(*log, 0, _SMALLEST, since=since)
        if not count.lines:
            return "late"
        # Its count gives the approximate position of the line; without a count the search starts at the beginning.
        is_counted = total is not None and total > start and count.total is not None
        first = total - count.total if is_counted and total is not None and count.total is not None else start
        if first > start:
            return "late"
        if not is_counted and count.total is not None and count.total == total:
            return "end"  # all lines are in it
        offset = max(0, start - first - _LOOKED_AT // 2) if is_counted else 0
        lines = self._lines(log, _Part(since, 0), offset, _LOOKED_AT)
        end = _end_of(known, lines, near=start - first - offset if is_counted else len(lines), begins=offset == 0)
        if end == len(lines) and not is_counted:
            return "end"
        if end is None or end == len(lines):
            return "early" if is_counted else "late"
        return _Part(since, start - offset - end)

    def _lines(self, log: tuple[str, str], part: _Part, start: int, count: int) -> list[str]:
        lines: list[str] = []
        while len(lines) < count:
            try:
                more = self._read_part(log, part, start + len(lines), count - len(lines)).lines
            except InvalidRequestError:
                break
            if not more:
                break
            lines += more
        return lines

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
        self, job_id: str, instance: str, start: int, size: int, wait_s: float = 0.0, *, since: str | None = None
    ) -> _Page:
        """The page that holds the line, or begins with it if the service offers that."""
        number = start // size + 1
        preferences = [*prefer_wait(wait_s).values(), f"first-line={start}"] if self._by_line else []
        for _ in range(_ATTEMPTS):
            answer = self._transport.call(
                "ListTrainingJobLogs",
                "GET",
                "/api/v1/trainingjobs/{training_job_id}/logs",
                {"training_job_id": job_id},
                {"InstanceId": instance, "PageNumber": number, "PageSize": size, "StartTime": since},
                headers={"Prefer": ", ".join(preferences)} if preferences else {},
                timeout_s=read_timeout(self._transport.timeout_s, wait_s if preferences else 0.0),
            )
            offers = offers_of(answer)
            self._now = _date_of(answer.headers) or time.time()
            self._by_line = "first-line" in offers
            self._has_times = "line-times" in offers
            first = answer.headers.get("x-pai-log-first-line")
            is_by_line = bool(preferences) and first == str(start)
            expected = start if is_by_line else (number - 1) * size
            if first is not None and (
                first != str(expected) or answer.headers.get("x-pai-log-instance") != instance
            ):
                _log.info("ListTrainingJobLogs: the response belongs to another request; sending it again")
                continue
            lines = answer.json.get("Logs")
            return _Page(
                _texts(lines, strip=not self._by_line) if isinstance(lines, list) else (),
                first=expected,
                is_by_line=is_by_line,
                total=number_of(answer.json.get("TotalCount")),
                complete=answer.headers.get("x-pai-log-complete", "").lower() == "true",
                waited="wait" in offers,
            )
        raise BadAnswerError(
            f"ListTrainingJobLogs: {_ATTEMPTS} responses in a row belong to another request; a proxy or cache "
            "in between mixes them up",
            status_code=answer.status_code,
            request_id=answer.request_id,
        )


@dataclass(frozen=True)
class _Part:
    """A part of a log: all lines since a time. `first` is the number of its first line in the whole log."""

    since: str | None
    first: int


_WHOLE = _Part(None, 0)


@dataclass(frozen=True)
class _Page:
    """A page of the service; its first line has the number `first`."""

    lines: tuple[str, ...]
    first: int
    is_by_line: bool
    total: int | None
    complete: bool
    waited: bool

    def part(self, start: int, limit: int) -> LogPage:
        skip = start - self.first
        lines = self.lines[skip : skip + limit]
        complete = self.complete and skip + limit >= len(self.lines)
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


def _date_of(headers: Mapping[str, str]) -> float | None:
    try:
        return parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return None
