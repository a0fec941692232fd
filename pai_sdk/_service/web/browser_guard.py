"""The guard of the page: its host names, its sign-in, and what a browser may do with responses.

A page on another site can make a browser send requests to a server on the same machine, and after a change of its
DNS record even read the responses. So the name in `Host` is checked first, for every path and method. Browsers
also send a cookie with requests of other pages on this machine, and to other servers on it, whatever their port.
So a request with a cookie must come from this page, and prove the key that only this page has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from http.cookies import CookieError, SimpleCookie

from starlette.types import Scope

from pai_sdk._service.http.gate import headers_of, throttle
from pai_sdk._service.http.page_requests import PAGE_HEADER
from pai_sdk._service.identity.principal import NOT_SIGNED_IN, KeyRing, Principal, key_refusal
from pai_sdk._service.identity.rate import KeyRates
from pai_sdk._service.web.browser_keys import BrowserKeys, PageSession
from pai_sdk._service.web.host_names import HostNames
from pai_sdk._service.wire_errors import WireError

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# CSP 3 (host-source) allows no IP address but 127.0.0.1; for others, the sandbox of the objects has to suffice.
_POLICY_HOST = re.compile(r"(127\.0\.0\.1|[0-9.-]*[a-z][a-z0-9.-]*)(:\d+)?")
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
SAFETY_HEADERS = (
    (b"content-security-policy", f"sandbox; {_NOTHING}".encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
"""The headers that stop a browser from using the responses in another way.

Most responses contain data of users. Opened as documents they are in a sandbox, where no script runs; the page
itself has its own policy (`page_policy`).
"""


def page_policy(host: str, scripts_path: str) -> str:
    """Returns the content security policy of the page, for a `Host` that the guard has checked."""
    # One folder only, because objects of users have addresses on the same origin.
    files = f"{host}{scripts_path}" if _POLICY_HOST.fullmatch(host) else "'self'"
    sources = f"script-src {files}; style-src {files}; img-src 'self' data: blob:; connect-src 'self'"
    return f"{_NOTHING}; {sources}"


def cookie_name(port: int) -> str:
    """Returns the name of the cookie, with the port, because browsers send cookies to all ports of a host."""
    return f"pai-ui-{port}"


class BrowserGuard:
    """Admits requests to a `Gate` that come from the page or from a program with the token.

    Args:
        keys: codes, cookies and the token.
        port: of the server, for the name of the cookie.
        names: the allowed names in `Host`.
        open_paths: readable without a key under an allowed name: the page itself, which has no data.
        open_folders: prefixes of further paths that are readable without a key.
        login_path: where a code is exchanged for a cookie.
        command: what a user types for a new link.
        users: the access keys of users; None if only the service's own key is valid.
    """

    def __init__(
        self,
        keys: BrowserKeys,
        *,
        port: int,
        names: HostNames,
        open_paths: Collection[str] = (),
        open_folders: Collection[str] = (),
        login_path: str = "",
        command: str = "pai-sdk ui",
        rates: KeyRates | None = None,
        users: KeyRing | None = None,
    ) -> None:
        self._keys = keys
        self._cookie = cookie_name(port)
        self._names = names
        self._open_paths = frozenset(open_paths)
        self._open_folders = tuple(open_folders)
        self._login_path = login_path
        self._command = command
        self._rates = rates or KeyRates(None)
        self._users = users

    def admit(self, scope: Scope) -> Callable[[bytes], None]:
        """Checks a request for a `Gate`; the body is not checked."""
        headers = headers_of(scope, once=("host", "origin", "authorization"))
        origins = self._check_host(headers)
        scope.setdefault("state", {})["principal"] = self._check_sender(scope, headers, origins)
        return lambda body: None

    def _check_host(self, headers: Mapping[str, str]) -> list[str]:
        """Returns the origins that pages of this server have under the name."""
        host = headers.get("host", "").strip().lower()
        origins = self._names.origins(host)
        if not origins:
            message = f"The host name {host[:100]!r} is not allowed for this server; its option --name allows one."
            raise WireError(403, "HostNotAllowed", message)
        return origins

    def _check_sender(self, scope: Scope, headers: Mapping[str, str], origins: Collection[str]) -> Principal:
        """Returns the signed-in user; for open paths, a principal without access to any data."""
        method, path = scope["method"], scope["path"]
        is_login = path == self._login_path and method == "POST"
        is_open = path in self._open_paths or path.startswith(self._open_folders)
        if method in _SAFE_METHODS and is_open:
            return NOT_SIGNED_IN
        principal = Principal.operator("")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme:
            if scheme.lower() != "bearer" or not self._keys.is_token(token.strip()):
                raise WireError(401, "InvalidAuthorization", "The token is not the one of this server.")
        else:
            _check_page(method, headers, origins)
            cookie, key = _cookie_of(headers, self._cookie), headers.get(PAGE_HEADER, "")
            request = f"{method} {path}"
            session = None if is_login else self._keys.session_of(cookie, key, request)
            principal = NOT_SIGNED_IN if is_login else self._principal_of(session)
        throttle(self._rates.acquire(principal.user))
        return principal

    def _principal_of(self, session: PageSession | None) -> Principal:
        """Returns the user of a sign-in; refuses one that is not valid, or whose access key is not."""
        if session is not None and not session.access_key_id:
            return replace(Principal.operator(""), page_session=session.id)
        if session is not None and self._users is not None:
            principal = self._users.principal(session.access_key_id)
            if principal is not None:
                return replace(principal, page_session=session.id)
            if self._users.expired_at(session.access_key_id) is not None:
                refusal = key_refusal(self._users, session.access_key_id)
                raise WireError(401, refusal.code, refusal.message, command=self._command)
        message = f"This browser is not signed in. Open the link that `{self._command}` prints."
        raise WireError(401, "MissingAuthorization", message, command=self._command)


def _check_page(method: str, headers: Mapping[str, str], origins: Collection[str]) -> None:
    """Refuses requests that another page makes the browser send."""
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    is_same_origin = origin.lower() in origins
    if method in _SAFE_METHODS:
        is_foreign = site not in ("", "none", "same-origin") or (bool(origin) and not is_same_origin)
    else:
        is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
        is_from_page = (site == "same-origin" or not site) and (is_same_origin if origin else bool(site))
        is_foreign = not is_from_page or not is_json or PAGE_HEADER not in headers
    if is_foreign:
        raise WireError(403, "OriginNotAllowed", "The request does not come from the page of this server.")


def _cookie_of(headers: Mapping[str, str], name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
