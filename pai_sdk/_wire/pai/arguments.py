"""Checks the arguments of searches for jobs and of waits, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from pai_sdk._core.names.hints import wrong_type, wrong_value
from pai_sdk._wire.pai.status import STATUSES, canonical_status
from pai_sdk.errors import InvalidInputError, Problem

_MAX_TIMEOUT_S = 1e9  # 30 years; waits of the operating system overflow at a few times that


def check_job_id(job_id: object) -> None:
    """Refuses a job id that is no string, or empty."""
    if not isinstance(job_id, str) or not job_id.strip():
        raise InvalidInputError([wrong_type("job_id", job_id, "the id of a job", "`pai-sdk ps` lists them")])


def check_filters(status: object, name: object, labels: object) -> str | None:
    """Checks the filters of a list of jobs, which can be None; returns the status as the service spells it."""
    problems = []
    spelled = canonical_status(status) if isinstance(status, str) else None
    if status is not None and spelled is None:
        # A service would find no job, and give no reason.
        problems.append(Problem("status", f"{status!r} is not a status", f"available: {', '.join(STATUSES)}"))
    if name is not None and not isinstance(name, str):
        problems.append(wrong_type("name", name, "a string"))
    if labels is not None and not _are_labels(labels):
        problems.append(_NO_LABELS)
    if problems:
        raise InvalidInputError(problems)
    return spelled


def check_labels(labels: object) -> None:
    """Refuses labels that are no mapping of strings."""
    if not _are_labels(labels):
        raise InvalidInputError([_NO_LABELS])


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Checks that a parameter is one of a few strings."""
    if value not in choices:
        raise InvalidInputError([Problem(name, f"unknown value {value!r}", f"available: {', '.join(choices)}")])


def seconds_or_none(timeout: object, name: str = "timeout", *, unit: str = "seconds") -> float | None:
    """Returns a timeout in seconds, from 0 to 1e9; `name` and `unit` are for the message of the error."""
    if timeout is None:
        return None
    # numpy's numbers are Real, too. What is not even equal to itself is not a number.
    if not isinstance(timeout, Real) or timeout != timeout:
        raise InvalidInputError([wrong_value(name, timeout, f"a number of {unit}", "such as 3600")])
    seconds: Any = timeout
    return float(min(max(seconds, 0), _MAX_TIMEOUT_S))


_NO_LABELS = Problem("labels", "expected a mapping of strings", "such as {'team': 'vision'}")


def _are_labels(labels: object) -> bool:
    return isinstance(labels, Mapping) and all(isinstance(text, str) for pair in labels.items() for text in pair)
