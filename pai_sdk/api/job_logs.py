"""The log of an instance by line numbers, from a service that counts in pages."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pai_sdk.api.paging import number_of
from pai_sdk.api.training_jobs import prefer_wait, read_timeout
from pai_sdk.api.transport import Transport
from pai_sdk.errors import ApiError, InvalidRequestError
from pai_sdk.job.record import LogPage

__all__ = ["JobLogs"]

_log = logging.getLogger(__name__)
_LARGEST = 1000
_DOCUMENTED = 100
_SMALLEST = 20  # what alipai asks for
_NO_INSTANCE_YET = "TRAINING_JOB_INSTANCE_NOT_FOUND"


class JobLogs:
    """ListTrainingJobLogs, addressed by line.

    How large a page the service grants is not documented, and one that silently gives smaller pages than it was
    asked for would answer page 6 with other lines. So the first page, which begins alike in every size, tells the
    size; until it has been told, later pages are never larger than one that was seen.

    Args:
        transport: to the PAI API.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._size = _LARGEST
        self._is_known = False
        self._seen = _SMALLEST  # the longest page so far

    def read(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Lines from number `start` on, at most `limit`; see `Backend.read_log`."""
        try:
            return self._read(job_id, instance, start, limit, wait_s)
        except ApiError as error:
            if error.code == _NO_INSTANCE_YET:
                return LogPage(())
            if self._is_known or not isinstance(error, InvalidRequestError):
                raise
        # Perhaps it is the size that was refused; if it was not, the same error comes again.
        self._find_size(job_id, instance, at_least=0)
        return self._read(job_id, instance, start, limit, wait_s)

    def _read(self, job_id: str, instance: str, start: int, limit: int, wait_s: float) -> LogPage:
        if start >= 2 * self._seen and not self._is_known:
            self._find_size(job_id, instance, at_least=start)
        hold = wait_s >= 1
        size = self._size_for(start, limit, hold=hold)
        page = self._page(job_id, instance, start // size + 1, size, wait_s if hold else 0.0)
        if start < size:
            self._learn(page, size)
        self._seen = max(self._seen, len(page.lines))
        part = _part(page, start % size, limit)
        if hold and len(part.lines) == size < limit:
            # There is more, and the size that let us wait may be a small one: take the rest in one go.
            rest = self._read(job_id, instance, start + size, limit - size, 0.0)
            return LogPage((*part.lines, *rest.lines), rest.complete, page.waited, rest.total)
        return part

    def _size_for(self, start: int, limit: int, *, hold: bool) -> int:
        """The page size by which the wanted lines begin a page, or at least are on one."""
        largest = self._size if self._is_known or start == 0 else min(self._size, self._seen)
        if start == 0:
            return min(limit, largest)
        if hold:
            # An answer is held back only while the page is empty, so the page has to begin with the line we want.
            return next(size for size in range(min(largest, start), 0, -1) if start % size == 0)
        return limit if limit < largest and start % limit == 0 else largest

    def _learn(self, page: _Page, size: int) -> None:
        """What a first page tells: it was filled, or it was cut although there is more."""
        if self._is_known or size != self._size:
            return
        if len(page.lines) == size:
            self._is_known = True
        elif page.total is not None and page.total > len(page.lines) > 0:
            self._size, self._is_known = len(page.lines), True

    def _find_size(self, job_id: str, instance: str, *, at_least: int) -> None:
        for size in (_LARGEST, _DOCUMENTED, _SMALLEST):
            try:
                page = self._page(job_id, instance, 1, size, 0.0)
            except InvalidRequestError:
                if size == _SMALLEST:
                    raise
                continue
            # The log has that many lines, so a shorter page is as long as pages get.
            is_cut = 0 < len(page.lines) < min(size, max(at_least, page.total or 0))
            self._size = len(page.lines) if is_cut else size
            self._is_known = size < _LARGEST or is_cut or len(page.lines) == size
            self._seen = max(self._seen, len(page.lines))
            _log.debug("log pages of %d lines", self._size)
            return

    def _page(self, job_id: str, instance: str, number: int, size: int, wait_s: float) -> _Page:
        answer = self._transport.call(
            "ListTrainingJobLogs",
            "GET",
            "/api/v1/trainingjobs/{training_job_id}/logs",
            {"training_job_id": job_id},
            {"InstanceId": instance, "PageNumber": number, "PageSize": size},
            headers=prefer_wait(wait_s),
            timeout_s=read_timeout(self._transport.timeout_s, wait_s),
        )
        lines = answer.json.get("Logs")
        return _Page(
            tuple(_text(line) for line in lines) if isinstance(lines, list) else (),
            total=number_of(answer.json.get("TotalCount")),
            complete=answer.headers.get("x-pai-log-complete", "").lower() == "true",
            waited="wait" in answer.headers.get("Preference-Applied", "").lower(),
        )


@dataclass(frozen=True)
class _Page:
    """A page as the service counts them."""

    lines: tuple[str, ...]
    total: int | None
    complete: bool
    waited: bool


def _part(page: _Page, skip: int, limit: int) -> LogPage:
    lines = page.lines[skip : skip + limit]
    return LogPage(
        lines, complete=page.complete and skip + limit >= len(page.lines), waited=page.waited, total=page.total
    )


def _text(line: object) -> str:
    return "" if line is None else str(line).removesuffix("\n").removesuffix("\r")
