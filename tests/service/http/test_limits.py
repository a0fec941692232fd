"""Limits: what clients cannot use up, with or without a key."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import oss2
import pytest
import requests

from pai_sdk._service import http_server
from pai_sdk._service.http import guarded_connections
from pai_sdk._service.http.guarded_connections import GuardedProtocol
from pai_sdk._service.http.socket_transfers import IncomingBody
from pai_sdk._service.identity.rate import RateLimit
from pai_sdk._service.services.jobs.changes import Subscription
from pai_sdk._service.settings import ConnectionLimits
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import PATIENCE_S, until

HEAD_BYTES = 16_000
STRICT = ConnectionLimits(
    max_connections=12,
    head_bytes=HEAD_BYTES,
    head_s=1.0,
    stall_s=1.0,
    min_bytes=1000,
    check_interval_s=0.02,
)


class Clock:
    """The time by which the service finds its clients slow: it passes when a test says so, on any machine.

    Attributes:
        seen_bytes: what all clients have sent, as far as it has arrived.
    """

    def __init__(self) -> None:
        self._now_s, self._ticks = 1000.0, itertools.count()
        self._looks = threading.Semaphore(0)
        self.seen_bytes = 0

    def monotonic(self) -> float:
        return self._now_s + 1e-6 * next(self._ticks)  # each call is later than the one before

    def looked(self) -> None:
        self._looks.release()

    def pass_by(self, seconds: float) -> None:
        """Let time pass, until the service has looked at its connections again."""
        self._now_s += seconds
        while self._looks.acquire(blocking=False):
            pass
        for _ in range(2):  # the first may have begun before
            assert self._looks.acquire(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, executor: ScriptedExecutor, clock: Clock) -> Iterator[Client]:
    """A service with little patience."""
    close_slow_connections, data_received = (
        guarded_connections.close_slow_connections,
        GuardedProtocol.data_received,
    )

    def cut(of_them: set[Any]) -> None:
        close_slow_connections(of_them)
        clock.looked()

    def received(protocol: GuardedProtocol, data: bytes) -> None:
        data_received(protocol, data)
        clock.seen_bytes += len(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "close_slow_connections", cut)
        patch.setattr(guarded_connections, "time", SimpleNamespace(monotonic=clock.monotonic))
        patch.setattr(GuardedProtocol, "data_received", received)
        folder = tmp_path_factory.mktemp("strict") / "data"
        with running_service(folder, executor, connections=STRICT) as client:
            yield client


def connect(client: Client) -> socket.socket:
    address = urlsplit(client.info.endpoint)
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S)


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the connection is ended."""
    received = b""
    try:
        while chunk := connection.recv(65_536):
            received += chunk
    except ConnectionError:
        pass
    return received


def answer_as_time_passes(connection: socket.socket, clock: Clock) -> bytes:
    """What comes when the client does no more."""
    connection.settimeout(0.02)
    for _ in range(1000):
        with suppress(TimeoutError):
            return connection.recv(65_536)
        clock.pass_by(0.3)
    pytest.fail("it is not cut")


