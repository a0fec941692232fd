"""Files of one instance that follow each other are one curve: which of their points count.

A training that is started again writes another file. Neither the name of its machine nor its clock says what the
file continues, so its content does: the steps.

    oldest ──> newest                 by the times in the names, unless steps contradict (a clock is behind)
    newer repeats the older           its steps count from its first one on: the rest of the older file is replaced
    newer adds to the older           it has few of the steps there: only equal steps are replaced

Standard library only: `JobPoints` uses it in a plain install. `bisect` takes lists and arrays.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Attempt", "Cut", "arranged", "began_of", "cuts", "head_end"]

_BEGAN = re.compile(r"(?:tfevents|summary)\.([0-9]+)")
_NUMBERS = re.compile(r"[0-9]+")
_HEAD_STEPS = 2  # by which it is seen whether a newer file repeats an older one
_MAX_DENSITY = 2  # a newer file repeats an older one that has at most so many points for each of its own
_CLOCK_OF_STORE_S = 60.0
"""A file that was changed so much later than another one was not written before it, by the clock of the store."""


class Attempt(NamedTuple):
    """What one file has of one tag.

    Attributes:
        began: when the file was begun by its name; anything that can be compared.
        changed_s: when it was changed, by the clock of the store; None where that is unknown.
        steps: of its points, sorted; at least one.
    """

    began: Any
    changed_s: float | None
    steps: Sequence[int]

    @property
    def first(self) -> int:
        """The least step."""
        return int(self.steps[0])

    @property
    def last(self) -> int:
        """The largest step."""
        return int(self.steps[-1])


class Cut(NamedTuple):
    """Which points of a file do not count.

    Attributes:
        limit: those of this step and of later ones; None for none.
        replaced_by: those with a step that one of these newer files has, by their numbers.
    """

    limit: int | None
    replaced_by: tuple[int, ...]


def arranged(attempts: Sequence[Attempt]) -> list[int]:
    """Returns the numbers of files of one tag, the oldest first.

    That is the order of the times in their names. A file that has a later first and last step than one that began
    later, and that continues no file before it, was written on a machine with a clock that is behind: it comes
    after the other one.

    Example:
        >>> first, second = Attempt(1790000600, None, range(0, 60)), Attempt(1790000000, None, range(50, 100))
        >>> arranged([first, second])
        [0, 1]
    """
    by_name = sorted(range(len(attempts)), key=lambda number: attempts[number].began)
    places: dict[int, tuple[int, int]] = {}
    for place, number in enumerate(by_name):
        one = attempts[number]
        in_place = [attempts[other] for other in by_name[:place] if places[other][1] < 0]
        anchor = place
        if not any(other.first < one.first for other in in_place):
            after = [at for at in range(place + 1, len(by_name)) if _continues(one, attempts[by_name[at]])]
            anchor = max(after, default=place)
        places[number] = (anchor, place if anchor != place else -1)
    return sorted(by_name, key=places.__getitem__)


def began_of(path: str) -> tuple[int, list[int], str]:
    """Returns when a file was begun, by the time in its name, then by the other numbers there."""
    name = path.rpartition("/")[2]
    began = _BEGAN.search(name)
    return int(began[1]) if began else 0, [int(number) for number in _NUMBERS.findall(name)], path


def cuts(steps: Sequence[Sequence[int]]) -> list[Cut]:
    """Returns which points of each file do not count.

    Args:
        steps: the sorted steps of each file, oldest first.

    Example:
        >>> cuts([range(0, 60), range(50, 100)])[0], cuts([range(0, 120), [50]])[0]
        (Cut(limit=50, replaced_by=()), Cut(limit=None, replaced_by=(1,)))
    """
    found = []
    for number, older in enumerate(steps):
        limit: int | None = None
        replaced_by = []
        for newer in range(number + 1, len(steps)):
            if _repeats(steps[newer], older):
                first = int(steps[newer][0])
                limit = first if limit is None else min(limit, first)
            else:
                replaced_by.append(newer)
        found.append(Cut(limit, tuple(replaced_by)))
    return found


def head_end(steps: Sequence[int]) -> tuple[int, bool]:
    """Returns the number of points with the first few steps, and whether there are as many steps as are needed."""
    end = 0
    for _ in range(_HEAD_STEPS):
        if end == len(steps):
            return end, False
        end = bisect_right(steps, steps[end], end)
    return end, True


def _continues(one: Attempt, other: Attempt) -> bool:
    """Returns True when a file goes on from another one, although its name says that it began earlier."""
    if other.first >= one.first or other.last >= one.last:
        return False
    times = one.changed_s, other.changed_s
    return times[0] is None or times[1] is None or times[1] - times[0] <= _CLOCK_OF_STORE_S


def _repeats(newer: Sequence[int], older: Sequence[int]) -> bool:
    """Returns True when a newer file has about as many points as an older one where it begins."""
    end, is_enough = head_end(newer)
    if not is_enough:
        return False
    between = bisect_right(older, newer[end - 1]) - bisect_left(older, newer[0])
    return between <= _MAX_DENSITY * end
