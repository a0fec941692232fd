"""Notifications about finished jobs, to a webhook or a DingTalk group. The waiting process sends them.

A further destination is a class with `send`, beside `Webhook`. `docs/notify.md`, `docs/reference/jobs.md` and
`docs/cost-retries-notifications.md` name them all.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote_plus, urlsplit

from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import InvalidInputError, JobFailed, JobStopped, Problem

logger = logging.getLogger(__name__)

_TIMEOUT_S = (5.0, 15.0)  # for the connection, and for the response
_RETRY = RetryPolicy(deadline_s=30.0, max_attempts=5)
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
_BUSY = (-1, 130101)  # DingTalk: the system is busy; more than 20 messages a minute
_MAX_TEXT_LENGTH = 2000


@runtime_checkable
class Notification(Protocol):
    """A destination for the notification about a finished job."""

    def send(self, facts: Mapping[str, Any]) -> None:
        """Send the notification.

        Args:
            facts: `job_id`, `name`, `status`, `duration_s`, `url`, `reason_code`, `message`; None if unknown.

        Raises:
            Exception: it could not be sent; the error is logged.
        """
        ...


class _NotSentError(Exception):
    def __init__(self, message: str, *, is_transient: bool) -> None:
        super().__init__(message)
        self.is_transient = is_transient


@dataclass(frozen=True)
class Webhook:
    """Sends the facts as JSON by POST.

    Attributes:
        url: the URL of the receiver. Its path and query may be secret, so only the host is displayed.
        headers: additional headers, such as one with a token.

    Example:
        >>> Webhook("https://hooks.example.com/T0/a-secret")
        Webhook('https://hooks.example.com/…')
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_url(self.url)

    def __repr__(self) -> str:
        return f"Webhook({_masked_url(self.url)!r})"

    def send(self, facts: Mapping[str, Any]) -> None:
        """Send the facts; repeated while the receiver is unreachable or busy."""
        _post(lambda: self.url, dict(facts), headers=self.headers)


@dataclass(frozen=True)
class DingTalk:
    """Sends a message to a group, by its robot.

    Attributes:
        url: of the robot, with its `access_token`.
        secret: of the robot, if its security setting is a signature (`SEC…`).

    Example:
        >>> DingTalk("https://oapi.dingtalk.com/robot/send?access_token=abc", "SECxyz")
        DingTalk('https://oapi.dingtalk.com/…')
    """

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_url(self.url)

    def __repr__(self) -> str:
        return f"DingTalk({_masked_url(self.url)!r})"

    def send(self, facts: Mapping[str, Any]) -> None:
        """Send a message with the facts; repeated while DingTalk is unreachable or busy."""
        title = f"{facts.get('name') or facts.get('job_id')}: {facts.get('status')}"
        lines = [f"### {title}", *(f"- {name}: {value}" for name, value in facts.items() if value is not None)]
        text = "\n".join(lines)
        if len(text) > _MAX_TEXT_LENGTH:
            text = f"{text[: _MAX_TEXT_LENGTH - 1]}…"
        body = {"msgtype": "markdown", "markdown": {"title": title, "text": text}}
        # A signature is valid for an hour, so each attempt signs anew.
        _post(lambda: self.signed_url(time.time()), body, refusal=_dingtalk_refusal)

    def signed_url(self, now_s: float) -> str:
        """The URL for one request.

        Args:
            now_s: seconds since 1970.

        Example:
            >>> DingTalk("https://d.example.com/send?access_token=a", "SEC").signed_url(1.0)[:58]
            'https://d.example.com/send?access_token=a&timestamp=1000&s'
        """
        if self.secret is None:
            return self.url
        timestamp = str(round(now_s * 1000))
        digest = hmac.new(self.secret.encode(), f"{timestamp}\n{self.secret}".encode(), hashlib.sha256).digest()
        sign = quote_plus(base64.b64encode(digest))
        return f"{self.url}{'&' if '?' in self.url else '?'}timestamp={timestamp}&sign={sign}"


def notify_all(
    notifications: Iterable[Notification], record: JobRecord, error: JobFailed | JobStopped | None
) -> None:
    """Sends the notifications about a finished job; a failure is logged as a warning."""
    summary = {
        "job_id": record.training_job_id,
        "name": record.training_job_name,
        "status": str(record.status),
        "duration_s": record.duration,
        "url": record.training_job_url,
        "reason_code": error.reason_code if error else None,
        "message": str(error).splitlines()[0] if error else None,
    }
    for notification in notifications:
        try:
            notification.send(summary)
        except Exception as failure:
            # Only the type of other errors: their text may have the URL, which may be secret.
            reason = str(failure) if isinstance(failure, _NotSentError) else type(failure).__name__
            logger.warning(
                "the notification about the end of job %s was not sent to %r: %s",
                record.training_job_id,
                notification,
                reason,
            )


def _post(
    url: Callable[[], str],
    body: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    refusal: Callable[[Any], _NotSentError | None] = lambda response: None,
) -> None:
    import requests

    def attempt() -> None:
        try:
            response = requests.post(url(), json=body, headers=headers, timeout=_TIMEOUT_S, allow_redirects=False)
        except requests.RequestException as error:
            # `from None`: the text of the error has the URL.
            raise _NotSentError(f"no response ({type(error).__name__})", is_transient=True) from None
        if not 200 <= response.status_code < 300:
            is_transient = response.status_code in _TRANSIENT
            raise _NotSentError(f"HTTP {response.status_code}", is_transient=is_transient)
        if refusal_error := refusal(response):
            raise refusal_error

    _RETRY.call(attempt, is_transient=lambda error: isinstance(error, _NotSentError) and error.is_transient)


def _dingtalk_refusal(response: Any) -> _NotSentError | None:
    """Returns the error of a refused message: DingTalk refuses with HTTP status 200 and a code in the body."""
    try:
        body = response.json()
        code, message = int(body.get("errcode", 0)), str(body.get("errmsg", ""))
    except (ValueError, TypeError, AttributeError):
        return None
    return (
        _NotSentError(f"DingTalk refuses it: {message[:200]} [{code}]", is_transient=code in _BUSY)
        if code
        else None
    )


def _check_url(url: str) -> None:
    if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise InvalidInputError([Problem("url", "is not the URL of a webhook", "it starts with https://")])


def _masked_url(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}/…"
