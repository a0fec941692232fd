"""A manager of runs that is there as long as somebody looks at runs: an idle service reads no files for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pai_sdk.run.manager import RunManager

__all__ = ["KeptManager", "loaded"]

_CLOSE_S = 5.0
_LOOK_S = 30.0
_LOADED_S = 2.0  # a first answer waits so long for what is on the disk already


class KeptManager:
    """Makes a manager when it is asked for, and closes it when it was not asked for in a while.

        none ──(get)──> running ──(not asked for `idle_s`)──> none;  close() from any state ──> none, for good

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
        self._closing = threading.Event()

    def get(self) -> RunManager:
        """The manager; event streams ask again and again, as long as they last."""
        with self._lock:
            self._used_at = time.monotonic()
            if self._manager is None:
                self._manager = self._make()
                threading.Thread(target=self._close_when_idle, name="runs-idle", daemon=True).start()
            return self._manager

    def close(self) -> None:
        """Close the manager, if there is one."""
        self._closing.set()
        self._end()

    def _close_when_idle(self) -> None:
        while not self._closing.wait(min(_LOOK_S, self._idle_s)):
            if time.monotonic() - self._used_at > self._idle_s:
                self._end()
                return

    def _end(self) -> None:
        with self._lock:
            manager, self._manager = self._manager, None
        if manager is not None:
            with suppress(TimeoutError):  # of a slow disk; its thread ends with the process
                manager.close(_CLOSE_S)


def loaded(manager: RunManager) -> RunManager:
    """The manager, after its first look at the disk; later where that takes long, and then not all is known."""
    if manager.state.loaded_at is None:
        with suppress(TimeoutError):
            manager.wait_until_loaded(_LOADED_S)
    return manager
