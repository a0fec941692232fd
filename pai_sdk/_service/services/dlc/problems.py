"""Refusals in the form of DLC."""

from __future__ import annotations

from collections.abc import Iterable

from pai_sdk._service.services.jobs.reading import join_problems
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk.errors import Problem


def refuse_problems(problems: Iterable[Problem]) -> None:
    """Refuses a request with all its problems."""
    if texts := [*map(str, problems)]:
        raise invalid_parameter(join_problems(texts))


def not_supported(reason: str) -> WireError:
    """Returns the refusal of an action that has no meaning here."""
    return WireError(400, "NotSupported", reason)


def missing_error(kind: str, name: str) -> WireError:
    """Returns the refusal of a request for something that does not exist."""
    return WireError(404, "NotFound", f"There is no {kind} {name[:100]!r} here.")
