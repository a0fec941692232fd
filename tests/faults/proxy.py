"""A proxy on loopback that breaks what passes through it, by a seed: any failure it causes can be caused again.

What happens to a request depends on the seed, on the request (method, path) and on how many of its like came
before, not on the order in which threads are served.
"""

from __future__ import annotations

import http.client
import random
import select
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["DAMAGES", "EVERY_KIND", "Answer", "FaultProxy", "Faults", "is_content"]

EVERY_KIND: Final = (
    "reset",  # the connection is reset before the request goes on
    "lost",  # the request goes on, its answer is lost in a reset
    "truncated",  # the answer's body ends in its middle
    "slow",  # the answer comes in two halves, with a pause between
    "repeated",  # the answer is that of an earlier request for the same path, if it was a GET
    "429",  # too many requests, with Retry-After
    "500",
    "503",  # without a body
    "html",  # a gateway's page, with status 502
    "empty",  # status 200 and nothing else
)

DAMAGES: Final = (
    "flipped up",  # one bit of the request's body is another
    "flipped down",  # one bit of the answer's body is another
    "cut up",  # the connection to the server ends within the request's body
    "truncated",
)
"""What a line does to content. Lists and other XML have no checksum, so `only=is_content` belongs to them."""

_LONGEST_S = 60.0
_DROPPED = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"}


@dataclass(frozen=True)
class Faults:
    """How much is broken, and how.

    Attributes:
        rate: share of requests at which something goes wrong.
        kinds: the ways, all alike likely.
        burst: something that goes wrong does so for up to this many requests of one kind in a row.
        pause_s: how long a slow answer pauses.
        retry_after_s: what a 429 asks for, in seconds.
        only: asked for each (method, path with query); others pass untouched.
    """

    rate: float = 0.2
    kinds: tuple[str, ...] = EVERY_KIND
    burst: int = 2
    pause_s: float = 0.05
    retry_after_s: float = 0
    only: Callable[[str, str], bool] = field(default=lambda method, path: True)


def is_content(method: str, path: str) -> bool:
    """Whether the body of a request, or of its answer, is content of an object of OSS, and no XML."""
    where = urlsplit(path)
    has_key = bool(where.path.lstrip("/").partition("/")[2])
    return has_key and (method == "PUT" or (method == "GET" and not where.query))


