"""Turns: of the threads of a transfer, one at a time computes; the others wait for the network.

Each system call releases the interpreter's lock, and takes it again afterwards. With many threads that compute,
each call is a change of threads. A download of 4 KiB needs 1.0 ms of processor time without turns, 0.3 ms with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Turns", "without_turn"]

_LOOKS_AFTER_S = 0.02
_FEWEST_TURNS = 20  # in that time: a turn takes 0.1 to 0.2 ms, and 1 ms or more only when it waits for a slow disk


class Turns:
    """A turn for one thread at a time. It saves processor time, and protects no data: it is not a lock.

        take() -- waits --> turn --> without_turn(): a response is awaited -- waits --> turn --> end

    A thread that waits while few turns end goes on without one. So threads wait side by side for a slow disk, such
    as a network file system.

    Example:
        >>> turns = Turns()
        >>> with turns.take():
        ...     with without_turn():
        ...         pass
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = 0  # turns; changed by the thread that has one

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait for the turn, and have it within the block, unless turns take too long."""
        outer = _thread.turns
        self._begin()
        try:
            yield
        finally:
            if _thread.turns is not None:
                _thread.turns._end()
            _thread.turns = outer

    def _begin(self) -> None:
        _thread.turns = None
        before = self._ended
        while not self._lock.acquire(timeout=_LOOKS_AFTER_S):
            if self._ended - before < _FEWEST_TURNS:
                return
            before = self._ended
        _thread.turns = self

    def _end(self) -> None:
        self._ended += 1
        self._lock.release()


class _Thread(threading.local):
    turns: Turns | None = None


_thread = _Thread()


@contextmanager
def without_turn() -> Iterator[None]:
    """Give the turn of this thread, if it has one, to another thread while this one waits for something."""
    turns = _thread.turns
    if turns is None:
        yield
        return
    turns._end()
    _thread.turns = None
    try:
        yield
    finally:
        turns._begin()
