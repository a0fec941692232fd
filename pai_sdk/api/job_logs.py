"""The log of an instance by line numbers, from a service that counts in pages."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pai_sdk.api.paging import number_of
from pai_sdk.api.training_jobs import offers_of, prefer_wait, read_timeout
from pai_sdk.api.transport import Transport
from pai_sdk.errors import ApiError, BadAnswerError, InvalidRequestError
from pai_sdk.schemas.record import LogPage

__all__ = ["JobLogs"]

_log = logging.getLogger(__name__)
_LARGEST = 1000
_DOCUMENTED = 100
_SMALLEST = 20  # what alipai asks for
_BY_LINE_LARGEST = 10_000
_NO_INSTANCE_YET = "TRAINING_JOB_INSTANCE_NOT_FOUND"
_ATTEMPTS = 3


class JobLogs:
    """ListTrainingJobLogs, addressed by line.

    How large a page the service grants is not documented, and one that silently gives smaller pages than it was
    asked for would answer page 6 with other lines. So the first page, which begins alike in every size, tells the
    size; until it has been told, later pages are never larger than one that was seen.

    The service of this package does without all that: it takes the line itself as a preference
    (`Prefer: first-line=N`), and can hold an empty answer back (`Prefer: wait=N`). It announces both
    (`x-pai-offers`), and a service that does not is never sent a preference. It names the instance in its answer,
    so that an answer to another question is found out, and asked for again.

    Args:
        transport: to the PAI API.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._size = _LARGEST
        self._is_known = False
        self._seen = _SMALLEST  # the longest page so far
        self._by_line = False

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
        # Perhaps it is the size that was refused; if it was not, the same error comes again.
        if not self._is_known:  # another thread may have found it out meanwhile
            self._find_size(job_id, instance, at_least=0)
        return self._read(job_id, instance, start, limit, wait_s)

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
        size = self._size_for(start, limit)
        page = self._page(job_id, instance, start, size)
        if start < size:
            self._learn(page, size)
        self._seen = max(self._seen, len(page.lines))
        return page.part(start, limit)

    def _size_for(self, start: int, limit: int) -> int:
        """The page size by which the wanted lines begin a page, or at least are on one."""
        largest = self._size if self._is_known or start == 0 else min(self._size, self._seen)
        if start == 0:
            return min(limit, largest)
        # What the page has before that line was read already, and would come again with every look.
        most = min(limit, largest, max(start, _SMALLEST))
        return min(range(most, most // 2, -1), key=lambda size: start % size)

    def _learn(self, page: _Page, size: int) -> None:
        """What a first page tells: it was filled. A short one may be cut, or its total ahead of its lines."""
        if size == self._size == len(page.lines):
            self._is_known = True

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
            # That a larger page was refused tells nothing: perhaps there was no log then.
            self._is_known = is_cut or len(page.lines) == size
            self._seen = max(self._seen, len(page.lines))
            _log.debug("log pages of %d lines", self._size)
            return

    def _page(self, job_id: str, instance: str, start: int, size: int, wait_s: float = 0.0) -> _Page:
        """The page that holds the line, or begins with it if the service knows how."""
        number = start // size + 1
        preferences = [*prefer_wait(wait_s).values(), f"first-line={start}"] if self._by_line else []
        for _ in range(_ATTEMPTS):
            answer = self._transport.call(
                "ListTrainingJobLogs",
                "GET",
                "/api/v1/trainingjobs/{training_job_id}/logs",
                {"training_job_id": job_id},
                {"InstanceId": instance, "PageNumber": number, "PageSize": size},
                headers={"Prefer": ", ".join(preferences)} if preferences else {},
                timeout_s=read_timeout(self._transport.timeout_s, wait_s if preferences else 0.0),
            )
            offers = offers_of(answer)
            self._by_line = "first-line" in offers
            first = answer.headers.get("x-pai-log-first-line")
            is_by_line = bool(preferences) and first == str(start)
            expected = start if is_by_line else (number - 1) * size
            if first is not None and (
                first != str(expected) or answer.headers.get("x-pai-log-instance") != instance
            ):
                _log.info("ListTrainingJobLogs: the answer belongs to another question; asking again")
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
            f"ListTrainingJobLogs: {_ATTEMPTS} answers in a row belong to another question; a proxy or cache "
            "in between mixes them up",
            status_code=answer.status_code,
            request_id=answer.request_id,
        )


@dataclass(frozen=True)
class _Page:
    """A page as the service counts them; its first line has the number `first`."""

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
    r"""The lines as text; our own service gives them without line ends, and a `\r` of its has a meaning."""
    texts = ("" if line is None else str(line) for line in lines)
    return tuple(text.removesuffix("\n").removesuffix("\r") for text in texts) if strip else tuple(texts)
