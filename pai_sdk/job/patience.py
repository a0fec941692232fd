"""How patiently a job is followed: the pauses between questions, and which faults may pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from pai_sdk.errors import (
    AuthenticationError,
    BadAnswerError,
    ConnectionFailedError,
    CredentialsRenewalError,
    PaiError,
    RepeatedRequestError,
    ServiceFaultError,
    ThrottledError,
)
from pai_sdk.job.workers import Schedule, shared_workers
from pai_sdk.retry import RetryPolicy

__all__ = ["FIRST_PAUSE_S", "Asking", "FollowPolicy", "is_key_too_old", "may_pass"]

FIRST_PAUSE_S = 0.1
_PASSING_FAULTS = (
    ConnectionFailedError,
    BadAnswerError,
    ThrottledError,
    ServiceFaultError,
    RepeatedRequestError,
    CredentialsRenewalError,
)
_FOR_GOOD = (501, 505)  # not implemented; HTTP version not supported
# The service's own answer that we cannot read stays as it is; one of a gateway passes with the gateway's fault.
_UNREADABLE_PATIENCE_S = 20.0


@dataclass(frozen=True)
class FollowPolicy:
    """How patiently a log is followed.

    Attributes:
        hold_s: how long a backend may hold an answer back for news, in seconds.
        pause_s: the longest pause between two questions where answers are not held back.
        quiet_s: a job that has ended, on a backend that does not say when a log is complete, has said all it had
            to say when nothing came for so long.
        patience_s: how long a log may stay out of reach before following gives up; progress starts it anew.
        retry: the pauses between attempts while the log is out of reach.
        schedule: the threads that ask, and their clock; those of this process by default. Tests bring their own.
    """

    hold_s: float = 10.0
    pause_s: float = 1.0
    quiet_s: float = 3.0
    patience_s: float = 600.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    schedule: Schedule = field(default_factory=shared_workers)


class Asking:
    """One question that is asked again and again, and how that goes.

    Attributes:
        trouble: why there is no answer, while there is none.
    """

    def __init__(self, policy: FollowPolicy) -> None:
        self.trouble: BaseException | None = None
        self._policy = policy
        self._first_pause_s = min(FIRST_PAUSE_S, policy.pause_s)
        self._pause_s = self._first_pause_s
        self._out_of_reach_since: float | None = None
        self._attempts = 0

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
        self.trouble, self._out_of_reach_since, self._attempts = None, None, 0

    def pause_s(self, *, is_news: bool) -> float:
        """Seconds until it is asked again after an answer: few while there is news, then more and more."""
        self._pause_s = self._first_pause_s if is_news else min(self._policy.pause_s, self._pause_s * 1.5)
        return self._pause_s

    def pause_after(self, fault: PaiError) -> float | None:
        """Seconds until it is asked again after a fault; None where there is no sense in that."""
        self.trouble = fault
        now = self._policy.schedule.now()
        if self._out_of_reach_since is None:
            self._out_of_reach_since = now
        self._attempts += 1
        unreadable = isinstance(fault, BadAnswerError) and fault.is_from_service
        patience_s = min(self._policy.patience_s, _UNREADABLE_PATIENCE_S if unreadable else float("inf"))
        if not may_pass(fault) or now - self._out_of_reach_since > patience_s:
            return None
        return self._policy.retry.pause_s(self._attempts, getattr(fault, "retry_after_s", None))


def is_key_too_old(fault: BaseException) -> bool:
    """Whether a new key would help: it is read anew for each request, and may be renewed a little late."""
    return isinstance(fault, AuthenticationError) and fault.code.endswith("Expired")


def may_pass(fault: BaseException) -> bool:
    """Whether the same question may be answered a little later."""
    if not isinstance(fault, PaiError) or getattr(fault, "status_code", None) in _FOR_GOOD:
        return False
    return is_key_too_old(fault) or isinstance(fault, _PASSING_FAULTS)
