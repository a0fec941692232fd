"""The guard of the page: under which names it can be reached, who is let in, what a browser may do with responses.

A page on another site can make a browser send requests to a server on the same machine, and after a change of its
DNS record even read the responses. So the name in `Host` is compared first, whatever the path and the method. A
cookie is sent along with requests of other pages on this machine too, and to other servers on it, whatever their
port; so what a cookie lets in must come from this very page, and show the key that only this page has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.types import Scope

from pai_sdk.service.http.gate import headers_of, throttle
from pai_sdk.service.rate import RateLimit
from pai_sdk.service.web.browser_keys import BrowserKeys
from pai_sdk.service.wire_errors import WireError

__all__ = ["LOOPBACK_NAMES", "OWN_HEADER", "SAFETY_HEADERS", "BrowserGuard", "cookie_name"]

LOOPBACK_NAMES = frozenset({"127.0.0.1", "[::1]", "localhost"})
"""The names that a server on this machine has in any case."""

OWN_HEADER = "x-pai-ui"
"""A header that only scripts of the page send: it has the key of the page."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAFETY_HEADERS = (
    (b"content-security-policy", _CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
"""The headers that keep a browser from using the responses for anything else."""


def cookie_name(port: int) -> str:
    """The name of the cookie. Browsers send the cookies of all ports of a host, so it has the port."""
    return f"pai-ui-{port}"


class BrowserGuard:
    """Admits requests to a `Gate` that come from the page or from a program with the token.

    Args:
        keys: codes, cookies and the token.
        port: of the server, for the name of the cookie.
        names: names in `Host` besides those of loopback.
        open_paths: readable without a key under an allowed name: the page itself, which has no data.
        login_path: where a code is exchanged for a cookie.
        rate: how many requests are let through.
    """

    def __init__(
        self,
        keys: BrowserKeys,
        *,
        port: int,
        names: Collection[str] = (),
        open_paths: Collection[str] = (),
        login_path: str = "",
        rate: RateLimit | None = None,
    ) -> None:
        self._keys = keys
        self._cookie = cookie_name(port)
        self._names = LOOPBACK_NAMES | {name.lower() for name in names}
        self._open_paths = frozenset(open_paths)
        self._login_path = login_path
        self._rate = rate

    def admit(self, scope: Scope) -> Callable[[bytes], None]:
        """Check a request for a `Gate`; the body is not checked.

        Raises:
            WireError: the request is refused.
        """
        headers = headers_of(scope, once=("host", "origin", "authorization"))
        self._check_host(headers)
        self._check_sender(scope, headers)
        return lambda body: None

    def _check_host(self, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "").strip().lower()
        name, _, port = host.rpartition(":")
        if not name or not port.isdigit():
            name = host
        if name not in self._names:
            message = f"The name {name[:100]!r} is not allowed for this server; `pai-sdk ui --name` allows a name."
            raise WireError(403, "HostNotAllowed", message)

    def _check_sender(self, scope: Scope, headers: Mapping[str, str]) -> None:
        method, path = scope["method"], scope["path"]
        is_login = path == self._login_path and method == "POST"
        if method in _SAFE_METHODS and path in self._open_paths:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme:
            if scheme.lower() != "bearer" or not self._keys.is_token(token.strip()):
                raise WireError(401, "InvalidAuthorization", "The token is not the one of this server.")
        else:
            self._check_page(method, headers)
            cookie, key = _cookie_of(headers, self._cookie), headers.get(OWN_HEADER, "")
            if not is_login and not self._keys.is_page(cookie, key):
                message = "Open the link that `pai-sdk ui` prints, or send its token as `Authorization: Bearer`."
                raise WireError(401, "MissingAuthorization", message)
        throttle(self._rate)

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
            raise WireError(403, "OriginNotAllowed", "The request does not come from the page of this server.")


def _cookie_of(headers: Mapping[str, str], name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
