"""A mistake in a body, by its path on the wire, with the code of the error that a service returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pai_sdk.errors import Problem

__all__ = ["INVALID", "BodyProblem", "choice_problem", "path_problem"]

INVALID: Final = "InvalidParameter"


@dataclass(frozen=True)
class BodyProblem(Problem):
    """A mistake in a body. `where` is a path such as `JobSpecs[0].Image`; the texts of the cloud are kept.

    Attributes:
        code: the code of the error of a service.
    """

    code: str = INVALID


def choice_problem(where: str, value: str | None, choices: Iterable[str]) -> list[BodyProblem]:
    """Returns the problem of a value that is none of a few; none if it is not set."""
    names = tuple(choices)
    if value is None or value in names:
        return []
    return [BodyProblem(where, f"unknown value {value!r}", f"available: {', '.join(names)}")]


def path_problem(where: str, path: str | None) -> list[BodyProblem]:
    """Returns the problem of a path in a container that is not absolute; none if it is not set."""
    if path is None or (path.startswith("/") and path.strip("/.") and ".." not in path.split("/")):
        return []
    return [BodyProblem(where, f"{path!r} is not an absolute path", "such as '/mnt/data'")]
