r"""The cuts of a log: ends of lines without a line end, since a progress bar writes `\r` only and must be shown.

The updates of about a second become one line, which is cut before the `\r` of the next update. Readers rely on
line numbers, so a cut is final: it is stored beside the log before a reader sees it. A line that was cut ends with
`\r` on the wire, because a terminal draws over it; no other line does.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import BinaryIO

from pai_sdk.base.files import append_to

__all__ = ["LogCuts", "place_to_cut"]

_TAIL_BYTES = 64 * 1024
_CUT_EVERY_S = 1.0


class LogCuts:
    """The cuts of one log: the offsets at which a line begins although no line end precedes it.

    Callers hold the lock of the log's file, so that one process at a time adds a cut.

    Args:
        path: the file that stores them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size_bytes = 0
        self._offsets: list[int] = []

    def refresh(self) -> bool:
        """Read the cuts that other readers have made; returns whether there were new ones."""
        try:
            if self._path.stat().st_size == self._size_bytes:
                return False
            content = self._path.read_bytes()[self._size_bytes :]
        except FileNotFoundError:
            return False
        known = len(self._offsets)
        for line in content.splitlines(keepends=True):
            # An incomplete line, after a full disk or a crash, was not shown to any reader.
            if not line.endswith(b"\n") or not line[:-1].isdigit() or int(line) <= self.last:
                break
            self._offsets.append(int(line))
            self._size_bytes += len(line)
        return len(self._offsets) > known

    @property
    def last(self) -> int:
        """The last cut; 0 without any."""
        return self._offsets[-1] if self._offsets else 0

    def count_until(self, offset: int) -> int:
        """The number of cuts up to an offset, including it."""
        return bisect_right(self._offsets, offset)

    def between(self, first: int, last: int) -> list[int]:
        """The cuts after `first` and up to `last`."""
        return self._offsets[self.count_until(first) : self.count_until(last)]

    def add(self, offset: int) -> None:
        """Store a cut."""
        self._size_bytes = append_to(self._path, b"%d\n" % offset, at=self._size_bytes)
        self._offsets.append(offset)


def place_to_cut(file: BinaryIO, begin: int, end: int, *, waited_s: float, still_s: float) -> int | None:
    r"""The offset at which to cut an unfinished line; None if it is not to be cut yet.

    Args:
        file: the log.
        begin: the offset at which the unfinished line begins.
        end: the size of the log.
        waited_s: seconds since the line began.
        still_s: seconds since the log has grown.
    """
    if waited_s < _CUT_EVERY_S:
        return None
    tail_begin = max(begin, end - _TAIL_BYTES)
    file.seek(tail_begin)
    tail = file.read(end - tail_begin)
    if b"\r" not in tail:
        return None
    # A `\r` at the very end may be half of a line end, or belongs to the next update.
    visible = tail.rstrip(b"\r")
    cut = len(visible) if still_s >= _CUT_EVERY_S else visible.rfind(b"\r")
    return tail_begin + cut if cut > 0 and tail_begin + cut > begin else None
