"""What lets a browser or a program in: one-time codes, the cookies that they are exchanged for, and a token."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable

__all__ = ["BrowserKeys"]

_CODE_LIFE_S = 60.0
_MOST_CODES = 20
_MOST_COOKIES = 100  # browsers that are logged in; the first one is logged out by one more
_BYTES = 32


class BrowserKeys:
    """Codes and cookies of one server process; they are worth nothing after it, and to another server.

    Only digests are kept. `_lock` guards them.

    Args:
        token: for programs; empty when there is none.
        clock: for tests.

    Example:
        >>> keys = BrowserKeys()
        >>> cookie = keys.exchange(keys.new_code())
        >>> keys.is_cookie(cookie), keys.is_cookie("made up")
        (True, False)
    """

    def __init__(self, token: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._token = _digest(token) if token else None
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[bytes, float] = {}
        self._cookies: dict[bytes, None] = {}

    def new_code(self) -> str:
        """A code for the address of the page: it is valid once, for a minute."""
        code = secrets.token_urlsafe(_BYTES)
        with self._lock:
            while len(self._codes) >= _MOST_CODES:
                del self._codes[next(iter(self._codes))]
            self._codes[_digest(code)] = self._clock() + _CODE_LIFE_S
        return code

    def exchange(self, code: str) -> str | None:
        """The value of a cookie for a code; None if the code was used, has expired or is not ours."""
        with self._lock:
            valid_until = self._codes.pop(_digest(code), None)
            if valid_until is None or valid_until < self._clock():
                return None
            cookie = secrets.token_urlsafe(_BYTES)
            while len(self._cookies) >= _MOST_COOKIES:
                del self._cookies[next(iter(self._cookies))]
            self._cookies[_digest(cookie)] = None
            return cookie

    def is_cookie(self, value: str) -> bool:
        """Whether it is the value of a cookie that was given here."""
        with self._lock:
            return _digest(value) in self._cookies

    def is_token(self, value: str) -> bool:
        """Whether it is the token for programs."""
        return self._token is not None and hmac.compare_digest(_digest(value), self._token)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
