"""Checks requests before an application, which trusts them: request ids, admission, size of bodies."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pai_sdk._service.http.content_headers import with_missing_headers
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.state.disk import is_disk_full, is_read_only
from pai_sdk._service.wire_errors import WireError, invalid_parameter, wire_error_response

logger = logging.getLogger(__name__)

REFUSED_AS = "refused_as"
"""In the state of a request: the code of the error with which it was refused."""

CLAIMED_KEY = "claimed_key"
"""In the state of a refused request: the access key that it names, if there is such a key."""

Audit: TypeAlias = Callable[[Scope, int], Awaitable[None]]
"""Records a request, given its scope and the status of its response."""


class _KeyRevokedError(Exception):
    """Raised when the key of a request was revoked or has expired during the response."""


class Gate:
    """Passes requests that `admit` accepts to an application, each with its body and a request id.

    `admit` puts the `Principal` of a request into `scope["state"]["principal"]`. The id is in
    `scope["state"]["request_id"]` and in the header `x-acs-request-id` of every response.

    Args:
        admit: called before the body is read, raises a `WireError` to refuse; its result is called with the body.
        headers: of every response, unless the application has set them itself.
        audit: called with each request that was admitted or refused, once its response has a status.
        refusal: returns why a request may not continue that was admitted earlier, such as a revoked key. Then the
            response is refused, or truncated.
    """

    def __init__(
        self,
        app: ASGIApp,
        admit: Callable[[Scope], Callable[[bytes], None]],
        *,
        max_body_bytes: int,
        headers: Sequence[tuple[bytes, bytes]] = (),
        audit: Audit | None = None,
        refusal: Callable[[Principal], WireError | None] = lambda principal: None,
    ) -> None:
        self._app = app
        self._admit = admit
        self._max_body_bytes = max_body_bytes
        self._headers = tuple(headers)
        self._audit = audit
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        exchange = _Exchange(scope, receive, send, headers=self._headers, audit=self._audit, refusal=self._refusal)
        try:
            check_body = self._admit(scope)
            body = await self._body(scope, receive)
            check_body(body)
        except WireError as error:
            logger.debug("%s refused: %s", scope["path"], error.code)
            await exchange.refuse(error)
            return
        try:
            await self._app(scope, _replay(body, receive), exchange.send)
        except Exception as error:  # the client has its response: the connection stays usable
            if exchange.revoked is not None:  # the application may have wrapped the error of `send`
                await exchange.end_revoked(exchange.revoked)
            else:
                _log_failure(error, f"request {exchange.request_id} {scope['method']} {scope['path']}")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        length = dict(scope["headers"]).get(b"content-length", b"")
        if length.isdigit() and int(length) > self._max_body_bytes:
            raise self._too_large()
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise invalid_parameter("The body is incomplete.")
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._max_body_bytes:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> WireError:
        message = f"The body has more than {self._max_body_bytes} bytes; hand large values over as an input."
        return WireError(413, "RequestTooLarge", message)


class _Exchange:
    """One request and its response, which ends when the key of the request is revoked or expires."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        headers: Sequence[tuple[bytes, bytes]],
        audit: Audit | None,
        refusal: Callable[[Principal], WireError | None],
    ) -> None:
        self.request_id = str(uuid.uuid4()).upper()
        self.revoked: WireError | None = None
        scope.setdefault("state", {})["request_id"] = self.request_id
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers = (*headers, (b"x-acs-request-id", self.request_id.encode()))
        self._audit = audit
        self._refusal = refusal
        # A long poll or a stream may outlive the key of its request. Changes are not checked again: they were
        # carried out when the response starts.
        is_poll = scope["method"] == "POST" and scope["path"].endswith("/changes")
        self._checks_key = is_poll or scope["method"] in ("GET", "HEAD")
        self._has_started = False

    async def send(self, message: Message) -> None:
        """Sends a message of the response, with the headers of every response."""
        state = self._scope["state"]
        has_content = message.get("more_body", False) or not self._has_started
        if self._checks_key and has_content and (refusal := self._refusal(state["principal"])) is not None:
            self.revoked = refusal
            raise _KeyRevokedError
        self._has_started = True
        if message["type"] == "http.response.start":
            if self._audit is not None and state.keys() & {"principal", REFUSED_AS}:
                await self._audit(self._scope, message["status"])
            with_missing_headers(message, self._headers)
        await self._send(message)

    async def refuse(self, error: WireError) -> None:
        """Sends an error as the response."""
        self._checks_key = False
        self._scope["state"][REFUSED_AS] = error.code
        host = dict(self._scope["headers"]).get(b"host", b"").decode("latin-1")
        response = wire_error_response(error, request_id=self.request_id, host=host)
        await response(self._scope, self._receive, self.send)

    async def end_revoked(self, refusal: WireError) -> None:
        """Ends the response of a request whose key was revoked: refuses it, or truncates it if it has started."""
        scope = self._scope
        logger.info("%s %s ends: %s", scope["method"], scope["path"], refusal.message)
        if self._has_started:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await self.refuse(refusal)


def _log_failure(error: Exception, description: str) -> None:
    if is_disk_full(error):
        logger.error("%s was refused: the disk is full", description)
    elif is_read_only(error):
        logger.error("%s was refused: the data folder cannot be written any more", description)
    else:
        logger.exception("%s failed", description)


def headers_of(scope: Scope, *, once: Collection[str] = ()) -> dict[str, str]:
    """Returns the headers of a request by names in lower case; refuses repeated ones of `once`."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key in headers and key in once:
            raise WireError(403, "HostNotAllowed", f"The header {key} is given twice.")
        # HTTP joins repeated headers; cookies have a separator of their own (RFC 9113, section 8.2.3).
        joint = "; " if key == "cookie" else ","
        headers[key] = f"{headers[key]}{joint}{text}" if key in headers else text
    return headers


def throttle(wait_s: float) -> None:
    """Refuses a request that is allowed only after `wait_s` seconds; 0 accepts it."""
    if wait_s:
        message = "There are more requests than this service allows; try again later."
        raise WireError(429, "Throttling.User", message, retry_after_s=math.ceil(wait_s))


def _replay(body: bytes, receive: Receive) -> Receive:
    """Returns a receiver for a body that was already read."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
