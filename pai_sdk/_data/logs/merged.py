"""One order for the lines of several instances, which never changes: a page that was read once stays valid.

The order is created by reading: lines written since the last call are appended, in the order of the times at which
the supervisors recorded the sizes of the logs; for equal times, instance after instance. The order is stored in a
file beside the logs, so it survives the process.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pai_sdk._core.files import append_to
from pai_sdk._data.logs.index import LogIndex
from pai_sdk._data.logs.times import LogTimes

_TIMES_INTERVAL_S = 1.0


class _Stretch(NamedTuple):
    """Consecutive lines of one instance."""

    instance: int
    start: int
    length: int


class SingleOrder:
    """The order of the lines of one log: that of the log."""

    def __init__(self, log: LogIndex) -> None:
        self._log = log

    def update(self, *, is_open: bool) -> tuple[int, None]:
        """Returns the number of lines; see `MergedOrder`."""
        return self._log.count(is_open=is_open), None

    def stretches(self, first: int, windows: Sequence[range] | None = None) -> Iterator[tuple[int, range]]:
        """Yields the lines from a number on; without windows, there is no end."""
        yield 0, (windows[0] if windows else range(sys.maxsize))[first:]

    def number_of(self, instance: int, line: int) -> int:
        """Returns the number of a line in the order."""
        return line


class MergedOrder:
    """The order of the lines of several logs. It contains positions of lines; `LogReader` reads the lines.

    `_lock` is held while the order is extended; the locks of the logs are acquired inside it, never the other way
    round. The lists are only appended to, so readers need no lock.
    """

    # Only one object at a time is allowed to use the file `path`. The sequence of `logs` is always the same.
    def __init__(
        self,
        path: Path,
        logs: Sequence[LogIndex],
        times: Sequence[Callable[[], LogTimes]],
        *,
        max_times: int = 200,  # in one update, since each time costs a read of each log
    ) -> None:
        self._path = path
        self._logs = logs
        self._times = times
        self._max_times = max_times
        self._lock = threading.Lock()
        self._is_loaded = False
        self._stretches: list[_Stretch] = []
        self._size_bytes = 0
        self._ends: list[int] = []  # the number after the last line of each stretch
        self._merged_counts = [0] * len(logs)  # lines of each log that are in the order
        self._updated_at = float("-inf")

    def update(self, *, is_open: bool) -> tuple[int, OSError | None]:
        """Appends new lines; returns the number of lines in the order, and the error of a full disk, if any."""
        with self._lock:
            if not self._is_loaded:  # the stored order of an earlier process or object
                stretches, self._size_bytes = _read(self._path)
                self._append(stretches)
                self._is_loaded = True
            # Counted before the times are read: lines written meanwhile wait for the next call.
            counts = [log.count(is_open=is_open) for log in self._logs]
            new = self._new(counts)
            error = None
            if new:
                try:
                    self._write(new)  # first, since readers get appended lines at once
                    self._append(new)
                except OSError as caught:  # not appended: after a restart they could get another order
                    error = caught
            return self._ends[-1] if self._ends else 0, error

    def stretches(self, first: int, windows: Sequence[range] | None = None) -> Iterator[tuple[int, range]]:
        """Yields the positions of the lines from a number on: a log, and numbers of consecutive lines in it."""
        # `_append` extends `_stretches` before `_ends`: a search in `_ends` never passes the end of `_stretches`.
        at = bisect_right(self._ends, first) if windows is None else 0
        # `first` counts the lines in the windows; without windows, all lines.
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
        """Returns the number of a line of one log in the order; for a future line, that of the next line."""
        end = 0
        for stretch, end in zip(self._stretches, self._ends, strict=False):
            if stretch.instance == instance and stretch.start <= line < stretch.start + stretch.length:
                return end - stretch.length + line - stretch.start
        return end

    def _new(self, counts: Sequence[int]) -> list[_Stretch]:
        """Returns the lines that are not in order yet, by time."""
        grown = [instance for instance, count in enumerate(counts) if count > self._merged_counts[instance]]
        ends = [(float("inf"), instance, counts[instance]) for instance in grown]
        since, self._updated_at = self._updated_at, time.time()
        # Supervisors record sizes once a second. Within two intervals, times would not change the order.
        if len(grown) > 1 and self._updated_at - since > 2 * _TIMES_INTERVAL_S:
            times_by_instance = {instance: self._times[instance]() for instance in grown}
            min_time = since - _TIMES_INTERVAL_S
            moments = {at for times in times_by_instance.values() for at in times.times if at > min_time}
            for at in _even_selection(moments, self._max_times):
                for instance, times in times_by_instance.items():
                    line = self._logs[instance].line_at(times.size_before(at))
                    ends.append((at, instance, min(line, counts[instance])))
        new: list[_Stretch] = []
        merged_counts = list(self._merged_counts)
        for _, instance, end in sorted(ends):
            if (length := end - merged_counts[instance]) <= 0:
                continue
            if new and new[-1].instance == instance:
                new[-1] = new[-1]._replace(length=new[-1].length + length)
            else:
                new.append(_Stretch(instance, merged_counts[instance], length))
            merged_counts[instance] = end
        return new

    def _write(self, stretches: Sequence[_Stretch]) -> None:
        text = "".join(json.dumps(stretch) + "\n" for stretch in stretches).encode("ascii")
        # Bytes after the size are the rest of an attempt that a crash has interrupted: they are overwritten.
        self._size_bytes = append_to(self._path, text, at=self._size_bytes)

    def _append(self, stretches: Sequence[_Stretch]) -> None:
        for stretch in stretches:
            self._stretches.append(stretch)
            self._merged_counts[stretch.instance] += stretch.length
            self._ends.append(stretch.length + (self._ends[-1] if self._ends else 0))


def _even_selection(moments: set[float], max_count: int) -> list[float]:
    """Returns sorted times; of too many, an even selection."""
    ordered = sorted(moments)
    step = -(-len(ordered) // max_count)
    return ordered[::-step][::-1] if step > 1 else ordered


def _read(path: Path) -> tuple[list[_Stretch], int]:
    """Returns the stretches that were stored completely, and their size in bytes."""
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
