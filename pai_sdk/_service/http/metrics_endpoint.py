"""`/metrics`: the figures of the service for Prometheus; they need a token or the right `admin`."""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Callable

from anyio import CapacityLimiter, to_thread
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.wire_errors import WireError, wire_error_response
from pai_sdk._wire.signature import ACS3

PATH = "/metrics"
"""A request that is signed for the object store reads a bucket of that name."""

_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SCHEMES = (b"bearer ", ACS3.lower().encode() + b" ")


def is_for_metrics(scope: Scope) -> bool:
    """Returns whether a request reads the figures: with a token, a key of the API, or no authorization."""
    if scope["path"] != PATH or scope["method"] not in ("GET", "HEAD") or scope["query_string"]:
        return False
    authorization = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    return not authorization or authorization.lower().startswith(_SCHEMES)


def metrics_of(
    text: Callable[[], bytes], *, token: str | None, admit: Callable[[Scope], Callable[[bytes], None]]
) -> ASGIApp:
    """Returns an application that responds with the figures; `admit` checks signed requests without the token."""
    # One call at a time, however many requests arrive.
    limiter = CapacityLimiter(1)

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        request_id = str(uuid.uuid4()).upper()
        try:
            _check(scope, token, admit)
        except WireError as error:
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            response: Response = wire_error_response(error, request_id=request_id, host=host)
            if error.status_code == 401:
                response.headers["WWW-Authenticate"] = "Bearer"
        else:
            content = await to_thread.run_sync(text, limiter=limiter)
            response = Response(content, media_type=_MEDIA_TYPE, headers={"Cache-Control": "no-store"})
        await response(scope, receive, send)

    return respond


def _check(scope: Scope, token: str | None, admit: Callable[[Scope], Callable[[bytes], None]]) -> None:
    """Checks for the token or an administrator."""
    authorization = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, claimed = authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        if token is None or not hmac.compare_digest(claimed.strip(), token.encode()):
            raise WireError(401, "InvalidAuthorization", "The token is not the one of --metrics-token-file.")
    elif authorization:
        admit(scope)(b"")
        principal: Principal = scope["state"]["principal"]
        if not principal.has_right("admin"):
            raise WireError(403, "Forbidden.NoPermission", "The figures of the service need the right 'admin'.")
    else:
        message = "The figures need the token of --metrics-token-file, or a request signed by an administrator."
        raise WireError(401, "MissingAuthorization", message)
