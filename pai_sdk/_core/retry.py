"""The one retry policy: a value that is passed in."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from pai_sdk._core.names.hints import wrong_value
from pai_sdk.errors import InvalidInputError

if TYPE_CHECKING:
    import tenacity

T = TypeVar("T")

logger = logging.getLogger(__name__)

_MAX_PAUSE_S = 86_400.0
# Retries that take longer are reported by a warning.
_WARN_AFTER_S = 2.0
_WARNING_INTERVAL_S = 10.0

_is_single: ContextVar[bool] = ContextVar("_is_single", default=False)


class RetryWarnings:
    """Logs that a call is being retried, at most every few seconds for all threads that share the object."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = 0.0

    def warn(self, error: BaseException, *, remaining_s: float, remaining_attempts: int | None = None) -> None:
        """Logs a warning, unless the last one was a moment ago; None means an unlimited number of attempts."""
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + _WARNING_INTERVAL_S
            often = ""
            if remaining_attempts is not None:
                often = f" {remaining_attempts} more time{'s' if remaining_attempts != 1 else ''} at most,"
            logger.warning("%s; trying again,%s for up to %.0f s", error, often, remaining_s)


@dataclass(frozen=True)
class RetryPolicy:
    """Number, duration and pauses of the attempts of a failing call.

    The pause doubles from `first_pause_s` to `longest_pause_s` with full jitter, unless the failed response
    itself has a pause (`Retry-After`, `x-acs-retry-after`), which wins. The deadline counts from the first
    attempt. The last attempt is made when it is reached, unless the server requested a pause beyond it.

    Attributes:
        deadline_s: seconds after which no further attempt is made.
        max_attempts: attempts in all, the first included; None for as many as the deadline allows.
        first_pause_s: upper bound of the first pause, in seconds.
        longest_pause_s: upper bound of any pause, in seconds, also of one that the server requests.
        sleep: replaced by tests with a fake clock.
        clock: replaced by tests; must be monotonic.
        warnings: logs that calls are being retried; one for all calls with this policy, and with copies of it.

    Raises:
        InvalidInputError: a value is not a number, or too small.

    Example:
        >>> RetryPolicy(max_attempts=3).call(lambda: 7, is_transient=lambda error: True)
        7
    """

    deadline_s: float = 60.0
    max_attempts: int | None = None
    first_pause_s: float = 0.2
    longest_pause_s: float = 10.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    warnings: RetryWarnings = field(default_factory=RetryWarnings, repr=False, compare=False)

    def __post_init__(self) -> None:
        limits = {"deadline_s": math.inf, "first_pause_s": _MAX_PAUSE_S, "longest_pause_s": _MAX_PAUSE_S}
        problems = [
            wrong_value(name, value, "a number of seconds (minimum 0)")
            for name, limit in limits.items()
            if not isinstance(value := getattr(self, name), int | float) or not 0 <= value <= limit
        ]
        if self.max_attempts is not None and (not isinstance(self.max_attempts, int) or self.max_attempts < 1):
            expected = "an integer (minimum 1), or None for any number"
            problems.append(wrong_value("max_attempts", self.max_attempts, expected))
        if problems:
            raise InvalidInputError(problems)

    def pause_s(self, attempt: int, retry_after_s: float | None = None) -> float:
        """Seconds to wait after the attempt of that number (the first is 1)."""
        if retry_after_s is not None:
            return min(max(0.0, retry_after_s), self.longest_pause_s)  # in this order, NaN becomes 0
        bound = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(attempt - 1, 30))
        # Full jitter, but never 0: without a pause, the retries would flood the server.
        return bound * (0.25 + 0.75 * random.random())  # noqa: S311 - jitter is no secret

    def call(
        self,
        function: Callable[[], T],
        *,
        is_transient: Callable[[BaseException], bool],
        on_retry: Callable[[int, BaseException, float], None] | None = None,
    ) -> T:
        """Call `function` until it returns, fails permanently, or the policy is exhausted.

        Args:
            function: the call; it must be safe to repeat.
            is_transient: whether an error is worth another attempt. An attribute `retry_after_s` of the error is
                the pause that the server requested.
            on_retry: called with (attempt, error, pause in seconds) before each pause.

        Raises:
            Exception: the last error of `function`, unchanged.
        """
        if _is_single.get():
            return _attempt_once(function, is_transient, on_retry)
        start = self.clock()
        try:
            # Most calls succeed at once, and tenacity takes longer than a small request.
            return function()
        except Exception as error:
            attempts = _Attempts(self, function, on_retry, start, self.deadline_s, error)
        # Imported late: it takes as long as the rest of this library.
        import tenacity

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_transient),
            wait=attempts.pause,
            stop=attempts.is_exhausted,
            before_sleep=attempts.report,
            sleep=self.sleep,
            reraise=True,
        )(attempts.attempt)


@dataclass
class _Attempts(Generic[T]):
    """The attempts of a call whose first one has failed, for tenacity."""

    policy: RetryPolicy
    function: Callable[[], T]
    on_retry: Callable[[int, BaseException, float], None] | None
    started_at: float  # by the policy's clock
    remaining_s: float
    first_error: Exception | None  # None once `attempt` has raised it

    def attempt(self) -> T:
        if self.first_error is not None:
            error, self.first_error = self.first_error, None
            raise error
        return self.function()

    def pause(self, state: tenacity.RetryCallState) -> float:
        # A pause that was interrupted, by a stopped transfer or by a test, counts in full.
        self.remaining_s = self.policy.deadline_s - max(self.policy.clock() - self.started_at, state.idle_for)
        requested_s = getattr(_error_of(state), "retry_after_s", None)
        pause_s = self.policy.pause_s(state.attempt_number, requested_s)
        return pause_s if requested_s is not None else min(pause_s, max(self.remaining_s, 0.0))

    def is_exhausted(self, state: tenacity.RetryCallState) -> bool:
        max_attempts = self.policy.max_attempts
        is_late = self.remaining_s <= 0 or state.upcoming_sleep > self.remaining_s
        return is_late or (max_attempts is not None and state.attempt_number >= max_attempts)

    def report(self, state: tenacity.RetryCallState) -> None:
        error, max_attempts = _error_of(state), self.policy.max_attempts
        if error is None:
            return
        if self.policy.deadline_s - self.remaining_s + state.upcoming_sleep >= _WARN_AFTER_S:
            more = None if max_attempts is None else max_attempts - state.attempt_number
            self.policy.warnings.warn(error, remaining_s=self.remaining_s, remaining_attempts=more)
        if self.on_retry is not None:
            self.on_retry(state.attempt_number, error, state.upcoming_sleep)


@contextmanager
def single_attempt() -> Iterator[None]:
    """Limits every retried call of this thread to one attempt without sleeping."""
    # For callers that schedule the next attempt themselves, such as the threads that follow logs: a pause inside a
    # call would block a thread that other jobs need.
    before = _is_single.set(True)
    try:
        yield
    finally:
        _is_single.reset(before)


def _attempt_once(
    function: Callable[[], T],
    is_transient: Callable[[BaseException], bool],
    on_retry: Callable[[int, BaseException, float], None] | None,
) -> T:
    try:
        return function()
    except Exception as error:
        # The caller makes the next attempt. Preparation for it, such as restarting a service, is done here.
        if on_retry is not None and is_transient(error):
            on_retry(1, error, 0.0)
        raise


def _error_of(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None
