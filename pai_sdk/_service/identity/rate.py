"""Rate limits for the requests of each access key: a token bucket that fills at a steady rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimit:
    """Limits requests per second, with bursts of a few seconds' worth."""

    def __init__(self, per_s: float, *, burst_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._capacity = max(1.0, per_s * burst_s)
        self._clock = clock
        self._tokens = self._capacity
        self._filled_at = clock()
        self._lock = threading.Lock()

    def acquire(self) -> float:
        """Counts a request and returns 0; if none is left, returns the seconds until the next one is allowed."""
        now = self._clock()
        with self._lock:
            # Refilled on demand, so no timer is needed.
            self._tokens = min(self._capacity, self._tokens + (now - self._filled_at) * self._per_s)
            self._filled_at = now
            if self._tokens >= 1:
                self._tokens -= 1
                return 0.0
            return (1 - self._tokens) / self._per_s


class KeyRates:
    """A separate limit for each key; `per_s` None is no limit."""

    def __init__(self, per_s: float | None) -> None:
        self._per_s = per_s
        self._lock = threading.Lock()
        # Only verified keys are counted, so it has at most as many entries as there are keys.
        self._limits: dict[str, RateLimit] = {}

    def acquire(self, key_id: str) -> float:
        """Counts a request and returns 0; if none is left, returns the seconds until the next one is allowed."""
        if self._per_s is None:
            return 0.0
        with self._lock:
            # Under the lock: the first requests of a key must share one limit.
            limit = self._limits.setdefault(key_id, RateLimit(self._per_s))
        return limit.acquire()