def signed_head(client: Client, length: int) -> bytes:
    """A request that is let in, up to its body."""
    sent: list[requests.PreparedRequest] = []
    session = requests.Session()
    session.send = lambda request, **_: sent.append(request)  # type: ignore[method-assign, assignment]
    Client(client.info, session).call("POST", "/trainingjobs", body=job_body())
    headers = {**sent[0].headers, "Content-Length": str(length)}
    lines = [f"POST {sent[0].path_url} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


# ---- slow clients -----------------------------------------------------------------------------------------


def test_a_head_that_trickles_is_cut(strict: Client, clock: Clock) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(b"GET /api/v1/workspaces HTTP/1.1\r\n")
        connection.settimeout(0.02)
        for number in range(1000):
            clock.pass_by(0.05)
            with suppress(ConnectionError):  # it is cut just now; its answer can be read all the same
                connection.sendall(f"X-{number}: 1\r\n".encode())
            with suppress(TimeoutError):
                answer = connection.recv(100)
                break
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert number >= 19


@pytest.mark.parametrize("opening", [b"", b"\r\n", b"GET"])
def test_a_connection_on_which_nothing_comes_is_cut(strict: Client, clock: Clock, opening: bytes) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(opening)
        assert b" 408 " in answer_as_time_passes(connection, clock)


@pytest.mark.parametrize("part", [b"", b"{"])
def test_a_body_that_stops_is_cut(strict: Client, clock: Clock, part: bytes) -> None:
    with closing(connect(strict)) as connection:
        send_all(connection, signed_head(strict, 1000) + part, clock)
        assert b" 408 " in answer_as_time_passes(connection, clock)


def send_all(connection: socket.socket, data: bytes, clock: Clock) -> None:
    """Send, and wait until it has arrived: before that, no time must pass."""
    wanted = clock.seen_bytes + len(data)
    connection.sendall(data)
    until(lambda: clock.seen_bytes >= wanted)


def test_an_upload_that_stops_is_cut_and_leaves_nothing(strict: Client, clock: Clock) -> None:
    url = urlsplit(strict.bucket().sign_url("PUT", "stopped", 60))
    with closing(connect(strict)) as connection:
        head = f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: 1000000\r\n\r\n"
        send_all(connection, head.encode() + b"x" * 5000, clock)
        assert b" 408 " in answer_as_time_passes(connection, clock)
    assert not strict.bucket().object_exists("stopped")


def test_who_does_not_read_the_answer_is_cut(
    strict: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, connection_lost = threading.Event(), GuardedProtocol.connection_lost

    def noted(protocol: GuardedProtocol, error: Exception | None) -> None:
        connection_lost(protocol, error)
        if protocol.client == connection.getsockname():
            lost.set()

    strict.bucket().put_object("large", bytes(32 << 20))  # more than all that lies between the two
    url = urlsplit(strict.bucket().sign_url("GET", "large", 60))
    with closing(connect(strict)) as connection:
        send_all(connection, f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode(), clock)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr(GuardedProtocol, "connection_lost", noted)
        while not lost.is_set():
            clock.pass_by(0.3)
        assert len(answer_of(connection)) < 32 << 20


def test_who_is_slow_but_steady_is_not(strict: Client, clock: Clock) -> None:
    url = urlsplit(strict.bucket().sign_url("PUT", "steady", 60))
    with closing(connect(strict)) as connection:
        head = f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: 24000\r\n\r\n"
        send_all(connection, head.encode(), clock)
        for _ in range(24):
            send_all(connection, b"x" * 1000, clock)
            clock.pass_by(0.3)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_waiting_for_news_is_not_being_slow(
    strict: Client, executor: ScriptedExecutor, clock: Clock, held: set[Subscription]
) -> None:
    job_id = strict.create(job_body())
    strict.until(job_id, "Running")
    etag = strict.call("GET", f"/trainingjobs/{job_id}").headers["ETag"]
    headers = {"If-None-Match": etag, "Prefer": "wait=30"}
    held.clear()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(strict.call, "GET", f"/trainingjobs/{job_id}", headers=headers)
        try:
            until(lambda: held)
            for _ in range(5):
                clock.pass_by(0.9)
        finally:
            executor.succeed(strict.info.data_dir / "jobs" / job_id)
        assert waiting.result().json()["Status"] == "Succeed"


@pytest.fixture
def incoming(monkeypatch: pytest.MonkeyPatch) -> list[IncomingBody]:
    """The bodies that threads read."""
    made: list[IncomingBody] = []

    def make(*args: Any) -> IncomingBody:
        made.append(IncomingBody(*args))
        return made[-1]

    monkeypatch.setattr(guarded_connections, "IncomingBody", make)
    return made


def start_large_upload(strict: Client, key: str, length: int, incoming: list[IncomingBody]) -> socket.socket:
    """Sends a head, and waits until a thread reads the body."""
    url = urlsplit(strict.bucket().sign_url("PUT", key, 60))
    connection = connect(strict)
    head = f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {length}\r\n\r\n"
    connection.sendall(head.encode())
    until(lambda: incoming)
    return connection


def test_a_large_upload_that_stops_is_cut_and_leaves_nothing(
    strict: Client, clock: Clock, incoming: list[IncomingBody]
) -> None:
    with closing(start_large_upload(strict, "large and stopped", 3 << 20, incoming)) as connection:
        connection.sendall(bytes(1 << 20))
        until(lambda: incoming[0].remaining_bytes == 2 << 20)
        assert b" 408 " in answer_as_time_passes(connection, clock)
    until(lambda: incoming[0].has_finished)
    assert not strict.bucket().object_exists("large and stopped")


def test_who_sends_much_slowly_but_steadily_is_not(
    strict: Client, clock: Clock, incoming: list[IncomingBody]
) -> None:
    length, steps = (1 << 20) + 24_000, 24
    with closing(start_large_upload(strict, "large and steady", length, incoming)) as connection:
        connection.sendall(bytes(1 << 20))
        for number in range(steps):
            remaining_bytes = (steps - number) * 1000
            until(lambda at=remaining_bytes: incoming[0].remaining_bytes == at and incoming[0].is_waiting)
            clock.pass_by(0.3)
            connection.sendall(bytes(1000))
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


# ---- what is large ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 2 * HEAD_BYTES,
        b"GET / HTTP/1.1\r\nX: " + b"a" * 2 * HEAD_BYTES,
        b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * HEAD_BYTES,
        b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * HEAD_BYTES + b"\r\n",
    ],
)
def test_a_head_that_is_too_large_is_refused(strict: Client, head: bytes) -> None:
    with closing(connect(strict)) as connection:
        try:
            connection.sendall(head)
        except ConnectionError:
            return
        assert answer_of(connection)[:13] in (b"HTTP/1.1 431 ", b"")


