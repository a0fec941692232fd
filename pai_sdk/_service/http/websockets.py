"""Checks requests for WebSockets before an application, which trusts them: request ids, admission, no browsers."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pai_sdk._service.http.content_headers import RESPONSE_STARTS, with_missing_headers
from pai_sdk._service.http.gate import REFUSED_AS, Audit, headers_of
from pai_sdk._service.wire_errors import WireError, wire_error_response

logger = logging.getLogger(__name__)

_SWITCHING_PROTOCOLS = 101
_FAILED = "The service failed unexpectedly; its log has the details."
_FROM_BROWSER = "WebSockets of this service are for programs that sign with an access key, and not for pages."


class WebSocketGate:
    """Passes WebSockets that `admit` accepts to an application, each with a request id.

    `admit` puts the `Principal` into `scope["state"]["principal"]`. The application raises a `WireError` before it
    accepts the WebSocket to refuse it; the client receives the error as the response to its request. Afterwards
    the application itself must check whether the key of the request is still valid.

    Browsers open WebSockets of other sites with their user's cookies. Cookies are no sign-in here, and a request
    of a page is refused even if it is signed.

    Args:
        admit: raises a `WireError` to refuse; its result is called with the empty body.
        audit: called with each request that was admitted or refused, before its response is sent.
    """

    def __init__(self, app: ASGIApp, admit: Callable[[Scope], Callable[[bytes], None]], *, audit: Audit) -> None:
        self._app = app
        self._admit = admit
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one WebSocket."""
        opening = _Opening(scope, receive, send, self._audit)
        await receive()  # the client's request to connect
        try:
            if "origin" in headers_of(scope, once=("host", "origin", "authorization")):
                raise WireError(403, "OriginNotAllowed", _FROM_BROWSER)
            self._admit(scope)(b"")
            await self._app(scope, receive, opening.send)
        except WireError as error:
            logger.debug("%s refused: %s", scope["path"], error.code)
            await opening.refuse(error)
        except OSError:  # the client has disconnected
            logger.debug("%s ended by its client", scope["path"])
        except Exception:
            logger.exception("WebSocket %s %s failed", opening.request_id, scope["path"])
            await opening.refuse(WireError(500, "InternalError", _FAILED))


class _Opening:
    """The response to the request for a WebSocket: its acceptance, or an error."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, audit: Audit) -> None:
        self.request_id = str(uuid.uuid4()).upper()
        scope.setdefault("state", {})["request_id"] = self.request_id
        self._scope = scope
        self._receive = receive
        self._send = send
        self._audit = audit
        self._headers = ((b"x-acs-request-id", self.request_id.encode()),)
        self._has_started = False

    async def send(self, message: Message) -> None:
        """Sends a message, the first one with the headers of every response."""
        kind = message["type"]
        if kind in ("websocket.accept", *RESPONSE_STARTS):
            self._has_started = True
            # Before the client can do anything: each opened tunnel is in the log.
            if self._scope["state"].keys() & {"principal", REFUSED_AS}:
                await self._audit(self._scope, message.get("status", _SWITCHING_PROTOCOLS))
            with_missing_headers(message, self._headers)
        await self._send(message)

    async def refuse(self, error: WireError) -> None:
        """Sends an error as the response, unless the WebSocket was accepted."""
        if self._has_started:
            return
        self._scope["state"][REFUSED_AS] = error.code
        host = dict(self._scope["headers"]).get(b"host", b"").decode("latin-1")
        response = wire_error_response(error, request_id=self.request_id, host=host)
        await response(self._scope, self._receive, self.send)
