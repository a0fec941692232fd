"""An HTTP server that answers as a test tells it to, faults included, and remembers what it was asked."""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request as it came over the wire."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """An answer. `body` is bytes, or what is sent as JSON; `cut` leaves that many bytes of it out.

    `after` is called first; there is no answer until it returns.
    """

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int = 0
    after: Callable[[], object] = lambda: None


def oss_listing(sizes: Mapping[str, int]) -> Reply:
    """What OSS answers for a listing of objects, all with the ETag `x`."""
    rows = "".join(
        f'<Contents><Key>{quote(key)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>"x"</ETag>'
        f"<Type>Normal</Type><Size>{size}</Size><StorageClass>Standard</StorageClass></Contents>"
        for key, size in sizes.items()
    )
    head = "<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
    text = f"<ListBucketResult>{head}{rows}</ListBucketResult>"
    return Reply(text.encode(), headers={"x-oss-request-id": "r"})


class Reset:
    """The connection is torn down without an answer."""


class BrokenRecord:
    """Bytes that are no TLS record, over a secure connection, in place of an answer."""


Step = Reply | type[Reset] | type[BrokenRecord]


def unused_endpoint() -> str:
    """Where nothing listens, nor will: this process holds the port until it ends."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for a server that a test starts there
    holder.bind(("127.0.0.1", 0))
    endpoint = f"http://127.0.0.1:{holder.getsockname()[1]}"
    holder.detach()
    return endpoint


class ScriptedServer:
    """Answers with `script`, step by step, or by the function `answer`; the last step stays."""

    def __init__(self, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self.script: list[Step] = []
        self.answer: Callable[[Asked], Step] | None = None
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet: else the kernel waits 40 ms between them

            def _any(self) -> None:
                outer._serve(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_CONNECT = _any

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128  # or the kernel turns connections of many threads away for a second

            def handle_error(self, *_: object) -> None:
                pass  # a client that hangs up is part of many tests

        self._server = Server(("127.0.0.1", port), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.01), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def speak_tls(self, context: ssl.SSLContext) -> None:
        """From now on, connections are secure."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        asked = Asked(
            handler.command,
            url.path,
            dict(parse_qsl(url.query, keep_blank_values=True)),
            {name.lower(): value for name, value in handler.headers.items()},
            handler.rfile.read(int(handler.headers.get("Content-Length") or 0)),
        )
        with self._lock:
            self.asked.append(asked)
            if self.answer is not None:
                step = self.answer(asked)
            else:
                step = self.script.pop(0) if len(self.script) > 1 else (self.script or [Reply()])[0]
        if isinstance(step, Reply):
            self._reply(handler, step)
        else:
            if step is BrokenRecord:
                os.write(handler.connection.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
                handler.close_connection = True
                os.close(handler.connection.detach())  # without the orderly end that TLS would add
                return
            # With a linger time of zero, close sends RST.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.close_connection = True
            handler.connection.close()

    @staticmethod
    def _reply(handler: BaseHTTPRequestHandler, step: Reply) -> None:
        step.after()
        body = step.body if isinstance(step.body, bytes) else json.dumps(step.body).encode()
        handler.send_response_only(step.status)
        for name, value in step.headers.items():
            handler.send_header(name, value)
        if step.status not in (204, 304):
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if step.status not in (204, 304) and handler.command != "HEAD":
            handler.wfile.write(body[: len(body) - step.cut])
        if step.cut:
            handler.close_connection = True
