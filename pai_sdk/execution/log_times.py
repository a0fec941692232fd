"""When a log had which size, so that the time of a line is known though none is written in it.

Noted as lines of `<seconds since 1970> <bytes>`, by the process that watches the instance. Standard library only.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = ["LogTimes", "open_plain"]

_END_OF_TIME_S = 1e11  # more than a date can hold is none


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
                    if 0 <= at < _END_OF_TIME_S:
                        noted.append((at, size))
        except OSError:
            return cls()
        return cls(tuple(time for time, _ in noted), tuple(size for _, size in noted))

    def of_byte(self, offset: int) -> float | None:
        """When the byte there was first seen to be written; None where nothing is noted of it."""
        place = bisect_left(self.sizes, offset + 1)
        return self.times[place] if place < len(self.times) else None


def open_plain(path: Path) -> BinaryIO:
    """Open a file in a folder that others can write to: a link leads nowhere, and a pipe blocks no reader.

    Raises:
        OSError: there is none, or it is something else than a file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a file")
    return os.fdopen(descriptor, "rb")
