"""One-time tickets: random strings that can be redeemed once for a value, within a minute."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

TICKET_LIFE_S = 60.0
_MAX_TICKETS = 100
_BYTES = 32


class Tickets(Generic[T]):
    """One-time tickets of one server process, for a sign-in or a download in a browser. Thread-safe.

    A ticket is a secret of 256 bits that fits into an address. Only its digest is stored. Beyond `max_tickets`,
    the oldest is dropped.
    """

    def __init__(
        self,
        *,
        life_s: float = TICKET_LIFE_S,
        max_tickets: int = _MAX_TICKETS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._life_s = life_s
        self._max_tickets = max_tickets
        self._clock = clock
        self._lock = threading.Lock()
        # By digest, oldest first, with the end of its validity.
        self._values: dict[bytes, tuple[float, T]] = {}

    def new_ticket(self, value: T) -> str:
        """Returns a ticket for the value. It consists of letters, digits, `-` and `_`."""
        ticket = secrets.token_urlsafe(_BYTES)
        with self._lock:
            while len(self._values) >= self._max_tickets:
                del self._values[next(iter(self._values))]
            self._values[_digest(ticket)] = (self._clock() + self._life_s, value)
        return ticket

    def redeem(self, ticket: str) -> T | None:
        """Redeems a ticket for its value; returns None if it was used, has expired or is unknown."""
        with self._lock:
            # The pop decides: of two requests with the same ticket, only the first gets the value.
            valid_until, value = self._values.pop(_digest(ticket), (0.0, None))
            return value if self._clock() <= valid_until else None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
