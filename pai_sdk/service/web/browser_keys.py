"""Access for browsers and programs: one-time codes, what they are exchanged for, and a token.

A code is exchanged for a cookie and a key. Browsers send a cookie to every server of this machine, whatever its
port, so a program that is such a server could send it on. The page has the key in its own storage, which belongs
to its port, and sends it as a header: only both together let a request in.
"""

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
        >>> cookie, key = keys.exchange(keys.new_code())
        >>> keys.is_page(cookie, key), keys.is_page(cookie, "made up")
        (True, False)
    """

    def __init__(self, token: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._token = _digest(token) if token else None
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[bytes, float] = {}
        self._cookies: dict[bytes, bytes] = {}  # each with the key of its page

    def new_code(self) -> str:
        """A code for the address of the page, valid for one use within a minute."""
        code = secrets.token_urlsafe(_BYTES)
        with self._lock:
            while len(self._codes) >= _MOST_CODES:
                del self._codes[next(iter(self._codes))]
            self._codes[_digest(code)] = self._clock() + _CODE_LIFE_S
        return code

    def exchange(self, code: str) -> tuple[str, str] | None:
        """The value of a cookie, and a key, for a code; None if the code was used, has expired or is not ours."""
        with self._lock:
            valid_until = self._codes.pop(_digest(code), None)
            if valid_until is None or valid_until < self._clock():
                return None
            cookie, key = secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES)
            while len(self._cookies) >= _MOST_COOKIES:
                del self._cookies[next(iter(self._cookies))]
            self._cookies[_digest(cookie)] = _digest(key)
            return cookie, key

    def is_page(self, cookie: str, key: str) -> bool:
        """True if these are a cookie that was given here, and the key that was given with it."""
        with self._lock:
            known = self._cookies.get(_digest(cookie))
        return known is not None and hmac.compare_digest(known, _digest(key))

    def is_token(self, value: str) -> bool:
        """True if it is the token for programs."""
        return self._token is not None and hmac.compare_digest(_digest(value), self._token)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
