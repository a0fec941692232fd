"""One order for the lines of several instances, which never changes: a page that was read once stays valid.

The order is created by reading: lines written since the last call are appended by the times at which the
instances wrote them; for equal times, instance after instance. The supervisors record the sizes of the logs
several times a second, which gives each line a time; the time at the beginning of a line, if it has one, makes
that exact. The order is stored in a file beside the logs, so it survives the process.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pai_sdk._core.files import append_to
from pai_sdk._data.logs.index import LogIndex
from pai_sdk._data.logs.stamps import stamp_of
from pai_sdk._data.logs.times import LogTimes

# Lines of the last moment wait: other instances may have written earlier ones that are not recorded yet.
_SETTLED_S = 0.5
_SAMPLER_S = 5.0  # a supervisor that has recorded no size of a growing log for so long does not record any more
_MAX_EXACT_LINES = 100_000  # in one update; the order of more lines is by some of the recorded times only
_MAX_EXACT_STRETCHES = 100_000  # 34 bytes each; beyond, lines of one second are in order of their instances
_BLOCK_BYTES = 4 << 20
_CONTINUED_S = 2.0  # so soon after a line, an indented line continues it, and after one with a time, one without
_TRACEBACK = b"Traceback (most recent call last)"
_STORED = re.compile(rb"\[(\d+), (\d+), (\d+)\]\n")


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

    def count_of(self, instance: int) -> int:
        """Returns the number of lines of an instance that are in the order; all of them."""
        return sys.maxsize

    def stretches_of(self, instance: int) -> tuple[Sequence[int], Sequence[int]]:
        """Returns the first lines of the stretches of an instance, and their numbers in the order."""
        return [0], [0]


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
        times: Sequence[Callable[[int], LogTimes]],  # called with the first byte that needs one
        *,
        max_times: int = 500,  # in one update of many lines, since each time costs a read of each log
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._logs = logs
        self._times = times
        self._max_times = max_times
        self._clock = clock
        self._lock = threading.Lock()
        self._is_loaded = False
        self._size_bytes = 0
        # By stretch: its instance, its first line, and the number after its last line.
        self._instances, self._starts, self._ends = array("H"), array("Q"), array("Q")
        # By instance: the first lines of its stretches, and their numbers.
        self._by_instance = [(array("Q"), array("Q")) for _ in logs]
        self._merged_counts = [0] * len(logs)  # lines of each log that are in the order
        self._merged_times = [0.0] * len(logs)  # of the last of them

    def update(self, *, is_open: bool) -> tuple[int, OSError | None]:
        """Appends new lines; returns the number of lines in the order, and the error of a full disk, if any."""
        with self._lock:
            # Counted before the times are read: lines written meanwhile wait for the next call.
            counts = [log.count(is_open=is_open) for log in self._logs]
            if not self._is_loaded:  # the stored order of an earlier process or object
                self._load(counts)
            new = self._new(counts, is_open=is_open)
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
        # `_append` extends `_ends` last: whatever it has, the other arrays have too.
        at = bisect_right(self._ends, first) if windows is None else 0
        # `first` counts the lines in the windows; without windows, all lines.
        before = self._ends[at - 1] if at else 0
        skipped = first - before
        for number in range(at, len(self._ends)):
            instance, start, end = self._instances[number], self._starts[number], self._ends[number]
            numbers, before = range(start, start + end - before), end
            if windows is not None:
                window = windows[instance]
                numbers = range(max(start, window.start), min(numbers.stop, window.stop))
            if numbers[skipped:]:
                yield instance, numbers[skipped:]
            skipped = max(0, skipped - len(numbers))

    def number_of(self, instance: int, line: int) -> int:
        """Returns the number of a line of one log in the order; for a future line, that of the next line."""
        if line >= self._merged_counts[instance]:
            return self._ends[-1] if self._ends else 0
        starts, numbers = self._by_instance[instance]
        at = bisect_right(starts, line) - 1
        return numbers[at] + line - starts[at]

    def count_of(self, instance: int) -> int:
        """Returns the number of lines of an instance that are in the order."""
        return self._merged_counts[instance]

    def stretches_of(self, instance: int) -> tuple[Sequence[int], Sequence[int]]:
        """Returns the first lines of the stretches of an instance, and their numbers in the order."""
        starts, numbers = self._by_instance[instance]
        # Copies: an array whose buffer is being read, such as by numpy, refuses to grow. `_append` extends the
        # starts last.
        starts = starts[:]
        return starts, numbers[: len(starts)]

    def _new(self, counts: Sequence[int], *, is_open: bool) -> list[_Stretch]:
        """Returns the lines that are not in order yet, by time, except lines that wait for other instances."""
        grown = [instance for instance, count in enumerate(counts) if count > self._merged_counts[instance]]
        # While a log is open, the others can get earlier lines after they were counted.
        if not grown or (len(grown) == 1 and not is_open):
            return [
                _Stretch(instance, self._merged_counts[instance], counts[instance] - self._merged_counts[instance])
                for instance in grown
            ]
        num_lines = sum(counts[instance] - self._merged_counts[instance] for instance in grown)
        times = {instance: self._times[instance](self._merged_bytes(instance)) for instance in grown}
        if num_lines > _MAX_EXACT_LINES:
            return self._by_recorded_times(times, counts)
        return self._by_lines(times, counts, is_open=is_open)

    def _merged_bytes(self, instance: int) -> int:
        """Returns the size of the lines of an instance that are in the order."""
        line = self._merged_counts[instance]
        return self._logs[instance].read(line, line + 1, is_open=False, max_bytes=0, max_line_bytes=0).start

    def _by_lines(self, times: Mapping[int, LogTimes], counts: Sequence[int], *, is_open: bool) -> list[_Stretch]:
        """Returns the new lines in the order of their own times."""
        now, horizon = self._clock(), float("inf")
        is_coarse = len(self._ends) > _MAX_EXACT_STRETCHES
        moments: list[tuple[float, int]] = []
        for instance, log_times in times.items():
            written = self._times_of_lines(instance, counts[instance], log_times)
            last = log_times.times[-1] if log_times.times else 0.0
            if is_open and 0 <= now - last < _SAMPLER_S:
                horizon = min(horizon, now - _SETTLED_S)
                # Lines that are not recorded yet will be soon.
                horizon = min(horizon, last) if written[-1] == float("inf") else horizon
            moments += [(float(int(at)) if is_coarse and at < float("inf") else at, instance) for at in written]
        stretches: list[_Stretch] = []
        merged = list(self._merged_counts)
        for at, instance in sorted(moments):
            if at > horizon:
                break
            if stretches and stretches[-1].instance == instance:
                stretches[-1] = stretches[-1]._replace(length=stretches[-1].length + 1)
            else:
                stretches.append(_Stretch(instance, merged[instance], 1))
            merged[instance] += 1
            self._merged_times[instance] = max(self._merged_times[instance], at if at < float("inf") else 0.0)
        return stretches

    def _times_of_lines(self, instance: int, count: int, times: LogTimes) -> list[float]:
        """Returns the times of the new lines of a log, ascending; infinity where none is recorded yet."""
        moments: list[float] = []
        line, last, stamp = self._merged_counts[instance], self._merged_times[instance], 0.0
        is_traceback = False
        while line < count:
            block = self._logs[instance].read(line, count, is_open=False, max_bytes=_BLOCK_BYTES)
            if not block.numbers:
                break
            for text, end in zip(block.lines, block.ends, strict=True):
                at = times.estimate(end - 1)
                if at is None:
                    moments.append(float("inf"))
                    continue
                if (written := stamp_of(text, at)) is not None:
                    stamp = at = written
                elif (is_traceback or text[:1].isspace()) and 0.0 <= at - last < _CONTINUED_S:
                    at = last
                elif 0.0 <= at - stamp < _CONTINUED_S:
                    at = stamp
                is_traceback = text.startswith(_TRACEBACK) or (is_traceback and text[:1].isspace())
                last = max(last, at)
                moments.append(last)
            line = block.numbers.stop
        return moments + [float("inf")] * (count - line)

    def _by_recorded_times(self, times: Mapping[int, LogTimes], counts: Sequence[int]) -> list[_Stretch]:
        """Returns many new lines in the order of some of the recorded times."""
        ends = [(float("inf"), instance, counts[instance]) for instance in times]
        min_time = min(self._merged_times[instance] for instance in times)
        recorded = {at for log_times in times.values() for at in log_times.times if at > min_time}
        for at in _even_selection(recorded, self._max_times):
            for instance, log_times in times.items():
                line = self._logs[instance].line_at(log_times.size_before(at))
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

    def _load(self, counts: Sequence[int]) -> None:
        """Loads the stored order; forgets it if it has more lines than the logs, of which one was cut short."""
        stretches, self._size_bytes = _read(self._path)
        stored = [0] * len(counts)
        for instance, _, length in stretches:
            stored[instance] += length
        if any(lines > count for lines, count in zip(stored, counts, strict=True)):
            self._path.unlink(missing_ok=True)
            stretches, self._size_bytes = [], 0
        self._append(stretches)
        self._is_loaded = True

    def _write(self, stretches: Sequence[_Stretch]) -> None:
        text = b"".join(b"[%d, %d, %d]\n" % stretch for stretch in stretches)
        # Bytes after the size are the rest of an attempt that a crash has interrupted: they are overwritten.
        self._size_bytes = append_to(self._path, text, at=self._size_bytes)

    def _append(self, stretches: Sequence[_Stretch]) -> None:
        for instance, start, length in stretches:
            number = self._ends[-1] if self._ends else 0
            starts, numbers = self._by_instance[instance]
            numbers.append(number)
            starts.append(start)
            self._merged_counts[instance] += length
            self._instances.append(instance)
            self._starts.append(start)
            self._ends.append(number + length)


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
    for match in _STORED.finditer(content):
        if match.start() != size_bytes:
            break  # the rest of a write that was interrupted
        stretches.append(_Stretch(int(match[1]), int(match[2]), int(match[3])))
        size_bytes = match.end()
    return stretches, size_bytes
