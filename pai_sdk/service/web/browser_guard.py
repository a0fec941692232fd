"""The guard before the page: which names it answers to, who is let in, and what a browser may do with the answers.

A page on another site can make a browser send requests to a server on the same machine, and after a change of its
DNS record even read the answers. So the name in `Host` is compared first, whatever the path and the method. A
cookie is sent along with requests of other pages on this machine too, and to other servers on it, whatever their
port; so what a cookie lets in must come from this very page, and show the key that only this page has.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pai_sdk.service.rate import RateLimit
from pai_sdk.service.web.browser_keys import BrowserKeys
from pai_sdk.service.wire_errors import Fault, fault_response

__all__ = ["LOOPBACK_NAMES", "OWN_HEADER", "BrowserGuard", "cookie_name"]

logger = logging.getLogger(__name__)

LOOPBACK_NAMES = frozenset({"127.0.0.1", "[::1]", "localhost"})
"""The names that a server on this machine has in any case."""

OWN_HEADER = "x-pai-ui"
"""A header that only scripts of the page send: it has the key of the page."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST_BODY_BYTES = 1 << 20
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFETY_HEADERS = (
    (b"content-security-policy", _CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def cookie_name(port: int) -> str:
    """The name of the cookie. Browsers send the cookies of all ports of a host, so it has the port."""
    return f"pai-ui-{port}"


class BrowserGuard:
    """Lets requests through that come from the page or from a program with the token.

    Args:
        app: what is guarded.
        keys: codes, cookies and the token.
        port: of the server, for the name of the cookie.
        names: names in `Host` besides those of loopback.
        open_paths: what is answered to anybody under an allowed name: the page itself, which has no data.
        login_path: where a code is exchanged for a cookie.
        rate: how many requests are let through.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: BrowserKeys,
        *,
        port: int,
        names: Collection[str] = (),
        open_paths: Collection[str] = (),
        login_path: str = "",
        rate: RateLimit | None = None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._cookie = cookie_name(port)
        self._names = LOOPBACK_NAMES | {name.lower() for name in names}
        self._open_paths = frozenset(open_paths)
        self._login_path = login_path
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        request_id = str(uuid.uuid4()).upper()
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [*_SAFETY_HEADERS, (b"x-acs-request-id", request_id.encode())]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        try:
            headers = _headers_of(scope)
            self._check_host(headers)
            self._check_sender(scope, headers)
            body = await _body(receive)
        except Fault as fault:
            logger.debug("%s refused: %s", scope["path"], fault.code)
            await fault_response(fault, request_id=request_id, host="")(scope, receive, send_safely)
            return
        try:
            await self._app(scope, _replay(body, receive), send_safely)
        except Exception:
            logger.exception("request %s %s %s met a fault", request_id, scope["method"], scope["path"])

    def _check_host(self, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "").strip().lower()
        name, _, port = host.rpartition(":")
        if not name or not port.isdigit():
            name = host
        if name not in self._names:
            message = f"This server does not answer to the name {name[:100]!r}; `pai-sdk ui --name` allows a name."
            raise Fault(403, "HostNotAllowed", message)

    def _check_sender(self, scope: Scope, headers: Mapping[str, str]) -> None:
        method, path = scope["method"], scope["path"]
        is_login = path == self._login_path and method == "POST"
        if method in _SAFE_METHODS and path in self._open_paths:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme:
            if scheme.lower() != "bearer" or not self._keys.is_token(token.strip()):
                raise Fault(401, "InvalidAuthorization", "The token is not the one of this server.")
        else:
            self._check_page(method, headers)
            cookie, key = _cookie_of(headers, self._cookie), headers.get(OWN_HEADER, "")
            if not is_login and not self._keys.is_page(cookie, key):
                message = "Open the link that `pai-sdk ui` prints, or send its token as `Authorization: Bearer`."
                raise Fault(401, "MissingAuthorization", message)
        if wait_s := self._rate.take() if self._rate is not None else 0.0:
            message = "There are more requests than this server allows; try again later."
            raise Fault(429, "Throttling.User", message, retry_after_s=max(1, round(wait_s)))

    def _check_page(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse what another page makes the browser send."""
        site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
        is_ours = origin.partition("://")[2] == headers.get("host", "")
        if method in _SAFE_METHODS:
            is_foreign = site not in ("", "none", "same-origin") or (bool(origin) and not is_ours)
        else:
            is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
            came_from_here = (site == "same-origin" or not site) and (is_ours if origin else bool(site))
            is_foreign = not came_from_here or not is_json or OWN_HEADER not in headers
        if is_foreign:
            raise Fault(403, "OriginNotAllowed", "The request does not come from the page of this server.")


def _headers_of(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key in headers and key in ("host", "origin", "authorization"):
            raise Fault(403, "HostNotAllowed", f"The header {key} is there twice.")
        headers[key] = f"{headers[key]}; {text}" if key in headers else text
    return headers


def _cookie_of(headers: Mapping[str, str], name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


async def _body(receive: Receive) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Fault(400, "InvalidParameter", "The body was cut off.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > _LONGEST_BODY_BYTES:
            raise Fault(413, "RequestTooLarge", f"The body has more than {_LONGEST_BODY_BYTES} bytes.")
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receiver that returns the body that was already read."""
    is_told = False

    async def replay() -> Message:
        nonlocal is_told
        if is_told:
            return await receive()
        is_told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
