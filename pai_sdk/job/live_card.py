"""A card that goes on updating while the program does other things."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable

from pai_sdk.backend.base import Backend
from pai_sdk.display.base import Display
from pai_sdk.errors import PaiError
from pai_sdk.job.polling import FollowPolicy
from pai_sdk.job.waiting import Waiting
from pai_sdk.schemas.record import JobRecord, LogLine

__all__ = ["LiveCard"]

logger = logging.getLogger(__name__)


class _LeftError(Exception):
    """The card was left to another display."""


class LiveCard:
    """Follows one job in a thread and shows it, until the job ends or `leave` is called.

        following -> ended: the job has ended, or cannot be followed
                  -> left: `leave` was called; the thread ends with the next update, and shows nothing more

    `_lock` is held while the display is called, so after `leave` returns the display is not touched again. The
    display takes its own lock within it, never the other way round.

    Args:
        backend: where the job runs.
        job_id: the job.
        seen: its last snapshot, if known.
        on_snapshot: called with every new snapshot.
        display: what shows it.
        policy: how patiently to follow.
    """

    def __init__(
        self,
        backend: Backend,
        job_id: str,
        seen: JobRecord | None,
        on_snapshot: Callable[[JobRecord], None],
        display: Display,
        policy: FollowPolicy | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._is_left = False
        self._display = display
        self._waiting = Waiting(backend, job_id, seen, on_snapshot, self, policy or FollowPolicy())
        # In a copy of this context: it tells a notebook which cell to update.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._follow,), name=f"pai-card-{job_id}", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Show nothing more; returns at once."""
        with self._lock:
            self._is_left = True

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; returns whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _follow(self) -> None:
        try:
            record = self._waiting.wait(None, show_logs=True, stops=False)
            self._show(lambda: self._display.ended(record))
        except _LeftError:
            return
        except PaiError as error:
            try:
                self.notice(f"no longer updated: {error}")
            except _LeftError:
                return
        except Exception:  # a display that fails must not end in a traceback amid other cells
            logger.debug("a card is no longer updated", exc_info=True)

    def _show(self, draw: Callable[[], None]) -> None:
        with self._lock:
            if self._is_left:
                raise _LeftError
            draw()

    # ---- as the display of the wait

    def submitted(self, record: JobRecord) -> None:
        """Pass it on."""
        self._show(lambda: self._display.submitted(record))

    def changed(self, record: JobRecord) -> None:
        """Pass it on."""
        self._show(lambda: self._display.changed(record))

    def line(self, line: LogLine) -> None:
        """Pass it on."""
        self._show(lambda: self._display.line(line))

    def notice(self, text: str) -> None:
        """Pass it on."""
        self._show(lambda: self._display.notice(text))

    def detached(self, record: JobRecord) -> None:
        """Pass it on."""
        self._show(lambda: self._display.detached(record))

    def ended(self, record: JobRecord) -> None:
        """Pass it on."""
        self._show(lambda: self._display.ended(record))

    def beat(self) -> None:
        """Pass it on, unless the card was left."""
        self._beat("beat")

    def rest(self) -> None:
        """Pass it on, unless the card was left."""
        self._beat("rest")

    def _beat(self, name: str) -> None:
        with self._lock:
            draw = getattr(self._display, name, None)
            if draw is not None and not self._is_left:
                draw()