class FaultProxy:
    """Stands before a server that speaks HTTP; use it as a context manager.

    Args:
        target: `http://host:port`, or a function that gives it, for a server that may move.
        seed: the same seed breaks the same requests.
        faults: how much, and how.

    Attributes:
        url: where the proxy listens.
        happened: what was done to which request, in order: `lost: POST /api/v1/trainingjobs`.
        seen: how often each `METHOD path` came, without queries.
        calm: set to True, everything passes.
    """

    def __init__(self, target: str | Callable[[], str], *, seed: int, faults: Faults = Faults()) -> None:
        self._target = target if callable(target) else lambda: target
        self._seed = seed
        self._faults = faults
        self._lock = threading.Lock()
        self._ordinals: defaultdict[str, int] = defaultdict(int)
        self._bursts: dict[str, tuple[str, int]] = {}
        self._last: dict[str, Answer] = {}
        self._changes = threading.Condition()
        self._changes_under_way = 0
        self._has_ended = False
        self.happened: list[str] = []
        self.seen: defaultdict[str, int] = defaultdict(int)
        self.calm = False
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)
        with self._changes:
            self._has_ended = True
            self._changes.wait_for(lambda: not self._changes_under_way, _LONGEST_S)

    @property
    def requests(self) -> int:
        """How many requests came."""
        return sum(self.seen.values())

    def choose(self, method: str, path: str) -> str | None:
        """What goes wrong with this request; None for nothing."""
        plain = f"{method} {urlsplit(path).path}"
        with self._lock:
            self.seen[plain] += 1
            if self.calm or not self._faults.only(method, path):
                return None
            ordinal = self._ordinals[plain]
            self._ordinals[plain] += 1
            kind, left = self._bursts.get(plain, ("", 0))
            if not left:
                dice = random.Random(f"{self._seed} {plain} {ordinal}")
                if dice.random() >= self._faults.rate:
                    return None
                kind, left = dice.choice(self._faults.kinds), dice.randint(1, self._faults.burst)
            self._bursts[plain] = (kind, left - 1)
            self.happened.append(f"{kind}: {plain}")
            return kind

    def flipped(self, content: bytes) -> bytes:
        """The content with one bit changed; which one depends on the seed and on what happened before."""
        if not content:
            return content
        dice = random.Random(f"{self._seed} {len(self.happened)}")
        at = dice.randrange(len(content))
        return content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :]

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Ask the server itself."""
        with self._asking(method, path, headers, body) as connection:
            answer = connection.getresponse()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _DROPPED]
            length = answer.getheader("Content-Length")
            return Answer(answer.status, kept, answer.read(), int(length) if length else None)

    def cut(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send half of the body to the server, and nothing more."""
        with self._asking(method, path, headers, body[: len(body) // 2]):
            pass

    @contextmanager
    def _asking(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Iterator[http.client.HTTPConnection]:
        where = urlsplit(self._target())
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=_LONGEST_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            yield connection
        finally:
            connection.close()

    @contextmanager
    def passing(self, method: str) -> Iterator[None]:
        """Around a request that goes on; a change is made before the proxy ends, or never.

        Raises:
            ConnectionAbortedError: the proxy has ended.
        """
        if method in ("GET", "HEAD"):
            yield
            return
        with self._changes:
            if self._has_ended:
                raise ConnectionAbortedError
            self._changes_under_way += 1
        try:
            yield
        finally:
            with self._changes:
                self._changes_under_way -= 1
                self._changes.notify_all()

    def answered(self, method: str, path: str, answer: Answer, *, is_awaited: bool) -> None:
        """Told of each answer of the server, and whether the client has not given up waiting for it."""

    def earlier(self, path: str, answer: Answer, *, repeat: bool) -> Answer:
        """The answer to the request before, for the same path, if it is to be repeated; this one is kept."""
        plain = urlsplit(path).path
        with self._lock:
            before = self._last.get(plain, answer)
            if repeat:
                return before
            self._last[plain] = answer
        return answer

    @property
    def pause_s(self) -> float:
        """How long a slow answer pauses."""
        return self._faults.pause_s

    @property
    def retry_after_s(self) -> float:
        """What a 429 asks for."""
        return self._faults.retry_after_s


@dataclass(frozen=True)
class Answer:
    """What goes back to the client."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    announced: int | None = None
    """The length in the headers, which an answer to HEAD has without a body."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def shutdown_request(self, request: Any) -> None:
        # An orderly end would come before a reset that was asked for.
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of the test's business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy
    timeout = _LONGEST_S

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        proxy, kind = self.proxy, self.proxy.choose(self.command, self.path)
        if kind == "reset" or len(body) < length:  # or the client was killed; the server would wait for the rest
            return self._reset()
        if kind in _MADE_UP:
            return self._say(_MADE_UP[kind](proxy))
        if kind == "flipped up":
            body = proxy.flipped(body)
        try:
            with proxy.passing(self.command):
                headers = dict(self.headers.items())
                if kind == "cut up" and body:
                    proxy.cut(self.command, self.path, headers, body)
                    return self._reset()
                answer = proxy.forward(self.command, self.path, headers, body)
                proxy.answered(self.command, self.path, answer, is_awaited=self._client_is_there())
        except (OSError, http.client.HTTPException):
            return self._reset()
        if kind == "lost":
            return self._reset()
        if self.command == "GET" and answer.status == 200:
            answer = proxy.earlier(self.path, answer, repeat=kind == "repeated")
        if kind == "flipped down" and self.command != "HEAD":
            answer = replace(answer, body=proxy.flipped(answer.body))
        if kind == "truncated" and answer.body and self.command != "HEAD":
            self._say(answer, until=len(answer.body) // 2)
            return self._reset()
        return self._say(answer, pause_s=proxy.pause_s if kind == "slow" else 0)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = handle_any

    def _say(self, answer: Answer, *, until: int | None = None, pause_s: float = 0) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        length = len(answer.body)
        if self.command == "HEAD" and answer.announced is not None:
            length = answer.announced
        if answer.status not in (204, 304):
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        body = answer.body[:until]
        if pause_s:
            half = len(body) // 2
            self.wfile.write(body[:half])
            self.wfile.flush()
            threading.Event().wait(pause_s)
            body = body[half:]
        self.wfile.write(body)
        self.wfile.flush()

    def _client_is_there(self) -> bool:
        news = select.poll()
        news.register(self.connection, select.POLLIN)
        try:
            return not news.poll(0) or self.connection.recv(1, socket.MSG_PEEK) != b""
        except ConnectionError:
            return False

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


_HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
_JSON = ("Content-Type", "application/json")
_TEXT = ("Content-Type", "text/html")

_MADE_UP: dict[str, Callable[[FaultProxy], Answer]] = {
    "429": lambda proxy: Answer(429, [("Retry-After", f"{proxy.retry_after_s:g}")], b""),
    "500": lambda _: Answer(
        500, [("Content-Type", "application/json")], b'{"Code":"InternalError","Message":"x"}'
    ),
    "503": lambda _: Answer(503, [], b""),
    "html": lambda _: Answer(502, [_TEXT], _HTML),
    "empty": lambda _: Answer(200, [], b""),
}
