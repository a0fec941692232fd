"""The nonces of the requests that were accepted, so that none is accepted twice."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["NonceMemory"]


class NonceMemory:
    """Remembers nonces for as long as a request with one would still be accepted, and no more than so many.

    Over the limit the oldest are forgotten first. Nothing is remembered across a restart.

    Example:
        >>> memory = NonceMemory(lifetime_s=60)
        >>> memory.is_new("a"), memory.is_new("a")
        (True, False)
    """

    def __init__(
        self, *, lifetime_s: float, most: int = 300_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lifetime_s = lifetime_s
        self._most = most
        self._clock = clock
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._lock = threading.Lock()

    def is_new(self, nonce: str) -> bool:
        """Note a nonce; False when it was noted before."""
        digest = hashlib.blake2b(nonce.encode(errors="surrogateescape"), digest_size=12).digest()
        now = self._clock()
        with self._lock:
            while self._seen and next(iter(self._seen.values())) <= now:
                self._seen.popitem(last=False)
            if digest in self._seen:
                return False
            if len(self._seen) >= self._most:
                self._seen.popitem(last=False)
            self._seen[digest] = now + self._lifetime_s
            return True
