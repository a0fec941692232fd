"""Access for browsers and programs: one-time codes, the credentials they are exchanged for, and a token.

A code is exchanged for a cookie and a key. Browsers send a cookie to every server of this machine, whatever its
port, so a program with such a server could forward it. The page has the key in its own storage, which belongs to
its port: only both together admit a request. Scripts cannot read the cookie. Scripts can use the key and cannot
read it: the browser stores it as a `CryptoKey` that is not exportable, and the page sends a proof made with it,
which is valid for one method and path, and for a few minutes. Browsers offer that in secure contexts only (HTTPS,
or this machine); otherwise the page sends the key itself.

A cookie contains its expiry and a signature of it, and its key is another signature of the same value. So a page
stays signed in after a restart of the service, as long as the service has the same secret. The server stores only
the ids of cookies that a sign-out has ended.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from pai_sdk._service.identity.page_sessions import EndedPageSessions
from pai_sdk._service.services.tickets import Tickets

SIGNED_IN_S = 7 * 24 * 3600
"""The lifetime of a cookie in seconds."""

_MAX_CODES = 20
_BYTES = 32
_PROOF_S = 300  # the page corrects its clock by the server's
_PROOF = re.compile(r"(\d{1,12})\.([0-9a-f]{64})")
_COOKIE = re.compile(r"((\d{1,12})\.([A-Za-z0-9_-]{43})\.([A-Za-z0-9]{0,64}))\.([0-9a-f]{64})")


class PageSession(NamedTuple):
    """A valid sign-in of a browser."""

    id: str
    access_key_id: str  # empty for the service's own key


class BrowserKeys:
    """Codes of one server process, and their cookies and keys. Safe to use from several threads."""

    def __init__(
        self,
        secret: bytes | None = None,
        token: str = "",
        *,
        ended: EndedPageSessions | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        # Signs cookies and keys; a random one makes them invalid after this process.
        self._secret = secret or secrets.token_bytes(_BYTES)
        self._token = _digest(token) if token else None
        self._ended = EndedPageSessions() if ended is None else ended
        self._codes = Tickets[str](max_tickets=_MAX_CODES, clock=clock)
        self._now = now

    def new_code(self, access_key_id: str = "") -> str:
        """Returns a code for the address of the page, valid for one use within a minute."""
        return self._codes.new_ticket(access_key_id)

    def exchange(self, code: str) -> tuple[str, str] | None:
        """Returns the value of a cookie, and a key, for a code; None if it was used, has expired or is invalid."""
        access_key_id = self._codes.redeem(code)
        if access_key_id is None:
            return None
        claims = f"{int(self._now()) + SIGNED_IN_S}.{secrets.token_urlsafe(_BYTES)}.{access_key_id}"
        return f"{claims}.{self._signature('cookie', claims)}", self._signature("key", claims)

    def session_of(self, cookie: str, credential: str, request: str = "") -> PageSession | None:
        """Returns the sign-in of a page; None if it is not signed in, or has signed out."""
        match = _COOKIE.fullmatch(cookie)
        if match is None:
            return None
        claims, expiry, session_id, access_key_id, signature = match.groups()
        is_signed = _is_same(signature, self._signature("cookie", claims))
        # `credential` is the key of the cookie, or a proof that the page has it: `TIME.HMAC`, the HMAC-SHA256 of
        # `TIME METHOD PATH` with that key.
        has_key = self._has_key(self._signature("key", claims), credential, request)
        is_valid = is_signed and has_key and self._now() < int(expiry) and session_id not in self._ended
        return PageSession(session_id, access_key_id) if is_valid else None

    def end(self, session_id: str) -> None:
        """Ends a sign-in: its cookie and its key are refused from now on."""
        self._ended.add(session_id, self._now() + SIGNED_IN_S)

    def is_token(self, value: str) -> bool:
        """Returns whether it is the token for programs."""
        return self._token is not None and hmac.compare_digest(_digest(value), self._token)

    def _has_key(self, key: str, credential: str, request: str) -> bool:
        """Returns whether the page has sent the key, or a recent proof for this request."""
        proof = _PROOF.fullmatch(credential)
        if proof is None:
            return _is_same(credential, key)
        sent_at, signature = proof.groups()
        expected = hmac.new(key.encode(), f"{sent_at} {request}".encode(), hashlib.sha256).hexdigest()
        return _is_same(signature, expected) and abs(self._now() - int(sent_at)) <= _PROOF_S

    def _signature(self, purpose: str, claims: str) -> str:
        return hmac.new(self._secret, f"{purpose} {claims}".encode(), hashlib.sha256).hexdigest()


def page_secret(access_key_secret: str, port: int) -> bytes:
    """Returns the secret that signs the cookies of a service, different for each access key and port."""
    return hmac.new(access_key_secret.encode(), f"pai-sdk page on port {port}".encode(), hashlib.sha256).digest()


def _is_same(actual: str, expected: str) -> bool:
    # Digests have equal lengths, so the comparison reveals neither content nor length.
    return hmac.compare_digest(_digest(actual), _digest(expected))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
