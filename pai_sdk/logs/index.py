"""The lines of one growing log by number: any page of it costs a seek and a short read, however long it is."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from pai_sdk.base.files import take_lock
from pai_sdk.logs.cuts import LogCuts, place_to_cut

__all__ = ["LineBlock", "LogIndex"]

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True)
class LineBlock:
    r"""Consecutive lines of one log, as they were read.

    Attributes:
        numbers: of the lines.
        begin: the byte at which the first one begins.
        end: the byte at which the last one ends.
        content: the bytes in between; of a single line that is too long, its beginning.
        cuts: the bytes at which those lines end that were cut.

    Example:
        >>> block = LineBlock(range(2), 10, 16, b"1%\r2%\n", cuts=[12])
        >>> block.texts, block.ends
        (['1%\r', '\r2%'], [12, 16])
    """

    numbers: range
    begin: int
    end: int
    content: bytes = b""
    cuts: Sequence[int] = ()

    @property
    def lines(self) -> list[bytes]:
        r"""The lines without their line ends. One that was cut ends with `\r`, and no other does."""
        return self._joined.split(b"\n") if self.numbers else []

    @property
    def texts(self) -> list[str]:
        """The lines as text."""
        return self._joined.decode("utf-8", errors="replace").split("\n") if self.numbers else []

    @property
    def _joined(self) -> bytes:
        places = [0, *(cut - self.begin for cut in self.cuts), len(self.content)]
        parts = [self.content[begin:end].replace(b"\r\n", b"\n") for begin, end in pairwise(places)]
        return b"\r\n".join(parts).removesuffix(b"\n")  # the line after a cut is drawn over the one before it

    @property
    def ends(self) -> list[int]:
        """The bytes at which the lines end."""
        newlines = (self.begin + found.end() for found in re.finditer(b"\n", self.content))
        return [*sorted([*newlines, *self.cuts]), self.end][: len(self.numbers)]


class LogIndex:
    """The lines of one log. The file may grow while it is read; other changes are not noticed.

    The index counts the line ends in each block of the file. It is made by reading the file and is not stored.
    While a log is open, only lines that have ended count. Later, the text after the last line end counts as a line
    too. The updates of a progress bar are cut into lines (see `cuts`).

    Several indexes of a log, in this process or others, agree on its lines:

        lock                         held by              while
        LogIndex._lock               a thread             it reads the file or the fields below
        the log's file (flock)       a thread or process  it counts and cuts lines; taken inside the first one

    Args:
        path: the log.
        clock: monotonic, in seconds.
        makes_cuts: whether to cut progress bars, which writes a file beside the log; False for a folder that is
            only read.

    Example:
        >>> LogIndex(Path("/srv/jobs/train1/logs/train1-master-0.log")).count(is_open=True)
        0
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.monotonic, makes_cuts: bool = True
    ) -> None:
        self.path = path
        self.cuts = LogCuts(path.with_suffix(".cuts"))
        self._clock = clock
        self._makes_cuts = makes_cuts
        self._lock = threading.Lock()
        # The number of line ends up to the end of each block; the last block may be incomplete.
        self._ends = array("Q")
        self._size_bytes = 0
        self._last_end = 0  # where the unfinished line begins
        self._grown_at = self._ended_at = clock()

    @property
    def known_bytes(self) -> int:
        """The size of the log when it was last read; more than the file has, if that was truncated since."""
        return self._size_bytes

    @property
    def has_unfinished_line(self) -> bool:
        """True if the log ends with text that is no line yet; later it may be cut into one."""
        return self._last_end < self._size_bytes

    def count(self, *, is_open: bool) -> int:
        """The number of lines."""
        with self._lock:
            self._catch_up(is_open=is_open)
            return self._count(is_open)

    def read(
        self,
        start: int,
        end: int,
        *,
        is_open: bool,
        most_bytes: int = sys.maxsize,
        longest_line_bytes: int = sys.maxsize,
    ) -> LineBlock:
        """Lines `start` to `end - 1`; fewer if the log ends earlier or they have too many bytes.

        Args:
            start: number of the first line, from 0.
            end: number of the line after the last one.
            is_open: whether lines may follow.
            most_bytes: of all lines together; the first one is read even if it is longer.
            longest_line_bytes: how much to read of that one.
        """
        with self._lock:
            self._catch_up(is_open=is_open)
            end = min(end, self._count(is_open))
            if start >= end:
                return LineBlock(range(start, start), 0, 0)
            with self.path.open("rb") as file:
                first = self._offset(file, start)
                if first + most_bytes < self._size_bytes:
                    end = min(end, max(start + 1, self._line_at(file, first + most_bytes)))
                last = self._offset(file, end)
                file.seek(first)
                is_long = last - first > most_bytes
                content = file.read(min(last - first, longest_line_bytes) if is_long else last - first)
            return LineBlock(range(start, end), first, last, content, self.cuts.between(first, last))

    def line_at(self, offset: int) -> int:
        """The number of the line with the byte at an offset; at the end of the log, that of the next line."""
        with self._lock:
            self._catch_up(is_open=False)
            if not self._size_bytes:
                return 0
            with self.path.open("rb") as file:
                return self._line_at(file, min(offset, self._size_bytes))

    def _line_at(self, file: BinaryIO, offset: int) -> int:
        block = offset // _BLOCK_BYTES
        before = self._ends[block - 1] if block else 0
        file.seek(block * _BLOCK_BYTES)
        before += file.read(offset - block * _BLOCK_BYTES).count(b"\n")
        return before + self.cuts.count_until(offset)

    def _count(self, is_open: bool) -> int:
        ended = self._ended_by(len(self._ends) - 1)
        return ended if is_open or not self.has_unfinished_line else ended + 1

    def _ended_by(self, block: int) -> int:
        """The number of lines that end within the blocks up to this one."""
        if block < 0:
            return 0
        return self._ends[block] + self.cuts.count_until(min((block + 1) * _BLOCK_BYTES, self._size_bytes))

    def _catch_up(self, *, is_open: bool) -> None:
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            # No reader may count lines while another one, in this process or elsewhere, makes a cut.
            take_lock(file.fileno())
            has_new_cuts = self.cuts.refresh()
            if os.fstat(file.fileno()).st_size != self._size_bytes:
                self._count_ends(file)
            elif has_new_cuts:
                self._last_end, self._ended_at = max(self._last_end, self.cuts.last), self._clock()
            if is_open and self._makes_cuts and self.has_unfinished_line:
                self._cut(file)

    def _count_ends(self, file: BinaryIO) -> None:
        known_bytes = self._size_bytes
        whole = known_bytes // _BLOCK_BYTES
        del self._ends[whole:]
        file.seek(whole * _BLOCK_BYTES)
        ended = self._ends[-1] if self._ends else 0
        last_end = max(self._last_end, self.cuts.last)
        self._size_bytes = whole * _BLOCK_BYTES
        while block := file.read(_BLOCK_BYTES):
            ended += block.count(b"\n")
            last_end = max(last_end, self._size_bytes + block.rfind(b"\n") + 1)
            self._ends.append(ended)
            self._size_bytes += len(block)
            if len(block) < _BLOCK_BYTES:
                break  # text that is appended now is left for the next time: blocks must not shift
        self._grown_at = self._clock()
        if last_end != self._last_end or self._last_end == known_bytes:
            self._ended_at = self._grown_at  # a line has ended, or the next one has just begun
        self._last_end = last_end

    def _cut(self, file: BinaryIO) -> None:
        """Make a line of the updates of a progress bar, if they have waited for long enough."""
        now = self._clock()
        waited_s, still_s = now - self._ended_at, now - self._grown_at
        cut = place_to_cut(file, self._last_end, self._size_bytes, waited_s=waited_s, still_s=still_s)
        if cut is None:
            return
        try:
            self.cuts.add(cut)
        except OSError as error:  # a full disk: the line is shown when there is space again, or when it ends
            logger.warning("%s: its progress cannot be shown: %s", self.path, error)
            return
        self._last_end, self._ended_at = cut, now

    def _offset(self, file: BinaryIO, line: int) -> int:
        """The byte at which a line begins; for the line after the last one, the end of the log."""
        if line == 0:
            return 0
        block = bisect_left(range(len(self._ends)), line, key=self._ended_by)
        if block == len(self._ends):
            return self._size_bytes
        missing = line - self._ended_by(block - 1)
        begin = block * _BLOCK_BYTES
        file.seek(begin)
        content = file.read(min(_BLOCK_BYTES, self._size_bytes - begin))
        cuts = self.cuts.between(begin, begin + len(content))
        if cuts:
            newlines = (begin + found.end() for found in re.finditer(b"\n", content))
            return sorted([*newlines, *cuts])[missing - 1]
        at = -1
        for _ in range(missing):
            at = content.index(b"\n", at + 1)
        return begin + at + 1
