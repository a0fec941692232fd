"""Where the lines of a growing log begin: any page of it is a seek and a short read, however long it is."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from pathlib import Path
from typing import BinaryIO

__all__ = ["LogIndex"]

_BLOCK_BYTES = 64 * 1024


class LogIndex:
    """The lines of one log. The file may grow while it is read, and nothing else.

    The index counts line ends for each block of the file; it is made by reading, so nothing needs to be kept.
    While the log is `open`, only lines that have ended count; afterwards what follows the last line end does too.

    Example:
        >>> LogIndex(Path("/srv/jobs/train1/logs/train1-master-0.log")).count(is_open=True)
        0
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        # How many line ends there are up to the end of each block; the last block may be a part of one.
        self._ends = array("Q")
        self._size_bytes = 0
        self._ends_with_newline = True

    def count(self, *, is_open: bool) -> int:
        """How many lines there are."""
        with self._lock:
            self._catch_up()
            return self._count(is_open)

    def lines(self, start: int, end: int, *, is_open: bool) -> list[str]:
        """Lines `start` to `end - 1`, without their line ends; fewer where the log ends earlier."""
        with self._lock:
            self._catch_up()
            end = min(end, self._count(is_open))
            if start >= end:
                return []
            with self._path.open("rb") as file:
                first = self._offset(file, start)
                last = self._offset(file, end)
                file.seek(first)
                content = file.read(last - first)
        return content.removesuffix(b"\n").decode("utf-8", errors="replace").split("\n")

    def line_at(self, offset: int) -> int:
        """The number of the line that the byte at `offset` belongs to, or follows at the end of the log."""
        with self._lock:
            self._catch_up()
            offset = min(offset, self._size_bytes)
            block = offset // _BLOCK_BYTES
            before = self._ends[block - 1] if block else 0
            if block >= len(self._ends):
                return before
            with self._path.open("rb") as file:
                file.seek(block * _BLOCK_BYTES)
                return before + file.read(offset - block * _BLOCK_BYTES).count(b"\n")

    def _count(self, is_open: bool) -> int:
        ended = self._ends[-1] if self._ends else 0
        return ended if is_open or self._ends_with_newline else ended + 1

    def _catch_up(self) -> None:
        try:
            size_bytes = self._path.stat().st_size
        except FileNotFoundError:
            return
        if size_bytes == self._size_bytes:
            return
        with self._path.open("rb") as file:
            whole = self._size_bytes // _BLOCK_BYTES
            del self._ends[whole:]
            file.seek(whole * _BLOCK_BYTES)
            ended = self._ends[-1] if self._ends else 0
            self._size_bytes = whole * _BLOCK_BYTES
            while block := file.read(_BLOCK_BYTES):
                ended += block.count(b"\n")
                self._ends.append(ended)
                self._size_bytes += len(block)
                self._ends_with_newline = block.endswith(b"\n")
                if len(block) < _BLOCK_BYTES:
                    break  # what is appended in this moment is for the next time, or blocks would shift

    def _offset(self, file: BinaryIO, line: int) -> int:
        """Where a line begins; the line after the last one begins at the end of the file."""
        if line == 0:
            return 0
        block = bisect_left(self._ends, line)
        if block == len(self._ends):
            return self._size_bytes
        missing = line - (self._ends[block - 1] if block else 0)
        file.seek(block * _BLOCK_BYTES)
        content = file.read(_BLOCK_BYTES)
        at = -1
        for _ in range(missing):
            at = content.index(b"\n", at + 1)
        return block * _BLOCK_BYTES + at + 1
