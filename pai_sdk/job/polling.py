"""Polling of jobs and logs: the pauses between requests, and how long failing requests are repeated."""

from __future__ import annotations

from dataclasses import dataclass, field

from pai_sdk.base.retry import RetryPolicy
from pai_sdk.errors import BadAnswerError, InvalidRequestError, NotFoundError, PaiError
from pai_sdk.job.workers import Schedule, shared_workers
from pai_sdk.schemas.record import JobRecord

FIRST_PAUSE_S = 0.1
_BUSY_PAUSE_S = 1.0  # while lines come, from a service that does not hold answers back; the shortest one there
_GROWTH = 1.3  # a pause becomes about a fourth of the time that it has been quiet: 9 requests in 30 s, from 1 s on
_REPORT_AFTER_S = 2.0
_REPORT_AGAIN_S = 60.0
# An unreadable answer of the service itself will not change; one of a gateway passes with the gateway's error.
_UNREADABLE_PATIENCE_S = 20.0


@dataclass(frozen=True)
class FollowPolicy:
    """The times of following a log.

    Attributes:
        hold_s: the longest long poll, in seconds.
        pause_s: the longest pause between two polls of a quiet job or log, without long polls. While lines come,
            a log is polled every second.
        quiet_s: for backends that do not say when a log is complete: after the end of the job, its log is taken
            as complete when no line came for so long.
        failed_quiet_s: the same for a job that failed and whose log does not show why: such lines often come late.
        patience_s: how long a log may be unreachable before following gives up; every answer resets it.
        retry: the pauses between attempts while the log is unreachable.
        schedule: the worker threads and their clock; those of this process by default. Tests bring their own.
    """

    hold_s: float = 10.0
    pause_s: float = 8.0
    quiet_s: float = 5.0
    failed_quiet_s: float = 15.0
    patience_s: float = 600.0
    # One value for all followers, so that they share the limit on its warnings.
    retry: RetryPolicy = RetryPolicy()  # noqa: RUF009 - it is frozen
    schedule: Schedule = field(default_factory=shared_workers)


class PollState:
    """The state of one polled resource: its pauses, and the failures since the last answer.

    Attributes:
        trouble: the last error; None after an answer.
    """

    def __init__(self, policy: FollowPolicy) -> None:
        self.trouble: BaseException | None = None
        self._policy = policy
        self._pause_s = min(FIRST_PAUSE_S, policy.pause_s)
        self._failing_since: float | None = None
        self._attempts = 0
        self._reported_at: float | None = None

    @property
    def waited_s(self) -> float:
        """Seconds since the first of the failures in a row; 0 after an answer."""
        since = self._failing_since
        return 0.0 if since is None else self._policy.schedule.now() - since

    @property
    def left_s(self) -> float:
        """Seconds until polling gives up, if no answer comes."""
        return self._policy.patience_s - self.waited_s

    def answered(self) -> None:
        """Note an answer: the failures before it no longer count."""
        self.trouble, self._failing_since, self._attempts, self._reported_at = None, None, 0, None

    def pause_s(self, *, is_news: bool, is_held: bool) -> float:
        """Seconds until the next poll after an answer: short after news, then growing.

        Args:
            is_news: the answer brought something new.
            is_held: the backend answers long polls, or is on this machine; polling it often is cheap.
        """
        longest = min(_BUSY_PAUSE_S, self._policy.pause_s) if is_held else self._policy.pause_s
        if is_news:
            self._pause_s = min(FIRST_PAUSE_S if is_held else _BUSY_PAUSE_S, longest)
        else:
            least_s = FIRST_PAUSE_S if is_held else _BUSY_PAUSE_S
            self._pause_s = min(longest, max(self._pause_s * _GROWTH, least_s))
        return self._pause_s

    def should_report(self, pause_s: float) -> bool:
        """Whether to report now that there is no answer: not in the first seconds, then once a minute."""
        now = self._policy.schedule.now()
        if self.waited_s + pause_s < _REPORT_AFTER_S:
            return False
        if self._reported_at is not None and now - self._reported_at < _REPORT_AGAIN_S:
            return False
        self._reported_at = now
        return True

    def pause_after(self, fault: PaiError, *, may_pass: bool) -> float | None:
        """Seconds until the next poll after an error; None if it is permanent or lasted too long."""
        self.trouble = fault
        now = self._policy.schedule.now()
        if self._failing_since is None:
            self._failing_since = now
        self._attempts += 1
        unreadable = isinstance(fault, BadAnswerError) and fault.is_from_service
        patience_s = min(self._policy.patience_s, _UNREADABLE_PATIENCE_S if unreadable else float("inf"))
        if not may_pass or now - self._failing_since > patience_s:
            return None
        return self._policy.retry.pause_s(self._attempts, getattr(fault, "retry_after_s", None))


class EndCheck:
    """Whether a job has ended. A final status that is not known must stay the same for a while.

    Args:
        policy: how long, and by which clock.
    """

    def __init__(self, policy: FollowPolicy) -> None:
        self._policy = policy
        self._unknown_end: tuple[str, float] | None = None  # an unknown final status, and since when

    def has_ended(self, record: JobRecord) -> bool:
        """Whether this snapshot, the latest one, shows the end."""
        if not record.status.is_unknown_end:
            self._unknown_end = None
            return record.status.is_terminal
        now = self._policy.schedule.now()
        if self._unknown_end is None or self._unknown_end[0] != record.status:
            self._unknown_end = record.status, now
        return now - self._unknown_end[1] >= self._policy.quiet_s


def may_appear_later(fault: BaseException) -> bool:
    """Whether a log is refused as a service may do before the instance has begun to write it."""
    return isinstance(fault, InvalidRequestError | NotFoundError)
