"""A function that one thread calls again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

_RETRY_S = 5.0
_STANDBY_CHECK_S = 0.05  # while another service may hold the lease


class PeriodicTask:
    """Calls `run` in a daemon thread: after `start`, after each `interval` (seconds), and soon after `wake`.

    A function as `interval` is called after each call of `run`; its result None means: wait for `wake`. An error
    of either is reported, and `run` is called again after `retry_s`. While `can_act` returns False, nothing is
    called.
    """

    def __init__(
        self,
        name: str,
        interval: float | Callable[[], float | None],
        run: Callable[[], object],
        *,
        retry_s: float = _RETRY_S,
        on_error: Callable[[Exception], object] | None = None,
        can_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self.closing = threading.Event()
        """Set when `run` should return early."""
        self._interval, self._call, self._can_act = interval, run, can_act
        self._retry_s, self._on_error = retry_s, on_error or self._log_error
        self._woken = threading.Event()
        self._is_unfinished = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._is_unfinished = True
        self._thread.start()

    def wake(self) -> None:
        """Requests a call of `run` that begins after this; requests during a call share the next one."""
        self._woken.set()

    def close(self, deadline_s: float | None = None) -> None:
        """Stops the thread after the current call; raises TimeoutError if that takes longer than the deadline."""
        self.closing.set()
        self._woken.set()
        if self.is_alive:
            self._thread.join(deadline_s)
        if self.is_alive:
            raise TimeoutError(f"the thread {self._thread.name} still runs")

    @property
    def is_alive(self) -> bool:
        """Returns True while the thread runs."""
        return self._thread.is_alive()

    @property
    def is_pending(self) -> bool:
        """Returns True from `start` or `wake` until a call that began after it has succeeded."""
        return self._woken.is_set() or self._is_unfinished

    def _run(self) -> None:
        while not self.closing.is_set():
            if not self._can_act():
                self.closing.wait(_STANDBY_CHECK_S)
                continue
            # In this order, so that `is_pending` stays True in between.
            self._is_unfinished = True
            # Cleared before the call: a wake during the call may be about what it has already read.
            self._woken.clear()
            try:
                self._call()
                pause_s = self._interval() if callable(self._interval) else self._interval
                self._is_unfinished = False
            except Exception as error:  # for example a full disk
                self._on_error(error)
                pause_s = self._retry_s
            # Checked after `clear`, which may have cleared the event of `close`.
            if not self.closing.is_set():
                self._woken.wait(pause_s)

    def _log_error(self, error: Exception) -> None:
        logger.error("the thread %s failed, and tries again", self._thread.name, exc_info=error)
