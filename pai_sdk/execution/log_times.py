"""When a log had which size: this gives the times of its lines, which have none written in them.

Noted as lines of `<seconds since 1970> <bytes>`, by the process that watches the instance. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pai_sdk.base.files import open_plain

__all__ = ["END_OF_TIME_S", "LogTimes"]

END_OF_TIME_S = 1e11
"""A number of seconds that is too large to be a time."""


@dataclass(frozen=True)
class LogTimes:
    """What was noted of one log, in its order.

    Attributes:
        times: seconds since 1970, UTC.
        sizes: how many bytes the log had then.

    Example:
        >>> LogTimes((10.0, 11.0), (0, 500)).of_byte(499)
        11.0
    """

    times: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()

    @classmethod
    def read(cls, path: Path) -> LogTimes:
        """The notes in a file; none where there is no file."""
        noted: list[tuple[float, int]] = []
        try:
            with open_plain(path) as file:
                for line in file:
                    time_text, _, size_text = line.partition(b" ")
                    try:
                        at, size = float(time_text), int(size_text)
                    except ValueError:  # cut off by a full disk
                        continue
                    if 0 <= at < END_OF_TIME_S:
                        noted.append((at, size))
        except OSError:
            return cls()
        return cls(tuple(time for time, _ in noted), tuple(size for _, size in noted))

    def of_lines(self, ends: Iterable[int]) -> list[float | None]:
        """When lines were written, by the bytes at which they end.

        Example:
            >>> LogTimes((10.0, 11.0), (5, 500)).of_lines([5, 9, 600])
            [10.0, 11.0, None]
        """
        return [self.of_byte(end - 1) for end in ends]

    def of_byte(self, offset: int) -> float | None:
        """When the byte there was first seen to be written; None where nothing is noted of it."""
        place = bisect_left(self.sizes, offset + 1)
        return self.times[place] if place < len(self.times) else None
