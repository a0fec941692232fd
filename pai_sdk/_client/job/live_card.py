"""Updates the card of a job in the background."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pai_sdk._client.display.base import Display
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.watch import JobHandle
from pai_sdk._client.job.waiting import Waiting
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)


class _ClosedError(Exception):
    """Raised when the card was closed: another display has replaced it."""


def _forward(name: str) -> Callable[[LiveCard, Any], None]:
    def show(card: LiveCard, argument: Any) -> None:
        card.show_on(name, argument)

    return show


class LiveCard:
    """Follows one job in a thread and displays it, until the job has finished or `close` is called.

        following -> finished: the job has finished, or cannot be followed
                  -> closed: `close` was called; the thread exits with the next update, and displays nothing more

    `_lock` is held while the display is called, so the display is not used any more after `close` has returned.
    The display acquires its own lock within it, never the other way round.
    """

    def __init__(self, job: JobHandle, display: Display, policy: FollowPolicy | None = None) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._display = display
        self._waiting = Waiting(job, self, policy or FollowPolicy())
        # In a copy of this context: the kernel finds the cell to update in it.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._follow,), name=f"pai-card-{job.id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops displaying, without waiting for the thread."""
        # Under the lock: a draw that is under way is finished before another display uses the same place.
        with self._lock:
            self._is_closed = True

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread; returns whether it has exited."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _follow(self) -> None:
        try:
            self.ended(self._waiting.wait(None, show_logs=True, stops=False))
        except _ClosedError:
            pass
        except PaiError as error:
            with suppress(_ClosedError):
                self.notice(f"no longer updated: {error}")
        except Exception:  # a failing display must not print a traceback into other cells
            logger.debug("a card is no longer updated", exc_info=True)

    def show_on(self, name: str, argument: Any) -> None:
        with self._lock:
            if self._is_closed:
                raise _ClosedError  # ends the wait in the thread of the card
            getattr(self._display, name)(argument)

    # ---- as the display of the wait: every call is forwarded, unless the card was closed

    submitted = _forward("submitted")
    changed = _forward("changed")
    line = _forward("line")
    notice = _forward("notice")
    detached = _forward("detached")
    ended = _forward("ended")

    def beat(self) -> None:
        """Forwards the call to a display that has a heartbeat."""
        self._beat("beat")

    def stop_beat(self) -> None:
        """Forwards the call to a display that has a heartbeat."""
        self._beat("stop_beat")

    def _beat(self, name: str) -> None:
        with self._lock:
            method = getattr(self._display, name, None)
            if method is not None and not self._is_closed:
                method()
