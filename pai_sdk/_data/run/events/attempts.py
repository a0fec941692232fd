"""Decides which points of successive files of one instance count, so that the files are one curve.

A training that is restarted writes another file. Neither the name of its machine nor its clock identifies the
file that it continues, so the steps do.

    oldest ──> newest                 by the times in the names, unless steps contradict (a clock is behind)
    newer repeats the older           its points replace those of the older file from its first step on
    newer adds to the older           it has few of the steps in that range: only equal steps are replaced

Standard library only: `JobPoints` uses it in a plain install. `bisect` takes lists and arrays.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

_START_TIME = re.compile(r"(?:tfevents|summary)\.([0-9]+)")
_NUMBERS = re.compile(r"[0-9]+")
_HEAD_STEPS = 2  # the first steps of a newer file decide whether it repeats an older one
_MAX_DENSITY = 2  # points of the older file for each point of a newer file that repeats it
# Times of one store come from one clock: a file changed so much later than another was not written before it.
_CLOCK_OF_STORE_S = 60.0


class Attempt(NamedTuple):
    """The points of one tag in one file."""

    started: Any  # when the file was started, by its name; any sort key
    changed_s: float | None  # when the file was changed, by the clock of the store; None where that is unknown
    steps: Sequence[int]  # of the points, sorted; at least one

    @property
    def first(self) -> int:
        """Returns the smallest step."""
        return int(self.steps[0])

    @property
    def last(self) -> int:
        """Returns the largest step."""
        return int(self.steps[-1])


class Replacement(NamedTuple):
    """The points of a file that newer files replace."""

    limit: int | None  # points of this step and of later ones do not count; None for no limit
    replaced_by: tuple[int, ...]  # the numbers of newer files; points with one of their steps do not count


def oldest_first(attempts: Sequence[Attempt]) -> list[int]:
    """Returns the numbers of files of one tag, the oldest first."""
    by_name = sorted(range(len(attempts)), key=lambda number: attempts[number].started)
    # The order is that of the times in the names. A file whose first and last step are later than those of a file
    # with a later name, and that continues no file before it, comes from a machine whose clock is behind: it is
    # sorted after that file.
    positions: dict[int, tuple[int, int]] = {}
    for position, number in enumerate(by_name):
        attempt = attempts[number]
        in_order = [attempts[other] for other in by_name[:position] if positions[other][1] < 0]
        anchor = position
        if not any(other.first < attempt.first for other in in_order):
            after = [at for at in range(position + 1, len(by_name)) if _continues(attempt, attempts[by_name[at]])]
            anchor = max(after, default=position)
        positions[number] = (anchor, position if anchor != position else -1)
    return sorted(by_name, key=positions.__getitem__)


def start_order(path: str) -> tuple[int, list[int], str]:
    """Returns a sort key: the start time in the name of a file, then all numbers in the name."""
    name = path.rpartition("/")[2]
    started = _START_TIME.search(name)
    return int(started[1]) if started else 0, [int(number) for number in _NUMBERS.findall(name)], path


def replacements(steps: Sequence[Sequence[int]]) -> list[Replacement]:
    """Returns the points of each file that newer files replace; `steps` are sorted, the oldest file first."""
    per_file = []
    for number, older in enumerate(steps):
        limit: int | None = None
        replaced_by = []
        for newer in range(number + 1, len(steps)):
            if _repeats(steps[newer], older):
                first = int(steps[newer][0])
                limit = first if limit is None else min(limit, first)
            else:
                replaced_by.append(newer)
        per_file.append(Replacement(limit, tuple(replaced_by)))
    return per_file


def head_end(steps: Sequence[int]) -> tuple[int, bool]:
    """Returns the number of points with the first few steps, and whether the file has that many steps."""
    end = 0
    for _ in range(_HEAD_STEPS):
        if end == len(steps):
            return end, False
        end = bisect_right(steps, steps[end], end)
    return end, True


def _continues(attempt: Attempt, other: Attempt) -> bool:
    """Returns True when a file continues another one, although its name has an earlier start time."""
    if other.first >= attempt.first or other.last >= attempt.last:
        return False
    times = attempt.changed_s, other.changed_s
    return times[0] is None or times[1] is None or times[1] - times[0] <= _CLOCK_OF_STORE_S


def _repeats(newer: Sequence[int], older: Sequence[int]) -> bool:
    """Returns True when a newer file has about as many points as the older one at its first steps."""
    end, is_enough = head_end(newer)
    if not is_enough:
        return False
    between = bisect_right(older, newer[end - 1]) - bisect_left(older, newer[0])
    return between <= _MAX_DENSITY * end
