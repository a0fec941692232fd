"""Checks of the arguments with which callers search for jobs and wait for them, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from pai_sdk.base.hints import is_of_type, wrong_type
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.status import KNOWN_STATUSES

_LONGEST_WAIT_S = 1e9  # a lifetime; the operating system cannot count much further


def check_job_id(job_id: object) -> None:
    """See that it can be an id.

    Raises:
        InvalidInputError: it cannot.
    """
    if not isinstance(job_id, str) or not job_id.strip():
        what = "is empty" if isinstance(job_id, str) else is_of_type(job_id)
        raise InvalidInputError([Problem("job_id", what, "give a job's id; `pai-sdk ps` shows them")])


def check_filters(status: object, name: object, labels: object) -> None:
    """See that jobs can be looked for by them; each may be None.

    Raises:
        InvalidInputError: with all that is wrong.
    """
    problems = []
    if status is not None and status not in KNOWN_STATUSES:
        # A service would find no job, and give no reason.
        problems.append(Problem("status", f"{status!r} is not a status", f"there are {', '.join(KNOWN_STATUSES)}"))
    if name is not None and not isinstance(name, str):
        problems.append(wrong_type("name", name, "give a text"))
    if labels is not None and not _are_labels(labels):
        problems.append(_NO_LABELS)
    if problems:
        raise InvalidInputError(problems)


def check_labels(labels: object) -> None:
    """See that they are labels.

    Raises:
        InvalidInputError: they are not texts by name.
    """
    if not _are_labels(labels):
        raise InvalidInputError([_NO_LABELS])


def check_one_of(name: str, value: object, known: Sequence[str]) -> None:
    """See that a parameter is one of a few texts.

    Raises:
        InvalidInputError: it is not.
    """
    if value not in known:
        raise InvalidInputError([Problem(name, f"{value!r} is not known", f"there is: {', '.join(known)}")])


def seconds_or_none(timeout: object, name: str = "timeout", *, unit: str = "seconds") -> float | None:
    """A timeout in seconds.

    Args:
        timeout: the value.
        name: the parameter, for the message.
        unit: what it counts, for the message.

    Raises:
        InvalidInputError: it is no number.

    Example:
        >>> seconds_or_none(60), seconds_or_none(-1), seconds_or_none(None)
        (60.0, 0.0, None)
    """
    if timeout is None:
        return None
    # numpy's numbers are Real, too. What is not even equal to itself is not a number.
    if not isinstance(timeout, Real) or timeout != timeout:
        raise InvalidInputError([Problem(name, f"{timeout!r} is not a number of {unit}", "such as 3600")])
    seconds: Any = timeout
    return float(min(max(seconds, 0), _LONGEST_WAIT_S))


_NO_LABELS = Problem("labels", "must be a dict of texts", "such as {'team': 'vision'}")


def _are_labels(labels: object) -> bool:
    return isinstance(labels, Mapping) and all(isinstance(text, str) for pair in labels.items() for text in pair)
