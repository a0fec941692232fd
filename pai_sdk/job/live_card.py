"""Updates the card of a job while the program does other things."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pai_sdk.display.base import Display
from pai_sdk.errors import PaiError
from pai_sdk.job.follow.polling import FollowPolicy
from pai_sdk.job.follow.watch import JobHandle
from pai_sdk.job.waiting import Waiting

__all__ = ["LiveCard"]

logger = logging.getLogger(__name__)


class _ClosedError(Exception):
    """The card was left to another display."""


def _forward(name: str) -> Callable[[LiveCard, Any], None]:
    def show(card: LiveCard, argument: Any) -> None:
        card._show(name, argument)

    return show


class LiveCard:
    """Follows one job in a thread and shows it, until the job ends or `close` is called.

        following -> ended: the job has ended, or cannot be followed
                  -> left: `close` was called; the thread ends with the next update, and shows nothing more

    `_lock` is held while the display is called, so after `close` returns the display is not touched again. The
    display takes its own lock within it, never the other way round.

    Args:
        job: the job; it keeps every new snapshot.
        display: what shows it.
        policy: how patiently to follow.
    """

    def __init__(self, job: JobHandle, display: Display, policy: FollowPolicy | None = None) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._display = display
        self._waiting = Waiting(job, self, policy or FollowPolicy())
        # In a copy of this context: it tells a notebook which cell to update.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._follow,), name=f"pai-card-{job.id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Show nothing more; returns at once."""
        with self._lock:
            self._is_closed = True

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; returns whether it has ended."""
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
        except Exception:  # a display that fails must not end in a traceback amid other cells
            logger.debug("a card is no longer updated", exc_info=True)

    def _show(self, name: str, argument: Any) -> None:
        with self._lock:
            if self._is_closed:
                raise _ClosedError
            getattr(self._display, name)(argument)

    # ---- as the display of the wait: every call is passed on, unless the card was left

    submitted = _forward("submitted")
    changed = _forward("changed")
    line = _forward("line")
    notice = _forward("notice")
    detached = _forward("detached")
    ended = _forward("ended")

    def beat(self) -> None:
        """Pass it on to a display that has a heartbeat."""
        self._beat("beat")

    def rest(self) -> None:
        """Likewise."""
        self._beat("rest")

    def _beat(self, name: str) -> None:
        with self._lock:
            method = getattr(self._display, name, None)
            if method is not None and not self._is_closed:
                method()
