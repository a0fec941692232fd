r"""Where the lines of a log end besides its line ends: a progress bar writes `\r` only, and yet has to be seen.

A bar's updates of about a second become one line, cut before the `\r` of the next update. Lines have numbers that
readers rely on, so a cut once made stays: it is written down beside the log. On the wire a line that was cut ends
with `\r`, as what a terminal draws over; other lines never do.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import BinaryIO

__all__ = ["LogCuts", "place_to_cut"]

_LOOKED_AT_BYTES = 64 * 1024
_CUT_EVERY_S = 1.0


class LogCuts:
    """The cuts of one log: offsets at which a line begins that no line end comes before.

    Args:
        path: where they are kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size_bytes = 0
        self.offsets: list[int] = []

    def refresh(self) -> bool:
        """Take note of what others have cut; whether there was something."""
        try:
            if self._path.stat().st_size == self._size_bytes:
                return False
            content = self._path.read_bytes()[self._size_bytes :]
        except FileNotFoundError:
            return False
        had = len(self.offsets)
        for line in content.splitlines(keepends=True):
            # What a full disk or a crash has cut off has not been shown to any reader.
            if not line.endswith(b"\n") or not line[:-1].isdigit() or int(line) <= self.last:
                break
            self.offsets.append(int(line))
            self._size_bytes += len(line)
        return len(self.offsets) > had

    @property
    def last(self) -> int:
        """The last cut; 0 where there is none."""
        return self.offsets[-1] if self.offsets else 0

    def until(self, offset: int) -> int:
        """How many cuts there are up to an offset, itself included."""
        return bisect_right(self.offsets, offset)

    def is_at(self, offset: int) -> bool:
        """Whether there is a cut at an offset."""
        return bool(self.between(offset - 1, offset + 1))

    def between(self, first: int, last: int) -> list[int]:
        """The cuts behind `first` and before `last`."""
        return self.offsets[bisect_right(self.offsets, first) : bisect_right(self.offsets, last - 1)]

    def add(self, offset: int) -> None:
        """Cut there; it is written down before a reader can see it."""
        text = b"%d\n" % offset
        with self._path.open("ab") as file:
            file.truncate(self._size_bytes)
            file.write(text)
        self._size_bytes += len(text)
        self.offsets.append(offset)


def place_to_cut(file: BinaryIO, begin: int, end: int, *, waited_s: float, still_s: float) -> int | None:
    r"""Where to cut what stands behind the last line; None while it is to be left as it is.

    Args:
        file: the log.
        begin: where the unfinished line begins.
        end: how long the log is.
        waited_s: how long it has been unfinished.
        still_s: how long nothing has been added to it.
    """
    if waited_s < _CUT_EVERY_S:
        return None
    looked_from = max(begin, end - _LOOKED_AT_BYTES)
    file.seek(looked_from)
    tail = file.read(end - looked_from)
    if b"\r" not in tail:
        return None
    # A `\r` at the very end may be half of a line end, or goes with the next update.
    visible = tail.rstrip(b"\r")
    cut = len(visible) if still_s >= _CUT_EVERY_S else visible.rfind(b"\r")
    return looked_from + cut if cut > 0 and looked_from + cut > begin else None
