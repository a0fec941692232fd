"""Where the lines of a growing log begin: any page of it is a seek and a short read, however long it is."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from pai_sdk.base.files import take_lock
from pai_sdk.execution.log_cuts import LogCuts, place_to_cut

__all__ = ["LogIndex"]

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 64 * 1024
_NEWLINE = ord("\n")


class LogIndex:
    """The lines of one log. The file may grow while it is read, and nothing else.

    The index counts line ends for each block of the file; it is made by reading, so it need not be kept. While
    the log is `open`, only lines that have ended count; afterwards what follows the last line end does too. What
    a progress bar draws over and over is cut into lines (see `log_cuts`).

    Several indexes of a log, in this process or others, agree on its lines.

    Args:
        path: the log.
        clock: tells how long something has been waiting.
        makes_cuts: whether a progress bar is cut, which is noted in a file beside the log; False for a log in a
            folder that is only read.

    Example:
        >>> LogIndex(Path("/srv/jobs/train1/logs/train1-master-0.log")).count(is_open=True)
        0
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.monotonic, makes_cuts: bool = True
    ) -> None:
        self._path = path
        self._clock = clock
        self._makes_cuts = makes_cuts
        self._lock = threading.Lock()
        self._cuts = LogCuts(path.with_suffix(".cuts"))
        # How many line ends there are up to the end of each block; the last block may be a part of one.
        self._ends = array("Q")
        self._size_bytes = 0
        self._last_end = 0  # where the line begins that has not ended
        self._grown_at = self._ended_at = clock()

    def count(self, *, is_open: bool) -> int:
        """How many lines there are."""
        with self._lock:
            self._catch_up(is_open=is_open)
            return self._count(is_open)

    @property
    def is_unsettled(self) -> bool:
        """Whether something stands behind the last line, which may become a line by waiting."""
        return self._last_end < self._size_bytes

    def lines(self, start: int, end: int, *, is_open: bool) -> list[str]:
        r"""Lines `start` to `end - 1`, without their line ends; fewer where the log ends earlier.

        One that was cut ends with `\r`, and no other does.
        """
        with self._lock:
            self._catch_up(is_open=is_open)
            end = min(end, self._count(is_open))
            if start >= end:
                return []
            with self._path.open("rb") as file:
                first = self._offset(file, start)
                last = self._offset(file, end)
                file.seek(first)
                content = file.read(last - first)
        places = [0, *(cut - first for cut in self._cuts.between(first, last)), len(content)]
        found: list[str] = []
        for begin, end in pairwise(places):
            if found:
                found[-1] += "\r"  # it was cut, not ended: what comes next is drawn over it
            part = content[begin:end].replace(b"\r\n", b"\n").removesuffix(b"\n")
            found += part.decode("utf-8", errors="replace").split("\n")
        if self._cuts.is_at(last):
            found[-1] += "\r"
        return found

    def span(self, start: int, end: int, *, is_open: bool) -> tuple[int, int]:
        """The bytes of lines `start` to `end - 1`: where the first begins, and where the last ends."""
        with self._lock:
            self._catch_up(is_open=is_open)
            end = min(end, self._count(is_open))
            if start >= end:
                return 0, 0
            with self._path.open("rb") as file:
                return self._offset(file, start), self._offset(file, end)

    def ends(self, start: int, end: int, *, is_open: bool) -> list[int]:
        """Where each of the lines `start` to `end - 1` ends, in bytes; fewer where the log ends earlier."""
        with self._lock:
            self._catch_up(is_open=is_open)
            end = min(end, self._count(is_open))
            if start >= end:
                return []
            with self._path.open("rb") as file:
                first, last = self._offset(file, start), self._offset(file, end)
                file.seek(first)
                content = file.read(last - first)
            newlines = (first + found.end() for found in re.finditer(b"\n", content))
            return [*sorted([*newlines, *self._cuts.between(first, last)]), last][: end - start]

    @property
    def path(self) -> Path:
        """The log."""
        return self._path

    @property
    def known_bytes(self) -> int:
        """How much of the log was read; more than there is, if it was truncated since."""
        return self._size_bytes

    @property
    def cuts(self) -> LogCuts:
        """Where its lines end besides their line ends, as far as it was read."""
        return self._cuts

    def fitting(self, start: int, end: int, *, is_open: bool, most_bytes: int) -> int:
        """The end of those of the lines `start` to `end - 1` that fit in `most_bytes`; at least one."""
        with self._lock:
            self._catch_up(is_open=is_open)
            if start >= min(end, self._count(is_open)):
                return end
            with self._path.open("rb") as file:
                most = self._offset(file, start) + most_bytes
        return end if most >= self._size_bytes else min(end, max(start + 1, self.line_at(most)))

    def line_at(self, offset: int) -> int:
        """The number of the line that the byte at `offset` belongs to, or follows at the end of the log."""
        with self._lock:
            self._catch_up(is_open=False)
            offset = min(offset, self._size_bytes)
            block = offset // _BLOCK_BYTES
            before = self._ends[block - 1] if block else 0
            if block < len(self._ends):
                with self._path.open("rb") as file:
                    file.seek(block * _BLOCK_BYTES)
                    before += file.read(offset - block * _BLOCK_BYTES).count(b"\n")
            return before + self._cuts.until(offset)

    def _count(self, is_open: bool) -> int:
        ended = self._ended_by(len(self._ends) - 1)
        return ended if is_open or self._last_end == self._size_bytes else ended + 1

    def _ended_by(self, block: int) -> int:
        """How many lines have ended up to the end of a block."""
        if block < 0:
            return 0
        return self._ends[block] + self._cuts.until(min((block + 1) * _BLOCK_BYTES, self._size_bytes))

    def _catch_up(self, *, is_open: bool) -> None:
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            # Other readers of this log cut it as well: none may count lines while a cut is being made.
            take_lock(file.fileno())
            is_cut_anew = self._cuts.refresh()
            if os.fstat(file.fileno()).st_size != self._size_bytes:
                self._count_ends(file)
            elif is_cut_anew:
                self._last_end, self._ended_at = max(self._last_end, self._cuts.last), self._clock()
            if is_open and self._makes_cuts and self.is_unsettled:
                self._cut(file)

    def _count_ends(self, file: BinaryIO) -> None:
        had_bytes = self._size_bytes
        whole = had_bytes // _BLOCK_BYTES
        del self._ends[whole:]
        file.seek(whole * _BLOCK_BYTES)
        ended = self._ends[-1] if self._ends else 0
        last_end = max(self._last_end, self._cuts.last)
        self._size_bytes = whole * _BLOCK_BYTES
        while block := file.read(_BLOCK_BYTES):
            ended += block.count(b"\n")
            last_end = max(last_end, self._size_bytes + block.rfind(b"\n") + 1)
            self._ends.append(ended)
            self._size_bytes += len(block)
            if len(block) < _BLOCK_BYTES:
                break  # what is appended in this moment is for the next time, or blocks would shift
        self._grown_at = self._clock()
        if last_end != self._last_end or self._last_end == had_bytes:
            self._ended_at = self._grown_at  # a line has ended, or the next one has just begun
        self._last_end = last_end

    def _cut(self, file: BinaryIO) -> None:
        """Make a line of a progress bar's updates, if they have been waiting for long enough."""
        now = self._clock()
        waited_s, still_s = now - self._ended_at, now - self._grown_at
        cut = place_to_cut(file, self._last_end, self._size_bytes, waited_s=waited_s, still_s=still_s)
        if cut is None:
            return
        try:
            self._cuts.add(cut)
        except OSError as error:  # a full disk: the line is reported when there is free space, or when it ends
            logger.warning("%s: its progress cannot be shown: %s", self._path, error)
            return
        self._last_end, self._ended_at = cut, now

    def _offset(self, file: BinaryIO, line: int) -> int:
        """Where a line begins; the line after the last one begins at the end of the file."""
        if line == 0:
            return 0
        block = bisect_left(range(len(self._ends)), line, key=self._ended_by)
        if block == len(self._ends):
            return self._size_bytes
        missing = line - self._ended_by(block - 1)
        begin = block * _BLOCK_BYTES
        file.seek(begin)
        content = file.read(min(_BLOCK_BYTES, self._size_bytes - begin))
        cuts = self._cuts.between(begin, begin + len(content) + 1)
        if cuts:
            newlines = [at + 1 for at in range(len(content)) if content[at] == _NEWLINE]
            return begin + sorted([*newlines, *(cut - begin for cut in cuts)])[missing - 1]
        at = -1
        for _ in range(missing):
            at = content.index(b"\n", at + 1)
        return begin + at + 1
