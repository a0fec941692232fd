"""Errors of requests for tables, with MaxCompute's codes."""

from __future__ import annotations


class TableError(Exception):
    """Raised when a request is refused, with MaxCompute's error code and a message for the client."""

    def __init__(self, status_code: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.code = code
        self.message = message


def no_such_table(project: str, name: str) -> TableError:
    """Returns the error for a table that does not exist, or that its reader may not see."""
    return TableError(404, "NoSuchTable", f"Table not found - {project}.{name}")
