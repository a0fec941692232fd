"""The lines of one growing log by number: a page costs a seek and a short read, whatever the size of the log."""

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

from pai_sdk._core.files import open_regular, take_lock
from pai_sdk._data.logs.splits import LogCuts, split_offset

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LineBlock:
    r"""Consecutive lines of one log, as they were read."""

    numbers: range
    start: int  # the offset of the first line
    end: int  # the offset after the last line
    content: bytes = b""  # the bytes in between; of a single line that is too long, its first bytes
    cuts: Sequence[int] = ()  # the offsets at which lines were split, see `cuts`

    @property
    def lines(self) -> list[bytes]:
        r"""Returns the lines without their line ends. A split line ends with `\r`, and no other does."""
        return self._joined.split(b"\n") if self.numbers else []

    @property
    def decoded_lines(self) -> list[str]:
        """Returns the lines, decoded from UTF-8."""
        return self._joined.decode("utf-8", errors="replace").split("\n") if self.numbers else []

    @property
    def _joined(self) -> bytes:
        edges = [0, *(offset - self.start for offset in self.cuts), len(self.content)]
        parts = [self.content[start:end].replace(b"\r\n", b"\n") for start, end in pairwise(edges)]
        return b"\r\n".join(parts).removesuffix(b"\n")  # a terminal draws the line after a cut over it

    @property
    def ends(self) -> list[int]:
        """Returns the offsets after the lines."""
        newlines = (self.start + match.end() for match in re.finditer(b"\n", self.content))
        return [*sorted([*newlines, *self.cuts]), self.end][: len(self.numbers)]


