"""Tracks an engine that does not respond: one warning at the start of the outage, one at its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Absence"]

logger = logging.getLogger(__name__)

_PAUSE_S = 1.0


class Absence:
    """Records whether an engine responds, from the last requests to it. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._next_call_at = 0.0

    @property
    def sentence(self) -> str:
        """Returns the message for jobs; empty while the engine responds."""
        if self._since is None:
            return ""
        since = time.strftime("%H:%M:%S", time.localtime(self._since))
        return f"the Docker engine has not responded since {since}; the job is checked again when it does"

    @property
    def should_call(self) -> bool:
        """Returns whether the engine responds, or the next attempt is due."""
        return self._since is None or self._clock() >= self._next_call_at

    def record_failure(self, *, sent_at: float) -> None:
        """Records a request that was sent at this time of the clock and got no response."""
        with self._lock:
            now = self._clock()
            # After a slow failure the pause is as long as the failure, so a hanging engine costs half of the
            # time at most.
            self._next_call_at = now + max(_PAUSE_S, now - sent_at)
            if self._since is not None:
                return
            self._since = time.time() - (now - sent_at)
        # Logged outside the lock, and only by the thread that set `_since`.
        logger.warning("%s", self.sentence)

    def record_response(self) -> None:
        """Records a response."""
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            logger.warning("the Docker engine responds again, after %.0f s", time.time() - since)
