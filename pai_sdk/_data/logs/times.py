"""The times of a log's lines: a file beside the log records its sizes at some times, since lines have no times.

The supervisor of an instance appends `<seconds since 1970> <bytes>` when the log has grown. Standard library only.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pai_sdk._core.files import open_plain

_MAX_INTERVAL_S = 1.0  # between two records of a log that grows
_TAIL_BYTES = 64 << 10  # some minutes of records
END_OF_TIME_S = 1e11  # seconds since 1970: about the year 5138; larger numbers are not times


@dataclass(frozen=True)
class LogTimes:
    """The recorded sizes of one log, in order."""

    times: tuple[float, ...] = ()  # seconds since 1970, UTC
    sizes: tuple[int, ...] = ()  # the size of the log at each time, in bytes

    @classmethod
    def read(cls, path: Path, after: int = 0) -> LogTimes:
        """Reads the records of a file, at least as many as the times of the bytes from `after` on depend on."""
        try:
            with open_plain(path) as file:
                if after and file.seek(0, os.SEEK_END) > _TAIL_BYTES:
                    file.seek(-_TAIL_BYTES, os.SEEK_END)
                    file.readline()  # the end of a record
                    last = cls._of(file)
                    if last.sizes and last.sizes[0] <= after:
                        return last
                file.seek(0)
                return cls._of(file)
        except OSError:
            return cls()  # there is no file

    @classmethod
    def _of(cls, lines: Iterable[bytes]) -> LogTimes:
        records: list[tuple[float, int]] = []
        for line in lines:
            time_text, _, size_text = line.partition(b" ")
            try:
                at, size = float(time_text), int(size_text)
            except ValueError:  # incomplete after a full disk
                continue
            if 0 <= at < END_OF_TIME_S:
                records.append((at, size))
        return cls(tuple(time for time, _ in records), tuple(size for _, size in records))

    def of_byte(self, offset: int) -> float | None:
        """Returns the time at which a byte was first observed in the log; None if it is unknown."""
        index = bisect_left(self.sizes, offset + 1)
        return self.times[index] if index < len(self.times) else None

    def estimate(self, offset: int) -> float | None:
        """Returns when a byte was written, between the records before and after it; None if it is not recorded."""
        index = bisect_left(self.sizes, offset + 1)
        if index == len(self.times):
            return None
        end, size = self.times[index], self.sizes[index]
        before = self.sizes[index - 1] if index else 0
        # A log that did not grow is not recorded: the last record can be much earlier than the interval.
        start = max(end - _MAX_INTERVAL_S, self.times[index - 1]) if index else end - _MAX_INTERVAL_S
        return end - (end - start) * (size - offset - 1) / max(1, size - before)

    def size_before(self, seconds: float) -> int:
        """Returns the last size recorded before a time: later bytes were written at that time or after it."""
        index = bisect_left(self.times, seconds)
        return self.sizes[index - 1] if index else 0

    def size_at(self, seconds: float) -> int | None:
        """Returns the size at a time: later bytes were found after it. None if nothing was recorded after it."""
        index = bisect_right(self.times, seconds)
        if index == len(self.times):
            return None
        return self.sizes[index - 1] if index else 0
