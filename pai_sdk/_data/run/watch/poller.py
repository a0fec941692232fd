"""Calls a function periodically in a background thread, and at once on request."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Poller:
    """Calls `work` periodically, in one daemon thread.

        idle ──(interval or request)──> working ──> idle … until closed

    A request that arrives while `work` is running is not lost: `work` is called once more, since the running call
    may have passed the requested data already. Requests that wait for the same call share it. Exceptions of `work`
    are logged, and the thread continues.
    """

    def __init__(self, work: Callable[[bool], bool | None], every_s: float, name: str) -> None:
        # Called with True when a request waits for it. It returns True to be called again at once, to continue;
        # requests wait for the first call that does not.
        self._work = work
        self._every_s = every_s  # the pause between two calls; 0 for calls on request only
        self._name = name
        self._state = threading.Condition()  # guards all below
        self._thread: threading.Thread | None = None
        self._started = self._finished = 0
        self._requested = 0  # the number of the last call that a thread waits for
        self._is_hurried = False  # the next call starts without a pause
        self._is_closed = False

    def start(self) -> None:
        """Starts the thread and the first call."""
        with self._state:
            self._requested = max(self._requested, 1)
            self._start()
            self._state.notify_all()

    def run(self, timeout_s: float | None) -> bool:
        """Waits for a call that starts after now; returns whether it has finished in time."""
        with self._state:
            # The running call does not count: it may have passed the data that this request is about.
            number = self._started + 1
            self._requested = max(self._requested, number)
            self._start()
            self._state.notify_all()
            return self._wait_for(number, timeout_s)

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the first call; returns whether it has finished in time."""
        with self._state:
            return self._wait_for(1, timeout_s)

    def run_until(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Calls `work(False)` without pauses until `is_done` is true; returns whether that is in time."""
        deadline = time.monotonic() + timeout_s
        with self._state:
            self._start()
            # `is_done` is called under the lock, so it must not wait.
            while not is_done():
                remaining_s = deadline - time.monotonic()
                if self._is_closed or remaining_s <= 0:
                    return False
                if not self._is_hurried:  # otherwise several waiting threads would wake each other without end
                    self._is_hurried = True
                    self._state.notify_all()
                self._state.wait(remaining_s)
        return True

    @property
    def every_s(self) -> float:
        """The time between two calls, in seconds; can be set at any time."""
        return self._every_s

    @every_s.setter
    def every_s(self, seconds: float) -> None:
        with self._state:
            self._every_s = seconds
            self._state.notify_all()

    @property
    def was_started(self) -> bool:
        """True after the first request or `start`, and after `close`."""
        return self._thread is not None or self._is_closed

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._is_closed

    def close(self, deadline_s: float) -> bool:
        """Ends the thread; returns whether a running call has finished in time."""
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
        self._state.wait_for(lambda: self._finished >= number or self._is_closed, timeout_s)
        return self._finished >= number

    def _run(self) -> None:
        started_at = time.monotonic()
        should_continue: bool | None = False
        while True:
            with self._state:
                while not (
                    self._is_closed or self._requested > self._started or self._is_hurried or should_continue
                ):
                    # Computed again after each wait, because `every_s` may have been changed.
                    pause = started_at + self._every_s - time.monotonic() if self._every_s else None
                    if pause is not None and pause <= 0:
                        break
                    self._state.wait(pause)
                if self._is_closed:
                    return
                is_requested = self._requested > self._started
                self._started += 1
                self._is_hurried = False
            started_at = time.monotonic()
            should_continue = False  # also after an exception: the interval limits repeated failures
            try:
                should_continue = self._work(is_requested)
            except Exception:
                logger.exception("%s failed; it is called again", self._name)
            finally:
                with self._state:
                    # Requests wait for the end of a chain of calls, not for the first part of it.
                    if not should_continue:
                        self._finished = self._started
                    self._state.notify_all()
