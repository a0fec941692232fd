"""Permits to compute: one thread of a transfer at a time computes; the others wait for the network.

Each system call releases the interpreter's lock and acquires it again. With many computing threads, each call is a
thread switch. A download of 4 KiB needs 1.0 ms of processor time without permits, 0.3 ms with them.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

# A permit is held for 0.1 to 0.2 ms, and for 1 ms or more only by a thread that waits for a slow disk.
_MIN_FINISHED = 20


class Permits:
    """A permit for one thread at a time. It saves processor time, and protects no data: it is not a lock.

        hold() -- waits --> permit --> without_permit(): waits for a response -- waits --> permit --> end

    A thread that waits while few permits are released continues without one. So threads wait in parallel for a
    slow disk, such as a network file system.
    """

    def __init__(self, *, check_interval_s: float = 0.02) -> None:
        self._check_interval_s = check_interval_s
        self._lock = threading.Lock()
        # Written only by the thread that holds the permit, so it needs no lock.
        self._num_finished = 0

    def hold(self) -> AbstractContextManager[None]:
        """Waits for the permit, and holds it within the block, unless the other threads are slow."""
        return _PermitBlock(self)

    def acquire(self) -> None:
        """Waits for the permit; a thread that waits for slow threads continues without it."""
        _thread.permits = None
        before = self._num_finished
        while not self._lock.acquire(timeout=self._check_interval_s):
            # Few were released in this interval, so the holders wait for a disk: run in parallel with them.
            if self._num_finished - before < _MIN_FINISHED:
                return
            before = self._num_finished
        _thread.permits = self

    def release(self) -> None:
        """Gives the permit of this thread to another one."""
        self._num_finished += 1
        self._lock.release()


class _Thread(threading.local):
    permits: Permits | None = None


_thread = _Thread()


# Classes: a block of `contextlib.contextmanager` takes three times as long, three times for each small file.
class _PermitBlock:
    __slots__ = ("_outer", "_permits")

    def __init__(self, permits: Permits) -> None:
        self._permits = permits

    def __enter__(self) -> None:
        self._outer = _thread.permits
        self._permits.acquire()

    def __exit__(self, *exc: object) -> None:
        if _thread.permits is not None:
            _thread.permits.release()
        _thread.permits = self._outer


class without_permit:
    """Releases the permit of this thread, if it has one, while this thread waits for something."""

    __slots__ = ("_permits",)

    def __enter__(self) -> None:
        self._permits = permits = _thread.permits
        if permits is not None:
            # Another thread computes while this one waits.
            permits.release()
            _thread.permits = None

    def __exit__(self, *exc: object) -> None:
        if self._permits is not None:
            self._permits.acquire()
