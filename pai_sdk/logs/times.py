"""The times of a log's lines: its sizes at some times are noted beside it, since lines have no times.

The supervisor of an instance appends `<seconds since 1970> <bytes>` when the log has grown. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path

from pai_sdk.base.files import open_plain

__all__ = ["END_OF_TIME_S", "LogTimes"]

END_OF_TIME_S = 1e11
"""A number of seconds that is too large to be a time."""


@dataclass(frozen=True)
class LogTimes:
    """The notes of one log, in their order.

    Attributes:
        times: seconds since 1970, UTC.
        sizes: the bytes that the log had then.

    Example:
        >>> LogTimes((10.0, 11.0), (0, 500)).of_byte(499)
        11.0
    """

    times: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()

    @classmethod
    def read(cls, path: Path) -> LogTimes:
        """The notes in a file; none if there is no file."""
        noted: list[tuple[float, int]] = []
        try:
            with open_plain(path) as file:
                for line in file:
                    time_text, _, size_text = line.partition(b" ")
                    try:
                        at, size = float(time_text), int(size_text)
                    except ValueError:  # incomplete after a full disk
                        continue
                    if 0 <= at < END_OF_TIME_S:
                        noted.append((at, size))
        except OSError:
            return cls()
        return cls(tuple(time for time, _ in noted), tuple(size for _, size in noted))

    def of_byte(self, offset: int) -> float | None:
        """The time at which the byte was first seen in the log; None if it is not known."""
        place = bisect_left(self.sizes, offset + 1)
        return self.times[place] if place < len(self.times) else None

    def size_before(self, seconds: float) -> int:
        """The size of the log at the last note before a time: bytes from there on were written then or later."""
        place = bisect_left(self.times, seconds)
        return self.sizes[place - 1] if place else 0

    def size_after(self, seconds: float) -> int | None:
        """The size of the log at the first note after a time: bytes from there on were written later."""
        place = bisect_right(self.times, seconds)
        return self.sizes[place] if place < len(self.times) else None
