"""Waiting for what other threads and processes do: for the event itself, and much longer than it ever takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["PATIENCE_S", "long_enough", "quickest", "until"]

Found = TypeVar("Found")

# A machine may be ten times as slow as ours, and busy with other tests; what never comes costs this only once.
PATIENCE_S = 60.0


def until(
    look: Callable[[], Found],
    what: str = "it",
    *,
    within_s: float = PATIENCE_S,
    pause_s: float = 0.02,
) -> Found:
    """Look again and again until something is found; returns it.

    Raises:
        AssertionError: nothing was found in time.
    """
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not come within {within_s:g} s"
        time.sleep(pause_s)
    return found


def long_enough(attempt: Callable[[float], Found], is_right: Callable[[Found], bool], *, first_s: float) -> Found:
    """What an attempt gives that has a time limit, with the first limit that leaves time for what comes before it.

    A limit that must pass in a test is short, and on a busy machine it may pass too early; the last try is judged.
    """
    for limit_s in (first_s, 10 * first_s, PATIENCE_S):
        found = attempt(limit_s)
        if is_right(found):
            break
    return found


def quickest(measure: Callable[[], float], *, enough_s: float, tries: int = 10) -> float:
    """The shortest of some measurements, for a promise about time.

    Other work on the machine spoils a few of them, but not all.
    """
    best = float("inf")
    for _ in range(tries):
        best = min(best, measure())
        if best < enough_s:
            break
    return best
