"""One order for the lines of several instances, which never changes: a page that was read once stays the same.

The order is made by reading: lines written since the last time are put behind the known ones, instance after
instance. It is appended to a file beside the logs, so it outlives the process.
"""

from __future__ import annotations

import json
import sys
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pai_sdk.base.files import append_to
from pai_sdk.logs.index import LogIndex

__all__ = ["MergedOrder", "SingleOrder"]


class _Stretch(NamedTuple):
    """Consecutive lines of one instance."""

    instance: int
    start: int
    length: int


class SingleOrder:
    """The order of the lines of one log: they stay as they are."""

    def __init__(self, log: LogIndex) -> None:
        self._log = log

    def update(self, *, is_open: bool) -> tuple[int, None]:
        """The number of lines; see `MergedOrder`."""
        return self._log.count(is_open=is_open), None

    def stretches(self, first: int, windows: Sequence[range] | None = None) -> Iterator[tuple[int, range]]:
        """The lines from a number on; without windows, there is no end."""
        yield 0, (windows[0] if windows else range(sys.maxsize))[first:]

    def number_of(self, instance: int, line: int) -> int:
        """The number of a line."""
        return line


class MergedOrder:
    """The order of the lines of several logs. It says where lines are; `LogReader` reads them.

    `_lock` is held while the order is extended; the locks of the logs are taken inside it, never the other way
    round. The lists are only appended to, so readers need no lock.

    Args:
        path: the file that stores the order. One object at a time may use it.
        logs: the logs, always in the same sequence.
    """

    def __init__(self, path: Path, logs: Sequence[LogIndex]) -> None:
        self._path = path
        self._logs = logs
        self._lock = threading.Lock()
        self._is_loaded = False
        self._stretches: list[_Stretch] = []
        self._size_bytes = 0
        self._ends: list[int] = []
        self._taken = [0] * len(logs)

    def update(self, *, is_open: bool) -> tuple[int, OSError | None]:
        """Put new lines in order.

        Returns:
            The number of lines that are in order, and why the others could not be put in order (a full disk).
        """
        with self._lock:
            if not self._is_loaded:
                stretches, self._size_bytes = _read(self._path)
                self._take(stretches)
                self._is_loaded = True
            counts = [log.count(is_open=is_open) for log in self._logs]
            new = [
                _Stretch(instance, before, now - before)
                for instance, (before, now) in enumerate(zip(self._taken, counts, strict=True))
                if now > before
            ]
            error = None
            if new:
                try:
                    self._write(new)
                    self._take(new)
                except OSError as caught:  # lines that are not stored could have another order after a restart
                    error = caught
            return self._ends[-1] if self._ends else 0, error

    def stretches(self, first: int, windows: Sequence[range] | None = None) -> Iterator[tuple[int, range]]:
        """The places of the lines from a number on: each is a log, and numbers of consecutive lines in it.

        Args:
            first: the number of the first line, among those in the windows.
            windows: for each log, the numbers of the lines that count; all of them by default.
        """
        at = bisect_right(self._ends, first) if windows is None else 0
        skipped = first - self._ends[at - 1] if at else first
        for instance, start, length in self._stretches[at:]:
            numbers = range(start, start + length)
            if windows is not None:
                window = windows[instance]
                numbers = range(max(start, window.start), min(start + length, window.stop))
            if numbers[skipped:]:
                yield instance, numbers[skipped:]
            skipped = max(0, skipped - len(numbers))

    def number_of(self, instance: int, line: int) -> int:
        """The number that a line of one log has in the order; for a line to come, that of the next one."""
        end = 0
        for stretch, end in zip(self._stretches, self._ends, strict=False):
            if stretch.instance == instance and stretch.start <= line < stretch.start + stretch.length:
                return end - stretch.length + line - stretch.start
        return end

    def _write(self, stretches: Sequence[_Stretch]) -> None:
        text = "".join(json.dumps(stretch) + "\n" for stretch in stretches).encode("ascii")
        # Behind the size is what a crash has left of an earlier try.
        self._size_bytes = append_to(self._path, text, at=self._size_bytes)

    def _take(self, stretches: Sequence[_Stretch]) -> None:
        for stretch in stretches:
            self._stretches.append(stretch)
            self._taken[stretch.instance] += stretch.length
            self._ends.append(stretch.length + (self._ends[-1] if self._ends else 0))


def _read(path: Path) -> tuple[list[_Stretch], int]:
    """The stretches that were stored completely, and their size in bytes."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    stretches, size_bytes = [], 0
    for line in content.splitlines(keepends=True):
        try:
            stretch = _Stretch(*json.loads(line))
        except (ValueError, TypeError):
            break
        if not line.endswith(b"\n"):
            break
        stretches.append(stretch)
        size_bytes += len(line)
    return stretches, size_bytes
