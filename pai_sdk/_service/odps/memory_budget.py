"""Budget of the memory that all requests for rows share, and what one of them may hold."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pai_sdk._service.odps.table_errors import TableError

_MAX_WAIT_S = 30.0  # shorter than the timeouts of clients


@dataclass(frozen=True)
class RowLimits:
    """The largest contents of a request."""

    content_bytes: int = 2 << 30  # of one block
    batch_bytes: int = 96 << 20  # a record batch of Arrow; the usual block has 64 MiB
    record_bytes: int = 8 << 20  # MaxCompute's limit of a cell


_DEFAULT_LIMITS = RowLimits()


class MemoryBudget:
    """Bytes that are reserved before memory is used. Thread-safe.

    A thread must release its reservation before it makes another one: two threads that wait for each other would
    wait until both are refused.
    """

    def __init__(
        self, total_bytes: int, *, max_wait_s: float = _MAX_WAIT_S, limits: RowLimits = _DEFAULT_LIMITS
    ) -> None:
        self.limits = limits
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes
        self._max_wait_s = max_wait_s
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, size_bytes: int) -> Iterator[None]:
        """Reserves bytes for the block; waits until they are free, or raises 429 for the client to retry."""
        if size_bytes > self.total_bytes:
            text = f"The rows need {size_bytes:,} bytes of memory at once; {self.total_bytes:,} are allowed."
            raise TableError(413, "RequestTooLarge", f"{text} Send smaller record batches.")
        with self._changed:
            if not self._changed.wait_for(lambda: self.free_bytes >= size_bytes, self._max_wait_s):
                text = "Other requests use the memory that the service has for rows; try again later."
                raise TableError(429, "FlowExceeded", text)
            self.free_bytes -= size_bytes
        try:
            yield
        finally:
            with self._changed:
                self.free_bytes += size_bytes
                # All waiters: the freed bytes may suffice for a small request that waits behind a large one.
                self._changed.notify_all()
