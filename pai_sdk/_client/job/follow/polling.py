"""Decides on the pauses between polls of jobs and logs, and for how long failing requests are repeated."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pai_sdk._client.job.follow.workers import Schedule, shared_workers
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import AuthenticationError, InvalidRequestError, InvalidResponseError, NotFoundError, PaiError

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
_BUSY_PAUSE_S = 1.0  # the shortest pause without long polls, while lines arrive
# The sum of n pauses is about 1.3 ** n / 0.3, so a pause is about a fourth of the quiet time: 9 requests in 30 s
# from a first pause of 1 s.
_GROWTH = 1.3
_REPORT_AFTER_S = 2.0
_REPORT_INTERVAL_S = 60.0
# An unreadable response of the service itself will not change; that of a gateway passes with the gateway's outage.
_UNREADABLE_PATIENCE_S = 20.0


@dataclass(frozen=True)
class FollowPolicy:
    """The times of following a log.

    Attributes:
        hold_s: the longest long poll, in seconds.
        pause_s: the longest pause between two polls of a quiet job or log, without long polls. While lines come,
            a log is polled every second.
        quiet_s: for backends that do not say when a log is complete: after the end of the job, its log is taken
            as complete when no line came for this time.
        failed_quiet_s: the same for a job that failed and whose log does not show why: such lines often come late.
        patience_s: how long a log may be unreachable before following gives up; every response resets it.
        poll_timeout_s: how long a wait without time waits for the one response that it asks for.
        retry: the pauses between attempts while the log is unreachable.
        schedule: the worker threads and their clock; those of this process by default. Tests bring their own.
    """

    hold_s: float = 10.0
    pause_s: float = 8.0
    quiet_s: float = 5.0
    failed_quiet_s: float = 15.0
    patience_s: float = 600.0
    poll_timeout_s: float = 5.0
    # One object for all followers, so that they share the rate limit of its warnings.
    retry: RetryPolicy = RetryPolicy()  # noqa: RUF009 - it is frozen
    schedule: Schedule = field(default_factory=shared_workers)


class PollState:
    """The state of one polled resource: its pauses, and the failures since the last response."""

    def __init__(self, policy: FollowPolicy, resource: str = "") -> None:
        self.trouble: BaseException | None = None  # the last error; None after a response
        self._policy = policy
        self._resource = resource
        self._pause_s = min(FIRST_PAUSE_S, policy.pause_s)
        self._failing_since: float | None = None
        self._attempts = 0
        self._reported_at: float | None = None
        self._has_reported_key = False

    def on_response(self) -> None:
        """Resets the failures after a response."""
        self.trouble, self._failing_since, self._attempts, self._reported_at = None, None, 0, None

    def pause_s(self, *, has_news: bool, is_cheap: bool, expected_s: float = 0.0) -> float:
        """Returns the pause after a response: short after a change (`has_news`), then growing.

        `is_cheap`: the backend supports long polls or is local, so that frequent polls cost little. `expected_s`:
        the next change is expected after this time, so the pause is not shorter.
        """
        max_s = min(_BUSY_PAUSE_S, self._policy.pause_s) if is_cheap else self._policy.pause_s
        min_s = max(FIRST_PAUSE_S, expected_s) if is_cheap else _BUSY_PAUSE_S
        self._pause_s = min(max_s, min_s if has_news else max(self._pause_s * _GROWTH, min_s))
        return self._pause_s

    def pause_after(self, error: PaiError, *, may_pass: bool) -> float | None:
        """Returns the pause after an error; None if it is permanent or has lasted too long."""
        self.trouble = error
        now = self._policy.schedule.now()
        if self._failing_since is None:
            self._failing_since = now
        self._attempts += 1
        failing_s = now - self._failing_since
        unreadable = isinstance(error, InvalidResponseError) and error.is_from_service
        patience_s = min(self._policy.patience_s, _UNREADABLE_PATIENCE_S if unreadable else float("inf"))
        if not may_pass or failing_s > patience_s:
            return None
        pause_s = self._policy.retry.pause_s(self._attempts, getattr(error, "retry_after_s", None))
        if isinstance(error, AuthenticationError) and error.is_key_expired and not self._has_reported_key:
            self._has_reported_key = True
            logger.warning("following %s: %s; waiting for a new key", self._resource, error)
        logger.info("following %s: %s; trying again in %.1f s", self._resource, error, pause_s)
        # A warning only for errors that last more than two seconds, and then once a minute.
        was_reported = self._reported_at is not None and now - self._reported_at < _REPORT_INTERVAL_S
        if failing_s + pause_s >= _REPORT_AFTER_S and not was_reported:
            self._reported_at = now
            self._policy.retry.warnings.warn(error, remaining_s=self._policy.patience_s - failing_s)
        return pause_s


class EndCheck:
    """Decides whether a job has finished. An unknown final status must be stable for `FollowPolicy.quiet_s`."""

    def __init__(self, policy: FollowPolicy) -> None:
        self._policy = policy
        self._unknown_end: tuple[str, float] | None = None  # an unknown final status, and since when

    def has_ended(self, record: JobRecord) -> bool:
        """Returns whether the job has finished, by its latest snapshot."""
        if not record.status.is_unknown_end:
            self._unknown_end = None
            return record.status.is_terminal
        now = self._policy.schedule.now()
        if self._unknown_end is None or self._unknown_end[0] != record.status:
            self._unknown_end = record.status, now
        return now - self._unknown_end[1] >= self._policy.quiet_s


def may_appear_later(error: BaseException) -> bool:
    """Returns whether the error may mean that the instance has not started to write its log."""
    return isinstance(error, InvalidRequestError | NotFoundError)
