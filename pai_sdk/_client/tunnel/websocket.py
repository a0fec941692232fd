"""A WebSocket whose messages are the frames of a tunnel."""

from __future__ import annotations

import os
import select
import socket
import ssl
import sys
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from io import BytesIO
from typing import cast
from urllib.parse import unquote, urlsplit

import requests
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.uri import parse_uri

from pai_sdk._client.api.transport import UpgradeRequest
from pai_sdk._core.connections import HandshakeError

MAX_MESSAGE_BYTES = 128 << 10

_CHUNK_BYTES = 1 << 18
_SMALL_BYTES = 1 << 15
_CLOSE_TIMEOUT_S = 2.0
_HTTP_PORTS = {"http": 80, "https": 443}


class UpgradeRefusedError(Exception):
    """The response to the upgrade was not 101; `response` has its status, headers and body."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.response = response


class WebSocketTransport:
    """Sends and receives frames, each as one binary message. A sender and a receiver may be different threads.

    Lock order: `_sending`, then `_state`. `_sending` is held while data is written, which blocks while the peer
    does not read; the receiver never waits for it, since the peer may be blocked until this side reads.
    """

    def __init__(self, connection: socket.socket, protocol: ClientProtocol) -> None:
        self._wire = _Wire(connection)
        self._protocol = protocol
        self._sending = threading.Lock()
        self._state = threading.Lock()  # guards `_protocol` and `_outgoing`
        self._outgoing: deque[bytes] = deque()
        self._messages: deque[bytes] = deque()  # used by the receiver only
        self._fragments: list[bytes] = []
        self.close_code: int | None = None
        self.close_reason = ""

    def __repr__(self) -> str:
        return f"<WebSocketTransport {self._protocol.state.name}>"

    def send(self, frame: bytes) -> None:
        """Sends a frame; blocks while the peer does not read. Raises ConnectionError after the end."""
        self.send_many((frame,))

    def send_many(self, frames: Sequence[bytes]) -> None:
        """Sends frames in their order, as `send`."""
        with self._sending:
            with self._state:
                try:
                    for frame in frames:
                        self._protocol.send_binary(frame)
                except InvalidState as error:
                    raise ConnectionError("the WebSocket is closed") from error
                chunks = self._protocol.data_to_send()
                # One call for small ones; large ones are not copied.
                is_small = sum(map(len, chunks)) <= _SMALL_BYTES
                self._outgoing.extend([b"".join(chunks)] if is_small else chunks)
            try:
                self._write_outgoing()
            except OSError as error:
                raise ConnectionError(str(error)) from error

    def receive(self, timeout_s: float | None) -> bytes:
        """Returns the next frame.

        Raises:
            ConnectionError: the connection is closed.
            TimeoutError: no frame has arrived in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._messages:
            if self.close_code is not None:
                raise ConnectionError(f"the WebSocket was closed with {self.close_code}")
            try:
                data = self._wire.read(deadline)
            except TimeoutError:
                raise
            except OSError as error:
                raise ConnectionError(str(error)) from error
            if not data:
                raise ConnectionError("the connection ended without a close frame")
            self._feed(data)
        return self._messages.popleft()

    def close(self) -> None:
        """Sends a close frame if that is possible at once, and closes the connection. May be called repeatedly."""
        if self._sending.acquire(timeout=_CLOSE_TIMEOUT_S):
            try:
                with self._state:
                    with suppress(InvalidState):
                        self._protocol.send_close(1000)
                    self._outgoing.extend(self._protocol.data_to_send())
                with suppress(OSError):
                    self._write_outgoing(time.monotonic() + _CLOSE_TIMEOUT_S)
            finally:
                self._sending.release()
        self._wire.close()

    def handshake(self, request: Request, timeout_s: float) -> None:
        """Sends the upgrade and reads its response; raises UpgradeRefusedError for any other status than 101."""
        deadline = time.monotonic() + timeout_s
        self._protocol.send_request(request)
        self._outgoing.extend(self._protocol.data_to_send())
        self._write_outgoing(deadline)
        response = None
        while response is None:
            data = self._wire.read(deadline)
            if data:
                self._protocol.receive_data(cast("bytes", data))
            else:
                self._protocol.receive_eof()
            response = self._take_events()
            if response is None and (error := self._protocol.handshake_exc) is not None:
                raise ConnectionError(str(error)) from error
        if self._protocol.handshake_exc is not None:
            if response.status_code != 101:
                raise UpgradeRefusedError(_as_requests(response, request.path))
            raise InvalidHandshake(str(self._protocol.handshake_exc))

    def _feed(self, data: memoryview) -> None:
        with self._state:
            self._protocol.receive_data(cast("bytes", data))
            self._take_events()
            self._outgoing.extend(self._protocol.data_to_send())  # answers to pings and to a close frame
        # If a sender writes now, it writes these too: it checks the queue again before it releases the lock, and
        # this loop checks it after.
        while self._outgoing and self._sending.acquire(blocking=False):
            try:
                with suppress(TimeoutError):
                    self._write_outgoing(time.monotonic() + _CLOSE_TIMEOUT_S)
            finally:
                self._sending.release()

    def _take_events(self) -> Response | None:
        """Processes what has arrived; returns the response to the handshake if it is part of that."""
        response = None
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                response = event
            elif isinstance(event, Frame):
                self._accept(event)
        if (close := self._protocol.close_rcvd) is not None:
            self.close_code, self.close_reason = int(close.code), close.reason
        elif (error := self._protocol.parser_exc) is not None:
            raise ConnectionError(f"malformed data from the service: {error}") from error
        return response

    def _accept(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.BINARY, Opcode.CONT):
            if frame.opcode is Opcode.TEXT:
                raise ConnectionError("the service sent a text message")
            return
        # Of this frame alone, and not used by the parser any more.
        self._fragments.append(cast("bytes", frame.data))
        if frame.fin:
            message = self._fragments[0] if len(self._fragments) == 1 else b"".join(self._fragments)
            self._fragments.clear()
            self._messages.append(message)

    def _write_outgoing(self, deadline: float | None = None) -> None:
        """Writes what is queued; `_sending` is held."""
        while self._outgoing:
            chunk = self._outgoing.popleft()
            if chunk:  # an empty one asks for a half-close, which TLS does not have
                self._wire.write(chunk, deadline)


