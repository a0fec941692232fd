"""The memory that all requests for rows share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pai_sdk.service.tables.table_errors import TableError

__all__ = ["MemoryBudget"]

_LONGEST_WAIT_S = 30.0  # shorter than the timeouts of clients


class MemoryBudget:
    """Bytes that are taken before memory is used. Safe for many threads.

    A thread that has taken some must give them back before it takes more: two that wait for each other would wait
    until both are refused.

    Args:
        total_bytes: of all requests together.
        longest_wait_s: a request that waits longer is refused; its client may try again.

    Example:
        >>> budget = MemoryBudget(1000)
        >>> with budget.taken(800):
        ...     budget.free_bytes
        200
    """

    def __init__(self, total_bytes: int, *, longest_wait_s: float = _LONGEST_WAIT_S) -> None:
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes
        self._longest_wait_s = longest_wait_s
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, size_bytes: int) -> Iterator[None]:
        """Hold some bytes.

        Raises:
            TableError: they are more than the whole budget, or were not free in time.
        """
        if size_bytes > self.total_bytes:
            text = f"The rows need {size_bytes:,} bytes of memory at once; {self.total_bytes:,} are allowed."
            raise TableError(413, "RequestTooLarge", f"{text} Send smaller record batches.")
        with self._changed:
            if not self._changed.wait_for(lambda: self.free_bytes >= size_bytes, self._longest_wait_s):
                text = "Other requests use the memory that the service has for rows; try again later."
                raise TableError(429, "FlowExceeded", text)
            self.free_bytes -= size_bytes
        try:
            yield
        finally:
            with self._changed:
                self.free_bytes += size_bytes
                self._changed.notify_all()
