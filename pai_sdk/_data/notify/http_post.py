"""Posts JSON to a target: one attempt, without redirects, within a deadline, to a checked address."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pai_sdk._data.notify.guard import UNGUARDED, AddressGuard
from pai_sdk._data.notify.post import Post
from pai_sdk._data.notify.refusals import TRANSIENT_STATUSES, NotDeliveredError, retry_after

if TYPE_CHECKING:
    # requests and urllib3 are imported in functions, for weight: each submission imports this module.
    import requests
    from urllib3.connection import HTTPConnection

TIMEOUT_S = 10.0
"""Seconds for a message, from the name of its host to the last byte of the response."""

_MAX_RESPONSE_BYTES = 64 << 10
_READ_BYTES = 4 << 10
_MAX_QUOTED = 200


def send_post(post: Post, guard: AddressGuard = UNGUARDED, *, timeout_s: float = TIMEOUT_S) -> bytes:
    """Sends a request and returns the body of the response; raises NotDeliveredError unless its status is 2xx."""
    import requests

    content = json.dumps(post.body, ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "pai-sdk", **post.headers}
    connections = _Connections(guard, time.monotonic() + timeout_s)
    with requests.Session() as session:
        try:
            connections.attach(session, post.url)
            with session.post(
                post.url, data=content, headers=headers, timeout=timeout_s, allow_redirects=False, stream=True
            ) as response:
                status, response_headers, body = response.status_code, response.headers, _read(response)
            if connections.is_expired:  # a response that was shut down looks like a complete one
                raise TimeoutError
        except (requests.RequestException, ValueError, OSError) as error:
            raise _not_sent(error, connections) from None  # the text of the error has the URL
        finally:
            connections.release()
    if not 200 <= status < 300:
        redirected = " (a redirect, which is not followed)" if 300 <= status < 400 else ""
        raise NotDeliveredError(
            f"HTTP {status}{redirected}{_quoted(body)}",
            code=f"HTTP{status}",
            is_transient=status in TRANSIENT_STATUSES,
            retry_after_s=retry_after(response_headers),
        )
    return body


def _read(response: requests.Response) -> bytes:
    """Returns the first bytes of a body; the rest of a large one is not read."""
    content = b""
    for chunk in response.iter_content(_READ_BYTES):
        content += chunk
        if len(content) > _MAX_RESPONSE_BYTES:
            break
    return content


def _quoted(body: bytes) -> str:
    """Returns a response that is a short text, such as Slack's `invalid_token`."""
    text = body[:_MAX_QUOTED].decode(errors="replace").strip()
    is_short = bool(text) and len(body) <= _MAX_QUOTED and "\n" not in text and text[0] not in "<{["
    return f": {text}" if is_short else ""


def _tls_reason(error: BaseException | None) -> str:
    """Returns why a handshake has failed, such as the certificate; "" for other errors."""
    import ssl

    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if error is None:
        return ""
    reason = getattr(error, "verify_message", None) or str(error.reason or "").replace("_", " ").lower()
    return f"TLS: {reason}" if reason else "TLS"


def _not_sent(error: Exception, connections: _Connections) -> NotDeliveredError:
    """Returns the reason without the URL, which the texts of these errors have."""
    import requests

    if connections.refusal is not None:
        return connections.refusal
    if connections.is_expired or isinstance(error, requests.Timeout | TimeoutError):
        return NotDeliveredError("no response in time", code="Timeout", is_transient=True)
    if isinstance(error, ValueError):  # also InvalidURL and its like
        return NotDeliveredError("the URL is not valid", code="InvalidUrl", is_transient=False)
    reason = connections.failure or _tls_reason(error) or type(error).__name__
    return NotDeliveredError(f"no response ({reason})", code="NoResponse", is_transient=True)