def test_a_body_that_is_too_large_is_refused_before_it_comes(strict: Client) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(signed_head(strict, 2 << 20))
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


# ---- how many ---------------------------------------------------------------------------------------------


def test_idle_connections_of_strangers_shut_nobody_out(strict: Client) -> None:
    strangers = [connect(strict) for _ in range(3 * STRICT.max_connections)]
    try:
        fresh = Client(strict.info)
        assert fresh.get("/workspaces")["TotalCount"] == 1
        fresh.session.close()
    finally:
        for stranger in strangers:
            stranger.close()


def test_when_all_connections_are_in_use_one_more_is_told_to_come_again(
    strict: Client, executor: ScriptedExecutor, held: set[Subscription]
) -> None:
    job_id = strict.create(job_body())
    strict.until(job_id, "Running")
    etag = strict.call("GET", f"/trainingjobs/{job_id}").headers["ETag"]
    strict.session.close()

    def wait(_: int) -> int:
        client = Client(strict.info)
        headers = {"If-None-Match": etag, "Prefer": "wait=30"}
        status = client.call("GET", f"/trainingjobs/{job_id}", headers=headers).status_code
        client.session.close()
        return status

    held.clear()
    with ThreadPoolExecutor(STRICT.max_connections) as pool:
        waiting = [pool.submit(wait, number) for number in range(STRICT.max_connections)]
        try:
            until(lambda: len(held) == STRICT.max_connections)
            with closing(connect(strict)) as connection:
                assert answer_of(connection).startswith(b"HTTP/1.1 503 ")
        finally:
            executor.succeed(strict.info.data_dir / "jobs" / job_id)
        assert {future.result() for future in waiting} == {200}


