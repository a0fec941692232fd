"""The error of a message that was not delivered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

TRANSIENT_STATUSES = (408, 425, 429, 500, 502, 503, 504)


class NotDeliveredError(Exception):
    """A message was not delivered; its text has no secret."""

    def __init__(
        self, message: str, *, code: str = "", is_transient: bool, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code  # of the target, such as `310000`; `HTTP404`; empty without a response
        self.is_transient = is_transient  # a later attempt may succeed
        self.retry_after_s = retry_after_s  # as the target requests


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds of a header `Retry-After`, which are a number or a date; None without one."""
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    return max(0.0, (at - datetime.now(timezone.utc)).total_seconds())
