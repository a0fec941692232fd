"""The gate before the API: request ids, signatures, the size of bodies. The API behind it trusts every request."""

from __future__ import annotations

import logging
import math
import uuid
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pai_sdk.service.http.authentication import Authenticator, SignedRequest
from pai_sdk.service.rate import RateLimit
from pai_sdk.service.state.disk import is_disk_full, is_read_only
from pai_sdk.service.wire_errors import Fault, fault_response, invalid_parameter

__all__ = ["Gate"]

logger = logging.getLogger(__name__)


class Gate:
    """Lets signed requests through to the API, each with its body read and a request id.

    The id stands in `scope["state"]["request_id"]` and in the header `x-acs-request-id` of every answer.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        *,
        longest_body_bytes: int,
        rate: RateLimit | None = None,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._rate = rate
        self._longest_body_bytes = longest_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        request_id = str(uuid.uuid4()).upper()
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"x-acs-request-id", request_id.encode())]
            await send(message)

        try:
            request = _signed_request(scope)
            self._authenticator.check(request)
            self._count()
            _refuse_nul(request)
            body = await self._body(request, receive)
            self._authenticator.check_body(request, body)
        except Fault as fault:
            logger.debug("%s refused: %s", scope["path"], fault.code)
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            await fault_response(fault, request_id=request_id, host=host)(scope, receive, send_with_id)
            return
        try:
            await self._app(scope, _replay(body, receive), send_with_id)
        except Exception as error:  # the client has its answer; the connection can live on
            what = f"request {request_id} {scope['method']} {scope['path']}"
            if is_disk_full(error):
                logger.error("%s was refused: the disk is full", what)
            elif is_read_only(error):
                logger.error("%s was refused: the data folder cannot be written any more", what)
            else:
                logger.exception("%s met a fault", what)

    async def _body(self, request: SignedRequest, receive: Receive) -> bytes:
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._longest_body_bytes:
            raise self._too_large()
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise invalid_parameter("The body was cut off.")
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._longest_body_bytes:
                raise self._too_large()
        return bytes(body)

    def _count(self) -> None:
        # Only signed requests are counted: unsigned ones cannot use up the key's limit.
        wait_s = self._rate.take() if self._rate is not None else 0.0
        if wait_s:
            raise Fault(
                429,
                "Throttling.User",
                "The access key makes more requests than this service allows; try again later.",
                retry_after_s=math.ceil(wait_s),
            )

    def _too_large(self) -> Fault:
        return Fault(
            413,
            "RequestTooLarge",
            f"The body has more than {self._longest_body_bytes} bytes; hand large values over as an input.",
        )


def _signed_request(scope: Scope) -> SignedRequest:
    """What the signature of a request is about.

    Raises:
        Fault: a parameter is defined more than once.
    """
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        # Twice the same header: joined, as HTTP has it, so that neither can be slipped past the signature.
        headers[key] = f"{headers[key]},{value.decode('latin-1')}" if key in headers else value.decode("latin-1")
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = dict(pairs)
    if len(query) != len(pairs) and "authorization" in headers:
        raise Fault(403, "SignatureDoesNotMatch", "A parameter of the query is defined more than once.")
    return SignedRequest(scope["method"], scope["raw_path"].decode("latin-1"), query, headers)


def _refuse_nul(request: SignedRequest) -> None:
    if "%00" in request.path or any("\0" in text for pair in request.query.items() for text in pair):
        raise invalid_parameter("A NUL character in the path or the query means nothing here.")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receiver that returns the body that was already read."""
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
