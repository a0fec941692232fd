"""A manager of runs that is there as long as a client looks at runs: an idle service reads no files for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pai_sdk.run.watch.manager import RunManager
    from pai_sdk.service.runs.source import RunSource

__all__ = ["KeptManager", "loaded"]

_CLOSE_S = 5.0
_LOOK_S = 5.0
_QUIET_S = 10.0  # a page that is open asks more often
_SLOWEST_S = 60.0
_FRESH_S = 2.0  # a client that returns waits so long for what has happened meanwhile
_SETTLED_S = 3.0  # a response waits so long for the last points of a job that has finished
_LOADED_S = 2.0  # a first response waits so long for what is on the disk already


class KeptManager:
    """Makes a manager when it is asked for, and closes it when it was not asked for in a while.

        none ──(get)──> running ──(not asked for `idle_s`)──> none;  close() from any state ──> none, for good

    While it is not asked for, its passes become rare: the time between two is a quarter of that without a client.

    `_lock` guards all fields and is held while a manager is made, which reads no files. A manager is closed
    outside of it.

    Args:
        make: makes and starts a manager.
        idle_s: when it is closed, in seconds after the last `get`.
    """

    def __init__(self, make: Callable[[], RunManager], idle_s: float = 600.0) -> None:
        self._make = make
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._manager: RunManager | None = None
        self._used_at = 0.0
        self._refresh_s = 0.0  # of the manager, while clients ask
        self._closing = threading.Event()

    def get(self) -> RunManager:
        """The manager; event streams ask again and again, as long as they last."""
        with self._lock:
            self._used_at = time.monotonic()
            if self._manager is None:
                self._manager = self._make()
                self._refresh_s = self._manager.refresh_s
                threading.Thread(target=self._close_when_idle, name="runs-idle", daemon=True).start()
            manager, was_slow = self._manager, self._manager.refresh_s > self._refresh_s
            if was_slow:
                manager.refresh_s = self._refresh_s
        if was_slow:  # outside of the lock, which event streams need four times a second
            _wait_for_pass(manager)
        return manager

    def close(self) -> None:
        """Close the manager, if there is one."""
        self._closing.set()
        self._end()

    def _close_when_idle(self) -> None:
        while not self._closing.wait(min(_LOOK_S, self._idle_s)):
            with self._lock:
                idle_s = time.monotonic() - self._used_at
                if self._manager is not None and idle_s > _QUIET_S:
                    self._manager.refresh_s = max(self._refresh_s, min(idle_s / 4, _SLOWEST_S))
            if idle_s > self._idle_s:
                self._end()
                return

    def _end(self) -> None:
        with self._lock:
            manager, self._manager = self._manager, None
        if manager is not None:
            with suppress(TimeoutError):  # of a slow disk; its thread ends with the process
                manager.close(_CLOSE_S)


def _wait_for_pass(manager: RunManager) -> None:
    """Wait for the pass that begins now; not for long: what is known by then is shown."""
    asked_at, deadline = time.time(), time.monotonic() + _FRESH_S
    while (manager.state.loaded_at or 0.0) < asked_at and time.monotonic() < deadline:
        time.sleep(0.02)


def loaded(runs: RunSource, run_id: str | None = None) -> RunManager:
    """The manager of a source, after its first look at the disk and a look at what finished jobs wrote last.

    Both waits are bounded: where the disk is slow, not all is known.

    Args:
        runs: the source.
        run_id: the only run that matters; all of them without it.
    """
    manager = runs.manager
    if manager.state.loaded_at is None:
        with suppress(TimeoutError):
            manager.wait_until_loaded(_LOADED_S)
    manager.wait_until_settled(runs.finished_at(run_id), _SETTLED_S)
    return manager
