r"""The cuts of a log: offsets at which a line is split without a line end, since a progress bar writes `\r` only.

The updates of about a second become one line, which is split before the `\r` of the next update. Readers rely on
line numbers, so a cut is final: it is stored beside the log before a reader uses it. A split line ends with `\r`
on the wire, because a terminal draws over it; no other line does.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import BinaryIO

from pai_sdk._core.files import append_to

_TAIL_BYTES = 64 * 1024
_SPLIT_INTERVAL_S = 1.0


class LogCuts:
    """The cuts of one log: the offsets at which a line begins although no line end precedes it.

    Callers hold the lock of the log's file, so that one process at a time adds a cut.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size_bytes = 0  # of the complete lines that were read or written
        self._offsets: list[int] = []

    def refresh(self) -> bool:
        """Reads the cuts that other readers have added; returns whether there were new ones."""
        try:
            if self._path.stat().st_size == self._size_bytes:
                return False
            content = self._path.read_bytes()[self._size_bytes :]
        except FileNotFoundError:
            return False
        old_count = len(self._offsets)
        for line in content.splitlines(keepends=True):
            # An incomplete line, after a full disk or a crash, was never returned by a reader.
            if not line.endswith(b"\n") or not line[:-1].isdigit() or int(line) <= self.last:
                break
            self._offsets.append(int(line))
            self._size_bytes += len(line)
        return len(self._offsets) > old_count

    @property
    def last(self) -> int:
        """Returns the last cut; 0 without any."""
        return self._offsets[-1] if self._offsets else 0

    def count_until(self, offset: int) -> int:
        """Returns the number of cuts up to an offset, including it."""
        return bisect_right(self._offsets, offset)

    def between(self, first: int, last: int) -> list[int]:
        """Returns the cuts after `first` and up to `last`."""
        return self._offsets[self.count_until(first) : self.count_until(last)]

    def add(self, offset: int) -> None:
        """Stores a cut."""
        # Written at the end of the complete lines: this overwrites the rest of an incomplete write.
        self._size_bytes = append_to(self._path, b"%d\n" % offset, at=self._size_bytes)
        self._offsets.append(offset)


def split_offset(file: BinaryIO, start: int, end: int, *, waited_s: float, still_s: float) -> int | None:
    r"""Returns the offset at which to split the unfinished line from `start` to `end`; None if not yet."""
    # `waited_s` counts from the start of the line, `still_s` from the last growth of the log.
    if waited_s < _SPLIT_INTERVAL_S:
        return None
    tail_start = max(start, end - _TAIL_BYTES)
    file.seek(tail_start)
    tail = file.read(end - tail_start)
    if b"\r" not in tail:
        return None
    # A `\r` at the very end is either half of a line end or a part of the next update.
    visible = tail.rstrip(b"\r")
    length = len(visible) if still_s >= _SPLIT_INTERVAL_S else visible.rfind(b"\r")
    return tail_start + length if length > 0 and tail_start + length > start else None
