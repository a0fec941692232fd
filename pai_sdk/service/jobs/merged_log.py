"""The logs of all instances as one, in an order that stays: a page once read never changes.

The order is made on reading: lines that were written since the last time are put behind the known ones, instance
after instance. The order is appended to a file beside the logs, so that a restart keeps it.

`MergedLog._lock` is held while the order is extended and lines are read. The locks of the single logs are taken
inside it, never the other way round.
"""

from __future__ import annotations

import json
import sys
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pai_sdk.execution.log_index import LogIndex

__all__ = ["MergedLog"]


@dataclass(frozen=True)
class _Run:
    """Consecutive lines of one instance."""

    instance: int
    start: int
    count: int


class MergedLog:
    """One order for the lines of several logs. On a disk that takes no more, its lines are those in order already.

    Args:
        order_file: where the order is kept.
        logs: the logs, always in the same sequence.
    """

    def __init__(self, order_file: Path, logs: Sequence[LogIndex]) -> None:
        self._order_file = order_file
        self._logs = logs
        self._lock = threading.Lock()
        self._is_read = False
        self._runs: list[_Run] = []
        self._size_bytes = 0
        self._ends: list[int] = []
        self._taken = [0] * len(logs)
        self._trouble: OSError | None = None

    def count(self, *, is_open: bool) -> int:
        """How many lines there are in all."""
        with self._lock:
            self._catch_up(is_open)
            return self._ends[-1] if self._ends else 0

    @property
    def logs(self) -> Sequence[LogIndex]:
        """The logs that it is made of, in their sequence."""
        return self._logs

    @property
    def is_behind(self) -> bool:
        """Whether there are lines that could not be put in order, when that was tried last."""
        return self._trouble is not None

    @property
    def is_unsettled(self) -> bool:
        """Whether something stands behind a log's last line, which may become a line by waiting."""
        return any(log.is_unsettled for log in self._logs)

    def count_within(self, windows: Sequence[range], *, is_open: bool) -> int:
        """How many lines there are in all of which the number in their own log lies in that log's window."""
        with self._lock:
            self._catch_up(is_open)
            return sum(len(part) for _, part in self._parts(windows))

    def lines_within(
        self, windows: Sequence[range], start: int, end: int, *, is_open: bool, most_bytes: int
    ) -> list[str]:
        """The same as `lines`, as if there were no lines but those in the windows.

        Args:
            windows: for each log the numbers of its lines that count.
            start: number of the first line, among those that count.
            end: number behind the last one.
            is_open: whether lines may still come.
            most_bytes: fewer lines rather than more bytes.
        """
        with self._lock:
            self._catch_up(is_open)
            return self._fitting(self._wanted_within(windows, start, end), is_open, most_bytes)

    def lines(self, start: int, end: int, *, is_open: bool, most_bytes: int = sys.maxsize) -> list[str]:
        """Lines `start` to `end - 1`; fewer where the logs end earlier, or the lines are long.

        Raises:
            OSError: there are none of them, because those that have come cannot be put in order.
        """
        with self._lock:
            self._catch_up(is_open)
            total = self._ends[-1] if self._ends else 0
            if self._trouble is not None and start >= total:
                raise self._trouble
            return self._fitting(self._wanted(start, min(end, total)), is_open, most_bytes)

    def places(self, start: int, end: int, *, is_open: bool) -> list[tuple[int, range]]:
        """Where lines `start` to `end - 1` are: runs of consecutive lines, each a log and numbers of its lines."""
        with self._lock:
            self._catch_up(is_open)
            return list(self._wanted(start, min(end, self._ends[-1] if self._ends else 0)))

    def number_of(self, instance: int, line: int) -> int:
        """The number that a line of one log has among those of all; of a line to come, that of the next one."""
        with self._lock:
            for run, run_end in zip(self._runs, self._ends, strict=True):
                if run.instance == instance and run.start <= line < run.start + run.count:
                    return run_end - run.count + line - run.start
            return self._ends[-1] if self._ends else 0

    def _wanted(self, start: int, end: int) -> Iterator[tuple[int, range]]:
        """Where lines `start` to `end - 1` are: a log, and the numbers of its lines."""
        run_number = bisect_right(self._ends, start)
        while start < end:
            run, run_end = self._runs[run_number], self._ends[run_number]
            first = run.start + start - (run_end - run.count)
            count = min(end, run_end) - start
            yield run.instance, range(first, first + count)
            start += count
            run_number += 1

    def _wanted_within(self, windows: Sequence[range], start: int, end: int) -> Iterator[tuple[int, range]]:
        for instance, part in self._parts(windows):
            if wanted := part[max(start, 0) : max(end, 0)]:
                yield instance, wanted
            start, end = start - len(part), end - len(part)

    def _fitting(self, wanted: Iterable[tuple[int, range]], is_open: bool, most_bytes: int) -> list[str]:
        """The first of the lines, in about so many bytes; one at least."""
        found: list[str] = []
        left_bytes = most_bytes
        for instance, numbers in wanted:
            if found and left_bytes <= 0:
                break
            log = self._logs[instance]
            end = log.fitting(numbers.start, numbers.stop, is_open=is_open, most_bytes=left_bytes)
            lines = log.lines(numbers.start, end, is_open=is_open)
            found += lines
            if end < numbers.stop:
                break
            left_bytes -= sum(map(len, lines))
        return found

    def _parts(self, windows: Sequence[range]) -> Iterator[tuple[int, range]]:
        """What of each run lies in its log's window: the log, and the numbers of the lines."""
        for run in self._runs:
            window = windows[run.instance]
            first, last = max(run.start, window.start), min(run.start + run.count, window.stop)
            if first < last:
                yield run.instance, range(first, last)

    def _catch_up(self, is_open: bool) -> None:
        if not self._is_read:
            runs, self._size_bytes = _read(self._order_file)
            self._take(runs)
            self._is_read = True
        counts = [log.count(is_open=is_open) for log in self._logs]
        new = [
            _Run(instance, before, now - before)
            for instance, (before, now) in enumerate(zip(self._taken, counts, strict=True))
            if now > before
        ]
        self._trouble = None
        if new:
            try:
                self._write(new)
            except OSError as error:  # not shown: after a restart they could come in another order
                self._trouble = error
            else:
                self._take(new)

    def _write(self, runs: Sequence[_Run]) -> None:
        text = "".join(json.dumps([run.instance, run.start, run.count]) + "\n" for run in runs).encode("ascii")
        with self._order_file.open("ab") as file:
            file.truncate(self._size_bytes)  # what a full disk or a crash has left of an earlier try
            file.write(text)
        self._size_bytes += len(text)

    def _take(self, runs: Sequence[_Run]) -> None:
        for run in runs:
            self._runs.append(run)
            self._taken[run.instance] += run.count
            self._ends.append(run.count + (self._ends[-1] if self._ends else 0))


def _read(order_file: Path) -> tuple[list[_Run], int]:
    """The runs that were written down as a whole, and how many bytes they take."""
    try:
        content = order_file.read_bytes()
    except FileNotFoundError:
        return [], 0
    runs, size_bytes = [], 0
    for line in content.splitlines(keepends=True):
        try:
            run = _Run(*json.loads(line))
        except (ValueError, TypeError):
            break
        if not line.endswith(b"\n"):
            break
        runs.append(run)
        size_bytes += len(line)
    return runs, size_bytes
