"""How patiently a job is followed: the pauses between questions, and which faults may pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from pai_sdk.base.retry import RetryPolicy
from pai_sdk.errors import BadAnswerError, InvalidRequestError, NotFoundError, PaiError
from pai_sdk.job.workers import Schedule, shared_workers

__all__ = ["FIRST_PAUSE_S", "Asking", "FollowPolicy", "may_not_be_there_yet"]

FIRST_PAUSE_S = 0.1
_BUSY_PAUSE_S = 1.0  # while lines come, from a service that does not hold answers back
_GROWTH = 1.3  # a pause becomes about a fourth of the time that it has been quiet
_TELL_AFTER_S = 2.0
_TELL_AGAIN_S = 60.0
# The service's own answer that we cannot read stays as it is; one of a gateway passes with the gateway's fault.
_UNREADABLE_PATIENCE_S = 20.0


@dataclass(frozen=True)
class FollowPolicy:
    """How patiently a log is followed.

    Attributes:
        hold_s: how long a backend may hold an answer back for news, in seconds.
        pause_s: the longest pause between two questions about a quiet job, or a quiet log, where answers are not
            held back. While lines come, a log is asked for every second.
        quiet_s: for backends that do not say when a log is complete: after the end of the job, its log is taken
            as complete when no line came for so long.
        failed_quiet_s: the same for a job that failed and whose log does not show why: such lines often come late.
        patience_s: how long a log may stay out of reach before following gives up; progress starts it anew.
        retry: the pauses between attempts while the log is out of reach.
        schedule: the threads that ask, and their clock; those of this process by default. Tests bring their own.
    """

    hold_s: float = 10.0
    pause_s: float = 8.0
    quiet_s: float = 5.0
    failed_quiet_s: float = 15.0
    patience_s: float = 600.0
    # One value for all followers, so that they share the limit on its warnings.
    retry: RetryPolicy = RetryPolicy()  # noqa: RUF009 - it is frozen
    schedule: Schedule = field(default_factory=shared_workers)


class Asking:
    """One question that is asked again and again, and how that goes.

    Attributes:
        trouble: why there is no answer, while there is none.
    """

    def __init__(self, policy: FollowPolicy) -> None:
        self.trouble: BaseException | None = None
        self._policy = policy
        self._pause_s = min(FIRST_PAUSE_S, policy.pause_s)
        self._out_of_reach_since: float | None = None
        self._attempts = 0
        self._told_at: float | None = None

    @property
    def waited_s(self) -> float:
        """Seconds since the first of the faults in a row; 0 where the last attempt was answered."""
        since = self._out_of_reach_since
        return 0.0 if since is None else self._policy.schedule.now() - since

    @property
    def left_s(self) -> float:
        """Seconds until it is given up, if no answer comes."""
        return self._policy.patience_s - self.waited_s

    def answered(self) -> None:
        """There is an answer; patience begins anew."""
        self.trouble, self._out_of_reach_since, self._attempts, self._told_at = None, None, 0, None

    def pause_s(self, *, is_news: bool, is_held: bool) -> float:
        """Seconds until it is asked again after an answer: few while there is news, then more and more.

        Args:
            is_news: the answer brought something new.
            is_held: the backend holds answers back, or is on this machine; asking it often costs little.
        """
        longest = min(_BUSY_PAUSE_S, self._policy.pause_s) if is_held else self._policy.pause_s
        if is_news:
            self._pause_s = min(FIRST_PAUSE_S if is_held else _BUSY_PAUSE_S, longest)
        else:
            self._pause_s = min(longest, self._pause_s * _GROWTH)
        return self._pause_s

    def is_to_be_told(self, pause_s: float) -> bool:
        """Whether to tell now that there is no answer: not in the first seconds, then once a minute."""
        now = self._policy.schedule.now()
        if self.waited_s + pause_s < _TELL_AFTER_S:
            return False
        if self._told_at is not None and now - self._told_at < _TELL_AGAIN_S:
            return False
        self._told_at = now
        return True

    def pause_after(self, fault: PaiError, *, may_pass: bool) -> float | None:
        """Seconds until it is asked again after a fault; None where that makes no sense or took too long."""
        self.trouble = fault
        now = self._policy.schedule.now()
        if self._out_of_reach_since is None:
            self._out_of_reach_since = now
        self._attempts += 1
        unreadable = isinstance(fault, BadAnswerError) and fault.is_from_service
        patience_s = min(self._policy.patience_s, _UNREADABLE_PATIENCE_S if unreadable else float("inf"))
        if not may_pass or now - self._out_of_reach_since > patience_s:
            return None
        return self._policy.retry.pause_s(self._attempts, getattr(fault, "retry_after_s", None))


def may_not_be_there_yet(fault: BaseException) -> bool:
    """Whether a log is refused as a service may do before the instance has begun to write it."""
    return isinstance(fault, InvalidRequestError | NotFoundError)
