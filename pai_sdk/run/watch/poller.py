"""Calls a function periodically in a background thread, and at once on request."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Poller"]

logger = logging.getLogger(__name__)


class Poller:
    """Calls `work` every so often, in one daemon thread.

        idle ──(interval, or asked)──> working ──> idle … until closed

    A request that comes while `work` is running is not lost: `work` is called once more, since the call that is
    running may have passed what the request is about. Requests that wait for the same call share it.

    Args:
        work: what to do, called with True when a request waits for it. It returns True if it is to be called again
            at once, to go on; requests wait for the call that does not. What it raises is logged, and the thread
            goes on.
        every_s: the pause between two calls, in seconds; 0 for calls on request only.
        name: of the thread.
    """

    def __init__(self, work: Callable[[bool], bool | None], every_s: float, name: str) -> None:
        self._work = work
        self._every_s = every_s
        self._name = name
        self._state = threading.Condition()  # guards all below
        self._thread: threading.Thread | None = None
        self._begun = self._ended = 0
        self._wanted = 0  # the call that a thread waits for
        self._is_hurried = False  # the next call is to come at once
        self._is_closed = False

    def start(self) -> None:
        """Start the thread; the first call comes at once."""
        with self._state:
            self._wanted = max(self._wanted, 1)
            self._start()
            self._state.notify_all()

    def run(self, timeout_s: float | None) -> bool:
        """Wait for a call that begins after now; returns whether it has ended in time.

        Args:
            timeout_s: in seconds; None for ever.
        """
        with self._state:
            number = self._begun + 1
            self._wanted = max(self._wanted, number)
            self._start()
            self._state.notify_all()
            return self._wait_for(number, timeout_s)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the first call; returns whether it has ended in time."""
        with self._state:
            return self._wait_for(1, timeout_s)

    def run_until(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a call has made `is_done` true, calling `work` without pauses; returns whether it is in time.

        These are plain calls: `work` is not told that a request waits.

        Args:
            is_done: asked before and after each call, under the lock of this object: it must not wait.
            timeout_s: in seconds.
        """
        deadline = time.monotonic() + timeout_s
        with self._state:
            self._start()
            while not is_done():
                remaining_s = deadline - time.monotonic()
                if self._is_closed or remaining_s <= 0:
                    return False
                if not self._is_hurried:  # else several waiting threads would wake each other without end
                    self._is_hurried = True
                    self._state.notify_all()
                self._state.wait(remaining_s)
        return True

    @property
    def every_s(self) -> float:
        """The time between two calls, in seconds; it may be set at any time."""
        return self._every_s

    @every_s.setter
    def every_s(self, seconds: float) -> None:
        with self._state:
            self._every_s = seconds
            self._state.notify_all()

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._is_closed

    def close(self, deadline_s: float) -> bool:
        """End the thread; returns whether it has ended in time.

        Args:
            deadline_s: how long to wait for a call that is running, in seconds.
        """
        with self._state:
            self._is_closed = True
            thread = self._thread
            self._state.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(deadline_s)
            return not thread.is_alive()
        return True

    def _start(self) -> None:
        if self._thread is None and not self._is_closed:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _wait_for(self, number: int, timeout_s: float | None) -> bool:
        self._state.wait_for(lambda: self._ended >= number or self._is_closed, timeout_s)
        return self._ended >= number

    def _run(self) -> None:
        begun_at = time.monotonic()
        refresh: bool | None = False
        while True:
            with self._state:
                while not (self._is_closed or self._wanted > self._begun or self._is_hurried or refresh):
                    # Computed again after each wait: the time between two calls may have been changed.
                    pause = begun_at + self._every_s - time.monotonic() if self._every_s else None
                    if pause is not None and pause <= 0:
                        break
                    self._state.wait(pause)
                if self._is_closed:
                    return
                is_asked = self._wanted > self._begun
                self._begun += 1
                self._is_hurried = False
            begun_at = time.monotonic()
            refresh = False
            try:
                refresh = self._work(is_asked)
            except Exception:
                logger.exception("%s failed; it is called again", self._name)
            finally:
                with self._state:
                    if not refresh:
                        self._ended = self._begun
                    self._state.notify_all()