class _Connections:
    """The connections of one request: each to an address that was checked, all shut down at the deadline.

    The timeouts of requests count from byte to byte: without the deadline, a target that sends one byte a second
    would hold the queue.
    """

    def __init__(self, guard: AddressGuard, deadline: float) -> None:
        self._deadline = deadline
        self.refusal: NotDeliveredError | None = None
        self.failure = ""  # the system's reason, without the URL
        self.is_expired = False
        self._guard = guard
        self._open: list[HTTPConnection] = []
        self._timer = threading.Timer(deadline - time.monotonic(), self._shut_all)
        self._timer.daemon = True

    def attach(self, session: requests.Session, url: str) -> None:
        """Lets a session use these connections for a URL."""
        from requests.utils import get_environ_proxies, select_proxy

        if select_proxy(url, get_environ_proxies(url)):
            # The proxy resolves the name again; it is the operator's, and a name may be known to it only.
            guard, self._guard = self._guard, UNGUARDED
            with suppress(OSError):
                guard.resolve(urlsplit(url).hostname or "", 0)
        # A password of this user's ~/.netrc must neither be sent nor replace a header of the target.
        session.auth = _without_password
        adapter = _adapter(self)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        self._timer.start()

    def open(self, connection: HTTPConnection, host: str, port: int) -> socket.socket:
        """Connects; the name is resolved once, and the addresses are checked."""
        self._open.append(connection)
        error: OSError = TimeoutError("no time remains")
        for family, address in self._resolve(host, port):
            remaining_s = self._deadline - time.monotonic()
            if remaining_s <= 0:
                break
            connected = socket.socket(family, socket.SOCK_STREAM)
            try:
                connected.settimeout(remaining_s)
                connected.connect((address, port))
            except OSError as failure:
                connected.close()
                error = failure
            else:
                return connected
        raise error

    def _resolve(self, host: str, port: int) -> list[tuple[int, str]]:
        """Returns the addresses of a host, within the deadline, which a resolver without servers would exceed."""
        outcomes: list[list[tuple[int, str]] | Exception] = []

        def resolve() -> None:
            try:
                outcomes.append(self._guard.resolve(host, port))
            except (OSError, UnicodeError, NotDeliveredError) as error:
                outcomes.append(error)

        thread = threading.Thread(target=resolve, daemon=True)
        thread.start()
        thread.join(max(0.0, self._deadline - time.monotonic()))
        if not outcomes:
            raise TimeoutError("the name was not resolved in time")
        if isinstance(outcomes[0], Exception):
            raise outcomes[0]
        return outcomes[0]

    def release(self) -> None:
        """Ends the timer."""
        self._timer.cancel()

    def _shut_all(self) -> None:
        self.is_expired = True  # first: the thread of the request checks it after a connection has ended
        for connection in self._open:
            # Not `close`, which the thread of the request does: another socket may have its number by then.
            if (open_socket := connection.sock) is not None:
                with suppress(OSError):
                    open_socket.shutdown(socket.SHUT_RDWR)


def _without_password(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _adapter(connections: _Connections) -> requests.adapters.HTTPAdapter:
    """Returns an adapter of requests with the connections of one request."""
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
    from urllib3.exceptions import NewConnectionError

    def connect(connection: HTTPConnection) -> socket.socket:
        try:
            # `_dns_host` has the final dot that `host` lacks; urllib3 itself connects to it.
            return connections.open(connection, connection._dns_host.strip("[]"), connection.port or 0)
        except NotDeliveredError as refusal:
            connections.refusal = refusal
            raise NewConnectionError(connection, "refused") from None
        except OSError as error:
            connections.failure = error.strerror or ""
            raise NewConnectionError(connection, type(error).__name__) from None

    class Plain(HTTPConnection):
        _new_conn = connect

    class Tls(HTTPSConnection):
        _new_conn = connect

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    pools = {"http": PlainPool, "https": TlsPool}

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
            manager = super().proxy_manager_for(proxy, **options)
            # SOCKS proxies need their own classes.
            if not proxy.lower().startswith("socks"):
                manager.pool_classes_by_scheme = pools
            return manager

    return Adapter(max_retries=0)
