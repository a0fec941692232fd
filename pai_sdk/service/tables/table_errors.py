"""Errors of requests for tables, with MaxCompute's codes."""

from __future__ import annotations

__all__ = ["TableError"]


class TableError(Exception):
    """A request that is refused.

    Args:
        status_code: of the response.
        code: MaxCompute's.
        message: what is wrong.
    """

    def __init__(self, status_code: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.code = code
        self.message = message
