"""Runs a manager of runs only while clients use it: an idle service reads no files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pai_sdk._service.periodic_task import PeriodicTask

if TYPE_CHECKING:
    from pai_sdk._data.run.watch.manager import RunManager
    from pai_sdk._service.services.runs.source import RunSource

_CLOSE_S = 5.0
_SLOWEST_S = 60.0
_FRESH_S = 2.0  # wait of a returning client for the changes since its last request
_SETTLED_S = 3.0  # wait of a response for the last points of a finished job
_LOADED_S = 2.0  # wait of the first response for the files on the disk


class OnDemandManager:
    """Creates a manager at the first `get`, and closes it after some time without `get`.

        none ──(get)──> running ──(no get for `idle_s`)──> none;  close() from any state ──> none, finally

    `_lock` guards all fields and is held while a manager is created, which reads no files. A manager is closed
    outside of it.
    """

    def __init__(
        self,
        factory: Callable[[], RunManager],
        idle_s: float = 600.0,
        *,
        quiet_s: float = 10.0,  # an open page sends requests more often
        check_interval_s: float = 5.0,
    ) -> None:
        self._factory = factory
        self._idle_s = idle_s
        self._quiet_s = quiet_s
        self._check_interval_s = min(check_interval_s, idle_s)
        self._lock = threading.Lock()
        self._manager: RunManager | None = None
        self._used_at = 0.0
        self._refresh_s = 0.0  # interval of the manager while clients use it
        self._task = PeriodicTask("runs-idle", self._check_pause_s, self._close_when_idle)
        self._task.start()

    def get(self) -> RunManager:
        """Returns the manager; event streams call this at each poll, which keeps it running."""
        with self._lock:
            self._used_at = time.monotonic()
            if self._manager is None:
                self._manager = self._factory()
                self._refresh_s = self._manager.refresh_s
                self._task.wake()
            manager, was_slow = self._manager, self._manager.refresh_s > self._refresh_s
            if was_slow:
                manager.refresh_s = self._refresh_s
        if was_slow:  # outside of the lock: event streams acquire it four times a second
            _wait_for_pass(manager)
        return manager

    def close(self) -> None:
        """Closes the manager, if there is one."""
        with suppress(TimeoutError):  # it closes the manager of a slow disk
            self._task.close(_CLOSE_S)
        with self._lock:
            manager = self._detach()
        _close(manager)

    def _close_when_idle(self) -> None:
        with self._lock:
            idle_s = time.monotonic() - self._used_at
            if self._manager is not None and idle_s > self._quiet_s:
                # Without clients its passes become rare: a quarter of the time since the last `get`.
                self._manager.refresh_s = max(self._refresh_s, min(idle_s / 4, _SLOWEST_S))
            # Under the same lock as the check: a `get` in between would return a manager that is closed.
            manager = self._detach() if idle_s > self._idle_s else None
        _close(manager)

    def _check_pause_s(self) -> float | None:
        return None if self._manager is None else self._check_interval_s

    def _detach(self) -> RunManager | None:
        """Returns the manager, to be closed outside of the lock: a `get` meanwhile creates a new one."""
        manager, self._manager = self._manager, None
        return manager


def _close(manager: RunManager | None) -> None:
    if manager is not None:
        with suppress(TimeoutError):  # a slow disk; the daemon thread ends with the process
            manager.close(_CLOSE_S)


def _wait_for_pass(manager: RunManager) -> None:
    """Waits up to 2 s for a pass that starts after this call; later changes are not waited for."""
    requested_at, deadline = time.time(), time.monotonic() + _FRESH_S
    while (manager.state.loaded_at or 0.0) < requested_at and time.monotonic() < deadline:
        time.sleep(0.02)


def loaded(runs: RunSource, run_id: str | None = None) -> RunManager:
    """Returns the manager after its first scan and the last files of finished jobs; both waits are bounded."""
    manager = runs.manager
    if manager.state.loaded_at is None:
        with suppress(TimeoutError):  # a slow disk: the response is incomplete
            manager.wait_until_loaded(_LOADED_S)
    manager.wait_until_settled(runs.finished_at(run_id), _SETTLED_S)
    return manager
