"""An engine that does not respond for a while: one warning when that begins, one when it is over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Absence"]

logger = logging.getLogger(__name__)

_PAUSE_S = 1.0


class Absence:
    """Says whether an engine responds, from the last requests to it. Safe to use from several threads.

    Args:
        clock: monotonic time in seconds.

    Example:
        >>> Absence().sentence
        ''
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._ask_again_at = 0.0

    @property
    def sentence(self) -> str:
        """The message for jobs; empty while the engine responds."""
        if self._since is None:
            return ""
        since = time.strftime("%H:%M:%S", time.localtime(self._since))
        return f"the Docker engine has not responded since {since}; the job is checked again when it does"

    @property
    def is_to_be_asked(self) -> bool:
        """Return whether it responds, or it is time for another request."""
        return self._since is None or self._clock() >= self._ask_again_at

    def begin(self, *, asked_at: float) -> None:
        """Note that it has not responded.

        Args:
            asked_at: when the request was sent, by the clock: after a slow failure, the pause is as long as the
                failure was.
        """
        with self._lock:
            now = self._clock()
            self._ask_again_at = now + max(_PAUSE_S, now - asked_at)
            if self._since is not None:
                return
            self._since = time.time() - (now - asked_at)
        logger.warning("%s", self.sentence)

    def end(self) -> None:
        """Note that it has responded."""
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            logger.warning("the Docker engine responds again, after %.0f s", time.time() - since)