def test_a_key_that_asks_too_often_is_told_when_to_come_again(start: Callable[..., Any]) -> None:
    # Slow enough that none is granted between one request and the next, on any machine.
    with start(ScriptedExecutor(), requests_per_s=1 / 3600) as client:
        answers = [client.call("GET", "/workspaces") for _ in range(4)]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert refused
        for answer in refused:
            assert (answer.status_code, answer.json()["Code"]) == (429, "Throttling.User")
            assert 1 <= int(answer.headers["Retry-After"]) <= 3600
        with pytest.raises(oss2.exceptions.ServerError, match="QpsLimitExceeded") as caught:
            client.bucket().put_object("k", b"")
        assert caught.value.status == 503
        for _ in range(50):  # those without the key are not counted
            assert requests.get(f"{client.info.endpoint}/api/v1/workspaces", timeout=PATIENCE_S).status_code == 401


def test_a_rate_limit_has_a_burst_and_then_says_how_long_to_wait() -> None:
    now = [0.0]
    limit = RateLimit(2.0, burst_s=1.0, clock=lambda: now[0])
    assert [limit.acquire() for _ in range(3)] == [0.0, 0.0, 0.5]
    now[0] = 0.5
    assert [limit.acquire() for _ in range(2)] == [0.0, 0.5]


def test_what_is_served_by_default_never_throttles(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor()) as client:
        bucket = client.bucket()
        with ThreadPoolExecutor(8) as pool:
            assert {
                answer.status for answer in pool.map(lambda n: bucket.put_object(f"k{n}", b"x"), range(300))
            } == {200}


# ---- without a key ----------------------------------------------------------------------------------------

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"]
API = [
    "/api",
    "/api/",
    "/api/v1/trainingjobs",
    "/api/v1/nothing",
    "/api/docs",
    "/api/openapi.json",
    "/api/v1/a?b=1&b=2",
]
API += ["/api/v1/trainingjobs/%00", "/api/%2e%2e/docs", "/api//v1", "/api/v1/" + "x" * 5000]
STORE = [
    "/",
    "/docs",
    "/openapi.json",
    "/redoc",
    "/pai-local",
    "/pai-local/",
    "/pai-local/a%2Fb",
    "/%ff",
    "//",
    "/..",
    "/api2",
]
STORE += [
    "/pai-local?uploads",
    "/metrics",
    "/pai-local/k?x-oss-process=a&b=%ff",
    "/UPPER/../x",
    "/service.json",
    "/a?b=1&b=2",
]


@pytest.mark.parametrize("method", METHODS)
def test_without_a_key_there_is_a_refusal_in_the_right_form_everywhere(service: Client, method: str) -> None:
    address = urlsplit(service.info.endpoint)
    for path in API + STORE:
        if method in ("GET", "HEAD") and path == "/openapi.json":
            continue  # it needs no key
        with closing(connect(service)) as connection:
            head = f"{method} {path} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            head_lines, _, body = answer_of(connection).partition(b"\r\n\r\n")
        status = int(head_lines.split()[1])
        assert status in (401, 403), (path, head_lines)
        if method == "HEAD":
            assert body == b""
        elif path in API or (path, method) == ("/metrics", "GET"):
            assert (status, set(requests.models.complexjson.loads(body))) == (
                401,
                {"RequestId", "Code", "Message", "HostId"},
            )
        else:
            error = ElementTree.fromstring(body)
            assert (error.tag, error.findtext("Code")) == ("Error", "AccessDenied")


@pytest.mark.parametrize(
    "request_",
    [
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://elsewhere/api/v1/workspaces HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"NONSENSE\r\n\r\n",
        b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_is_no_request_of_ours_gets_nothing(strict: Client, request_: bytes) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(request_)
        answer = connection.recv(65_536)
    assert answer == b"" or int(answer.split()[1]) in (400, 401, 403, 408)
    assert strict.get("/workspaces")["TotalCount"] == 1
