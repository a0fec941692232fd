"""Collects all problems of a job's parameters, so that one error reports all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from pai_sdk._wire.pai.wire import problems_of
from pai_sdk.errors import InvalidInputError, Problem


class Problems:
    """The problems of a job's parameters so far."""

    def __init__(self) -> None:
        self.entries: list[Problem] = []

    def add(self, where: str, message: str, hint: str = "") -> None:
        """Adds a problem."""
        self.entries.append(Problem(where, message, hint))

    @contextmanager
    def under(self, where: str) -> Iterator[None]:
        """Converts validation errors in its block to problems of a parameter."""
        try:
            yield
        except ValidationError as error:
            self.entries += problems_of(error, where)
        except InvalidInputError as error:
            for problem in error.problems:
                self.add(_joined(where, problem.where), problem.what, problem.hint)
        except OSError as error:
            self.add(where, f"{error.filename or ''!s:.200} cannot be read: {error.strerror or error}".lstrip())
        except (TypeError, ValueError) as error:
            self.add(where, str(error))

    def raise_if_any(self) -> None:
        """Raises InvalidInputError with all problems, if there are any."""
        if self.entries:
            raise InvalidInputError(self.entries)


def _joined(where: str, inner: str) -> str:
    if not inner or inner == where or inner.startswith((f"{where}[", f"{where}.", f"{where}/")):
        return inner or where
    return f"{where}: {inner}"
