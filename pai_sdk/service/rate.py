"""A limit for the requests of each access key: a token bucket that fills at a steady rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["KeyRates", "RateLimit"]


class RateLimit:
    """A number of requests a second, with bursts of a few seconds' worth.

    Example:
        >>> limit = RateLimit(2.0, burst_s=1.0, clock=lambda: 0.0)
        >>> [limit.take() for _ in range(3)]
        [0.0, 0.0, 0.5]
    """

    def __init__(self, per_s: float, *, burst_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._capacity = max(1.0, per_s * burst_s)
        self._clock = clock
        self._tokens = self._capacity
        self._filled_at = clock()
        self._lock = threading.Lock()

    def acquire(self) -> float:
        """Count one request: 0 when it may pass, else the seconds until one may; then it was not counted."""
        now = self._clock()
        with self._lock:
            self._tokens = min(self._capacity, self._tokens + (now - self._filled_at) * self._per_s)
            self._filled_at = now
            if self._tokens >= 1:
                self._tokens -= 1
                return 0.0
            return (1 - self._tokens) / self._per_s


class KeyRates:
    """A limit of its own for each key. Only keys that were checked are counted, so there are as many as keys.

    Args:
        per_s: requests a second of one key; None for any number.
    """

    def __init__(self, per_s: float | None) -> None:
        self._per_s = per_s
        self._lock = threading.Lock()
        self._limits: dict[str, RateLimit] = {}

    def acquire(self, key_id: str) -> float:
        """Count one request: 0 when it may pass, else the seconds until one may; then it was not counted."""
        if self._per_s is None:
            return 0.0
        with self._lock:
            limit = self._limits.setdefault(key_id, RateLimit(self._per_s))
        return limit.acquire()
