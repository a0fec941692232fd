"""Requests of ListTrainingJobLogs: one page of the log of an instance, or the times of its lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from pai_sdk._client.api.resource import number_of
from pai_sdk._client.api.responses import ApiResponse
from pai_sdk._client.api.training_jobs import offers_of, prefer_wait, read_timeout
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.pai.record import LogPage
from pai_sdk._wire.training_jobs import LogLines
from pai_sdk.errors import InvalidResponseError

_log = logging.getLogger(__name__)
_ATTEMPTS = 3


class LogPages:
    """Requests pages, and reads from each response what its service offers."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.by_line = False  # the service accepts the number of the first line
        self.has_times = False
        self.now_s = time.time()  # by the service's clock

    def times(self, job_id: str, instance: str, *, start: int, count: int) -> list[str | None] | None:
        """Returns the times of lines; None before the first page, and without the offer."""
        if not self.has_times:
            return None
        query = wire_names(instance_id=instance, page_number=1, page_size=count)
        response = self._call(job_id, query, f"first-line={start}, line-times")
        times = LogLines.model_validate(response.json).line_times
        if times is None:
            return None
        line_times = [time if isinstance(time, str) else None for time in times[:count]]
        return line_times + [None] * (count - len(line_times))

    def page(
        self,
        job_id: str,
        instance: str,
        start: int,
        size: int,
        wait_s: float = 0.0,
        *,
        since: str | None = None,
        until: str | None = None,
    ) -> LogPage:
        """Returns the page that has the line, or starts with it if the service offers that."""
        number = start // size + 1
        query = wire_names(instance_id=instance, page_number=number, page_size=size)
        if since is not None:
            query |= wire_names(start_time=since)
        if until is not None:
            query |= wire_names(end_time=until)
        prefer = ", ".join([*prefer_wait(wait_s).values(), f"first-line={start}"]) if self.by_line else ""
        for _ in range(_ATTEMPTS):
            response = self._call(job_id, query, prefer, wait_s)
            offers = offers_of(response)
            self.now_s = _date_of(response.headers) or time.time()
            self.by_line = "first-line" in offers
            self.has_times = "line-times" in offers
            first = response.headers.get("x-pai-log-first-line")
            expected = start if prefer and first == str(start) else (number - 1) * size
            if first not in (None, str(expected)) or (
                first is not None and response.headers.get("x-pai-log-instance") != instance
            ):
                _log.info("ListTrainingJobLogs: the response belongs to another request; sending it again")
                continue
            body = LogLines.model_validate(response.json)
            return LogPage(
                _line_strings(body.logs or [], strip=not self.by_line),
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


def _line_strings(lines: list[object], *, strip: bool) -> tuple[str, ...]:
    r"""Returns the lines; the embedded service sends them without line ends, so a `\r` is part of the line."""
    strings = ("" if line is None else str(line) for line in lines)
    return tuple(text.removesuffix("\n").removesuffix("\r") for text in strings) if strip else tuple(strings)


def wire_time(seconds: int) -> str:
    """Returns a time for the query, with seconds only where they are needed."""
    form = "%Y-%m-%dT%H:%M:%SZ" if seconds % 60 else "%Y-%m-%dT%H:%MZ"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)


def _date_of(headers: Mapping[str, str]) -> float | None:
    try:
        return parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return None