class LogIndex:
    """The lines of one log. The file can grow while it is read; other changes are not detected.

    The index counts the line ends in each block of the file. It is built by reading the file and is not stored.
    While a log is open, only lines that have ended count. Later, the text after the last line end counts as a line
    too. The updates of a progress bar are split into lines (see `cuts`).

    Several indexes of a log, in this process or others, agree on its lines:

        lock                         held by              while
        LogIndex._lock               a thread             it reads the file or the fields below
        the log's file (flock)       a thread or process  it counts and splits lines; acquired after the first one
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        makes_cuts: bool = True,
        block_bytes: int = 64 * 1024,
    ) -> None:
        self.path = path
        self._block_bytes = block_bytes
        self.cuts = LogCuts(path.with_suffix(".cuts"))
        self._clock = clock
        # Splitting progress bars writes a file beside the log; False for a read-only folder.
        self._makes_cuts = makes_cuts
        self._lock = threading.Lock()
        # The number of line ends up to the end of each block; the last block may be incomplete.
        self._ends = array("Q")
        self._size_bytes = 0
        self._last_end = 0  # the offset of the unfinished line
        # When the log has last grown, and when a line has last ended: both decide when a progress bar is split.
        self._grown_at = self._ended_at = clock()

    @property
    def indexed_bytes(self) -> int:
        """Returns the size of the log when it was last read; a smaller file was truncated meanwhile."""
        return self._size_bytes

    @property
    def has_unfinished_line(self) -> bool:
        """Returns True if the log ends with text that is not a line yet; a cut can turn it into one."""
        return self._last_end < self._size_bytes

    def count(self, *, is_open: bool) -> int:
        """Returns the number of lines; those that have ended while `is_open`."""
        with self._lock:
            self._catch_up(is_open=is_open)
            return self._count(is_open)

    def read(
        self,
        start: int,
        end: int,
        *,
        is_open: bool,
        max_bytes: int = sys.maxsize,
        max_line_bytes: int = sys.maxsize,
    ) -> LineBlock:
        """Returns lines `start` to `end - 1`; fewer if the log ends earlier or they have more than `max_bytes`."""
        with self._lock:
            self._catch_up(is_open=is_open)
            end = min(end, self._count(is_open))
            if start >= end:
                return LineBlock(range(start, start), 0, 0)
            with open_regular(self.path) as file:
                first = self._offset(file, start)
                if first + max_bytes < self._size_bytes:
                    # The first line is read even if it is longer, up to `max_line_bytes`.
                    end = min(end, max(start + 1, self._line_at(file, first + max_bytes)))
                last = self._offset(file, end)
                file.seek(first)
                is_long = last - first > max_bytes
                content = file.read(min(last - first, max_line_bytes) if is_long else last - first)
            return LineBlock(range(start, end), first, last, content, self.cuts.between(first, last))

    def line_at(self, offset: int) -> int:
        """Returns the number of the line that contains an offset; at the end of the log, that of the next line."""
        with self._lock:
            self._catch_up(is_open=False)
            if not self._size_bytes:
                return 0
            with open_regular(self.path) as file:
                return self._line_at(file, min(offset, self._size_bytes))

    def _line_at(self, file: BinaryIO, offset: int) -> int:
        block = offset // self._block_bytes
        before = self._ends[block - 1] if block else 0
        file.seek(block * self._block_bytes)
        before += file.read(offset - block * self._block_bytes).count(b"\n")
        return before + self.cuts.count_until(offset)

    def _count(self, is_open: bool) -> int:
        ended = self._ended_by(len(self._ends) - 1)
        return ended if is_open or not self.has_unfinished_line else ended + 1

    def _ended_by(self, block: int) -> int:
        """Returns the number of lines that end within the blocks up to this one."""
        if block < 0:
            return 0
        return self._ends[block] + self.cuts.count_until(min((block + 1) * self._block_bytes, self._size_bytes))

    def _catch_up(self, *, is_open: bool) -> None:
        with suppress(FileNotFoundError), open_regular(self.path) as file:
            # Excludes other readers, in this process or elsewhere: between the refresh of the cuts and the count,
            # none may add a cut, and two that add one at once would number the lines differently. Closing the file
            # releases the lock.
            take_lock(file.fileno())
            has_new_cuts = self.cuts.refresh()
            if os.fstat(file.fileno()).st_size != self._size_bytes:
                self._count_ends(file)
            elif has_new_cuts:
                self._last_end, self._ended_at = max(self._last_end, self.cuts.last), self._clock()
            if is_open and self._makes_cuts and self.has_unfinished_line:
                self._split_progress(file)

    def _count_ends(self, file: BinaryIO) -> None:
        old_size = self._size_bytes
        full_blocks = old_size // self._block_bytes
        del self._ends[full_blocks:]  # the last block was incomplete: it is counted again
        file.seek(full_blocks * self._block_bytes)
        ended = self._ends[-1] if self._ends else 0
        last_end = max(self._last_end, self.cuts.last)
        self._size_bytes = full_blocks * self._block_bytes
        while block := file.read(self._block_bytes):
            ended += block.count(b"\n")
            last_end = max(last_end, self._size_bytes + block.rfind(b"\n") + 1)
            self._ends.append(ended)
            self._size_bytes += len(block)
            if len(block) < self._block_bytes:
                break  # bytes appended after this read wait for the next call: blocks keep their offsets
        self._grown_at = self._clock()
        if last_end != self._last_end or self._last_end == old_size:
            self._ended_at = self._grown_at  # a line has ended, or the next one has just started
        self._last_end = last_end

    def _split_progress(self, file: BinaryIO) -> None:
        """Turns the updates of a progress bar into a line, if they have waited long enough."""
        now = self._clock()
        waited_s, still_s = now - self._ended_at, now - self._grown_at
        offset = split_offset(file, self._last_end, self._size_bytes, waited_s=waited_s, still_s=still_s)
        if offset is None:
            return
        try:
            self.cuts.add(offset)
        except OSError as error:  # a full disk: the line appears when there is space again, or when it ends
            logger.warning("%s: its progress cannot be shown: %s", self.path, error)
            return
        self._last_end, self._ended_at = offset, now

    def _offset(self, file: BinaryIO, line: int) -> int:
        """Returns the offset of a line; for the line after the last one, the end of the log."""
        if line == 0:
            return 0
        block = bisect_left(range(len(self._ends)), line, key=self._ended_by)
        if block == len(self._ends):
            return self._size_bytes
        missing = line - self._ended_by(block - 1)
        block_start = block * self._block_bytes
        file.seek(block_start)
        content = file.read(min(self._block_bytes, self._size_bytes - block_start))
        cuts = self.cuts.between(block_start, block_start + len(content))
        if cuts:
            newlines = (block_start + match.end() for match in re.finditer(b"\n", content))
            return sorted([*newlines, *cuts])[missing - 1]
        at = -1
        for _ in range(missing):
            at = content.index(b"\n", at + 1)
        return block_start + at + 1
