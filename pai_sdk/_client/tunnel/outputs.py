"""The outputs of one program on many ranks, as lines with the rank in front."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_GROUPED_S = 1.0
_MAX_GROUPED_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 16


class RankedOutput:
    """Lines with their ranks. Those of the first second are in the order of the ranks, later ones as they arrive.

    So a short command is read rank by rank, and a long one live. Thread-safe; `_lock` guards all fields.
    """

    def __init__(
        self, num_ranks: int, stdout: Callable[[bytes], object], stderr: Callable[[bytes], object]
    ) -> None:
        self._sinks = stdout, stderr
        self._width = len(str(num_ranks - 1))
        self._lock = threading.Lock()
        self._partial: dict[tuple[int, bool], bytes] = {}
        self._grouped: dict[int, list[tuple[bool, bytes]]] | None = {}
        self._grouped_bytes = 0
        self._grouped_until = time.monotonic() + _GROUPED_S

    def sink(self, rank: int, *, is_error: bool) -> Callable[[bytes], None]:
        """Returns a function that writes the output of a rank."""

        def write(data: bytes) -> None:
            with self._lock:
                self._add(rank, is_error, data)

        return write

    def release(self) -> None:
        """Writes the lines of the first second, once it has passed."""
        with self._lock:
            if time.monotonic() >= self._grouped_until:
                self._write_grouped()

    def close(self) -> None:
        """Writes what is left, also lines without an end."""
        with self._lock:
            for (rank, is_error), data in sorted(self._partial.items()):
                if data:
                    self._write(rank, is_error, data)
            self._partial.clear()
            self._write_grouped()

    def _add(self, rank: int, is_error: bool, data: bytes) -> None:
        *lines, last = (self._partial.pop((rank, is_error), b"") + data).split(b"\n")
        if len(last) > _MAX_LINE_BYTES:
            lines, last = [*lines, last], b""
        self._partial[rank, is_error] = last
        for line in lines:
            self._write(rank, is_error, line)

    def _write(self, rank: int, is_error: bool, line: bytes) -> None:
        text = f"[{rank:>{self._width}}] ".encode() + line + b"\n"
        if self._grouped is None:
            self._sinks[is_error](text)
            return
        self._grouped.setdefault(rank, []).append((is_error, text))
        self._grouped_bytes += len(text)
        if self._grouped_bytes > _MAX_GROUPED_BYTES or time.monotonic() >= self._grouped_until:
            self._write_grouped()

    def _write_grouped(self) -> None:
        grouped, self._grouped = self._grouped or {}, None
        for rank in sorted(grouped):
            for is_error, text in grouped[rank]:
                self._sinks[is_error](text)
