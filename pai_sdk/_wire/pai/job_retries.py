"""The retries of a job: how many, and after which outcomes; stored as tags in the settings of its request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pai_sdk._core import reasons
from pai_sdk._core.names.hints import nearest, wrong_type, wrong_value
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._wire.pai.request import TrainingJobRequest

INTERRUPTIONS = (
    reasons.REASON_PREEMPTED,
    reasons.REASON_NODE_LOST,
    reasons.REASON_ENGINE_RESTARTED,
    reasons.REASON_SUPERVISOR_LOST,
)
"""The reason codes of jobs that were interrupted from outside: the default."""

RETRYABLE_REASONS = (
    *INTERRUPTIONS,
    reasons.REASON_STOPPED_FROM_OUTSIDE,
    reasons.REASON_KILLED_BY_SIGNAL,
    reasons.REASON_OUT_OF_MEMORY,
    reasons.REASON_DISK_FULL,
    reasons.REASON_NON_ZERO_EXIT,
    reasons.REASON_REQUIREMENTS_FAILED,
)
"""All reason codes after which another attempt is possible; a stop and a time limit are final."""

_PREFIX = "pai-sdk."
_MAX_RETRIES, _RETRY_ON = f"{_PREFIX}max_retries", f"{_PREFIX}retry_on"
_RETRY_LIMIT = 1000

RETRY_TAGS = (_MAX_RETRIES, _RETRY_ON)
"""The keys of the tags."""

MAX_WAIT_S = 600.0
"""The longest pause between two attempts, in seconds."""


@dataclass(frozen=True)
class JobRetries:
    """How often a job is started again, and after which outcomes."""

    num_retries: int = 0  # the maximum number of attempts after the first one
    on: tuple[str, ...] = INTERRUPTIONS  # reason codes
    first_wait_s: float = 5.0  # between the first two attempts

    @classmethod
    def checked(cls, max_retries: int | None, retry_on: Sequence[str] | None) -> JobRetries:
        """Checks the parameters of a job; reports all problems at once."""
        limit = max_retries or 0
        problems = []
        if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= _RETRY_LIMIT:
            problems.append(wrong_value("max_retries", max_retries, f"an integer from 0 to {_RETRY_LIMIT}"))
        if retry_on is not None and not limit and not problems:
            problems.append(Problem("retry_on", "has no effect without max_retries", "such as max_retries=3"))
        if isinstance(retry_on, str) or (retry_on is not None and not retry_on):
            problems.append(wrong_type("retry_on", retry_on, "a list of reason codes", "such as ['NodeLost']"))
            retry_on = None
        for number, code in enumerate(retry_on or ()):
            if code not in RETRYABLE_REASONS:
                near = nearest(str(code), RETRYABLE_REASONS)
                hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(RETRYABLE_REASONS)}"
                problems.append(Problem(f"retry_on[{number}]", f"{code!r} cannot be retried", hint))
        if problems:
            raise InvalidInputError(problems)
        return cls(limit, INTERRUPTIONS if retry_on is None else tuple(dict.fromkeys(retry_on)))

    def tags(self) -> dict[str, str]:
        """Returns the tags of `settings`; none for a job without retries."""
        return {_MAX_RETRIES: str(self.num_retries), _RETRY_ON: ",".join(self.on)} if self.num_retries else {}

    @classmethod
    def of_tags(cls, tags: Mapping[str, str] | None) -> JobRetries:
        """Parses the tags of `settings`."""
        text, on = (tags or {}).get(_MAX_RETRIES), (tags or {}).get(_RETRY_ON)
        if text is None and on is None:
            return cls()
        if text is not None and not text.isdecimal():
            where = f"settings.tags[{_MAX_RETRIES!r}]"
            raise InvalidInputError([wrong_value(where, text, "an integer")])
        return cls.checked(int(text or 0), None if on is None else [code.strip() for code in on.split(",")])

    @classmethod
    def of(cls, request: TrainingJobRequest) -> JobRetries:
        """Returns the retries of a job."""
        return cls.of_tags(request.settings.tags if request.settings else None)

    def allow(self, attempt: int, reason_code: str | None) -> bool:
        """Returns True if another attempt follows this one, which counts from 1, after such an outcome."""
        # Its rule has its own maximum number of restarts.
        if reason_code == reasons.REASON_RESTARTED_BY_RULE:
            return True
        return attempt <= self.num_retries and reason_code in self.on

    def wait_s(self, attempt: int) -> float:
        """Returns the pause between this attempt and the next one, in seconds; it doubles each time."""
        return min(MAX_WAIT_S, self.first_wait_s * 2.0 ** min(attempt - 1, 10))