def open_websocket(request: UpgradeRequest, timeout_s: tuple[float, float]) -> WebSocketTransport:
    """Opens a WebSocket by a signed request; timeouts to connect and to wait for the response.

    Raises:
        UpgradeRefusedError: the response is not 101.
        OSError, HTTPError: there was no response.
    """
    connection = _connect(request, timeout_s[0])
    try:
        url = urlsplit(request.url)
        scheme = "wss" if url.scheme == "https" else "ws"
        protocol = ClientProtocol(parse_uri(url._replace(scheme=scheme).geturl()), max_size=MAX_MESSAGE_BYTES)
        upgrade = protocol.connect()
        for name, value in request.headers.items():
            if name in upgrade.headers:
                del upgrade.headers[name]
            upgrade.headers[name] = value
        transport = WebSocketTransport(connection, protocol)
        transport.handshake(upgrade, timeout_s[1])
    except BaseException:
        connection.close()
        raise
    return transport


def _connect(request: UpgradeRequest, timeout_s: float) -> socket.socket:
    """Opens the connection to the service, through a proxy where the environment names one."""
    url = urlsplit(request.url)
    port = url.port or _HTTP_PORTS[url.scheme]
    connection = _tcp_connection(url.hostname or "", port, request.proxy, timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if url.scheme == "https":
        try:
            connection = _tls_context(request.verify).wrap_socket(connection, server_hostname=url.hostname)
        except ssl.SSLError as error:
            connection.close()
            raise HandshakeError(*error.args) from error
        except BaseException:
            connection.close()
            raise
    return connection


def _tcp_connection(host: str, port: int, proxy: str | None, timeout_s: float) -> socket.socket:
    if proxy is None:
        client = HTTPConnection(host, port, timeout=timeout_s)
    else:
        address = urlsplit(proxy)
        if address.scheme != "http":
            raise requests.exceptions.ProxyError(f"tunnels support http:// proxies only, not {address.scheme}://")
        client = HTTPConnection(address.hostname or "", address.port or 80, timeout=timeout_s)
        client.set_tunnel(host, port, _proxy_headers(address.username, address.password))
    try:
        client.connect()
    except TimeoutError as error:
        raise ConnectTimeoutError from error
    except OSError as error:
        if "Tunnel connection failed" in str(error):
            raise requests.exceptions.ProxyError(error) from error
        raise NewConnectionError(client, "no connection") from error  # type: ignore[arg-type]
    connection: socket.socket = client.sock
    return connection


def _proxy_headers(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _tls_context(verify: bool | str) -> ssl.SSLContext:
    """Returns the context that requests would use: the CA bundle of the settings, or that of certifi."""
    bundle = verify if isinstance(verify, str) else DEFAULT_CA_BUNDLE_PATH
    context = (
        ssl.create_default_context(capath=bundle)
        if os.path.isdir(bundle)  # noqa: PTH112 - a string of an environment variable
        else ssl.create_default_context(cafile=bundle)
    )
    if verify is False:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _as_requests(response: Response, path: str) -> requests.Response:
    """Returns a response as one of requests, whose errors `read_response` raises."""
    converted = requests.Response()
    converted.status_code, converted.url = response.status_code, path
    for name, value in response.headers.raw_items():
        converted.headers[name] = value
    converted.raw = BytesIO(bytes(response.body or b""))
    return converted


class _Wire:
    """A non-blocking socket, plain or TLS, for one reading and one writing thread; any thread may close it.

    `_state` guards the number of threads that use the descriptor: it is closed only after the last of them has
    left, since another file could get its number in the meantime.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        # One call into OpenSSL at a time: its connection objects are not thread-safe. Waits are outside of it.
        self._lock: threading.Lock | None = threading.Lock() if isinstance(connection, ssl.SSLSocket) else None
        self._state = threading.Lock()
        # One for all, since the pages of a new one cost more time than the copy of the data.
        self._buffer = memoryview(bytearray(_CHUNK_BYTES))
        self._num_users = 0
        self._is_closed = False

    def read(self, deadline: float | None) -> memoryview:
        """Returns data, which are valid until the next call; nothing at their end."""
        with self._in_use():
            return self._buffer[: self._read(deadline)]

    def write(self, data: bytes, deadline: float | None) -> None:
        """Writes all of the data."""
        with self._in_use():
            self._write(data, deadline)

    def close(self) -> None:
        """Closes the connection, which wakes up threads that wait for it."""
        with self._state:
            if self._is_closed:
                return
            self._is_closed = True
            with suppress(OSError):
                # Not that of SSLSocket, after which another thread would read encrypted bytes as data.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            if not self._num_users:
                self._socket.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._state:
            if self._is_closed:
                raise ConnectionError("the connection is closed")
            self._num_users += 1
        try:
            yield
        finally:
            with self._state:
                self._num_users -= 1
                if self._is_closed and not self._num_users:
                    self._socket.close()

    def _read(self, deadline: float | None) -> int:
        while True:
            try:
                if self._lock is None:
                    return self._socket.recv_into(self._buffer)
                with self._lock:
                    return self._socket.recv_into(self._buffer)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(False, deadline)
            except ssl.SSLWantWriteError:
                self._wait(True, deadline)
            except ssl.SSLEOFError:
                return 0
            except ssl.SSLError as error:
                raise ConnectionError(str(error)) from error

    def _write(self, data: bytes, deadline: float | None) -> None:
        remaining = memoryview(data)
        while remaining:
            try:
                if self._lock is None:
                    count = self._socket.send(remaining)
                else:
                    with self._lock:
                        count = self._socket.send(remaining)
                remaining = remaining[count:]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(True, deadline)
            except ssl.SSLWantReadError:
                self._wait(False, deadline)
            except ssl.SSLError as error:
                raise ConnectionError(str(error)) from error

    def _wait(self, for_write: bool, deadline: float | None) -> None:
        timeout_s = None if deadline is None else deadline - time.monotonic()
        if timeout_s is not None and timeout_s <= 0:
            raise TimeoutError("the connection is silent")
        descriptor = self._socket.fileno()
        if sys.platform != "win32":  # select() is limited to small descriptors
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT if for_write else select.POLLIN)
            ready: object = poll.poll(None if timeout_s is None else timeout_s * 1000)
        else:
            reads, writes = ([], [descriptor]) if for_write else ([descriptor], [])
            ready = any(select.select(reads, writes, [], timeout_s))
        if not ready:
            raise TimeoutError("the connection is silent")
