"""The lines of a log that were read so far, by number: in memory while they are few, else in a temporary file."""

from __future__ import annotations

import json
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice

_MEMORY_BYTES = 1 << 20
_LINES_PER_MARK = 256


class LineSpool:
    """Appends lines, and reads them by number. Not thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._file = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - `close` closes it
        # A session that is dropped without `close` leaves no open file.
        self._finalizer = weakref.finalize(self, self._file.close)
        self._marks = array("Q")  # the position of every 256th line
        self._size = 0

    def append(self, lines: Iterable[str]) -> None:
        """Appends lines."""
        self._file.seek(self._size)
        for line in lines:
            if self.count % _LINES_PER_MARK == 0:
                self._marks.append(self._size)
            # JSON, because a line of the service may contain line ends and lone surrogates.
            self._size += self._file.write(json.dumps(line).encode() + b"\n")
            self.count += 1

    def lines(self, start: int, limit: int) -> tuple[str, ...]:
        """Returns the lines from number `start` on, at most `limit`."""
        return tuple(islice(self._lines_from(start), limit)) if 0 <= start < self.count else ()

    def _lines_from(self, start: int) -> Iterator[str]:
        self._file.seek(self._marks[start // _LINES_PER_MARK])
        for line in islice(self._file, start % _LINES_PER_MARK, None):
            yield json.loads(line)

    def close(self) -> None:
        """Removes the file."""
        self._finalizer()
