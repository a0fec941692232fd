"""HTTP over kept connections: every form of answer, connections that may not be used again, threads, forks."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import oss2
import pytest
import requests

from pai_sdk._data.storage.oss.http import HttpPool
from tests.support.waiting import PATIENCE_S

HEAD = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Gives each request the bytes that a function makes of its path."""

    def __init__(self, answer: Callable[[str], bytes]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.received: list[bytes] = []
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as stream:
            while first := stream.readline():
                lines = [first, *iter(stream.readline, b"\r\n")]
                sizes = [line for line in lines if line.lower().startswith(b"content-length")]
                body = stream.read(int(sizes[0].partition(b":")[2])) if sizes else b""
                self.received.append(b"".join(lines) + body)
                answer = self._answer(first.split()[1].decode())
                connection.sendall(answer)
                if b"connection: close" in answer.lower() or b"\r\n\r\n" not in answer:
                    return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()


@pytest.fixture
def serving() -> Iterator[Callable[[Callable[[str], bytes]], Server]]:
    servers: list[Server] = []

    def serve(answer: Callable[[str], bytes]) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


def pool_to(server: Server, silence_s: float = PATIENCE_S) -> HttpPool:
    return HttpPool("http", "127.0.0.1", server.port, size=8, timeouts_s=(PATIENCE_S, silence_s))


def sized(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def ask(pool: HttpPool, path: str = "/", method: str = "GET") -> bytes:
    return pool.request(method, path, {"host": "store"}).read()


LARGE = os.urandom(700_000)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "body", "is_kept"),
    [
        (sized(b"content"), b"content", True),
        (sized(b""), b"", True),
        (sized(LARGE), LARGE, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"x"), b"x", True),
        (CHUNKED + b"3\r\nabc\r\n2;name=value\r\nde\r\n0\r\n\r\n", b"abcde", True),
        (CHUNKED + b"aaE60\r\n" + LARGE + b"\r\n0\r\nTrailer: x\r\n\r\n", LARGE, True),
        (CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\n") + b"1\r\nx\r\n0\r\n\r\n", b"x", False),
        (HEAD + b"Connection: close\r\n\r\n" + LARGE, LARGE, False),
        (sized(b"x").replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), b"x", False),
        (sized(b"x").replace(b"1.1", b"1.0"), b"x", False),
        (sized(b"x") + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfake", b"x", False),  # not asked for
    ],
)
def test_the_forms_of_answers(serving: Callable[..., Server], answer: bytes, body: bytes, is_kept: bool) -> None:
    server = serving(lambda path: answer)
    pool = pool_to(server)
    assert [ask(pool), ask(pool)] == [body, body]
    assert server.connections == (1 if is_kept else 2)
    pool.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        HEAD + b"Content-Length: 10\r\nConnection: close\r\n\r\nhalf",
        HEAD + b"Content-Length: -1\r\nConnection: close\r\n\r\n",
        HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nxx",
        HEAD + b"no colon\r\nConnection: close\r\n\r\n",
        HEAD + b"X: " + b"x" * 200_000 + b"\r\nConnection: close",
        HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n",
        HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_what_is_no_whole_answer_is_an_error(serving: Callable[..., Server], answer: bytes) -> None:
    server = serving(lambda path: answer)
    pool = pool_to(server, silence_s=0.3)
    with pytest.raises(oss2.exceptions.RequestError):
        ask(pool)


def test_an_answer_that_was_not_read_to_its_end_ends_the_connection(serving: Callable[..., Server]) -> None:
    server = serving(lambda path: sized(LARGE))
    pool = pool_to(server)
    answer = pool.request("GET", "/", {"host": "store"})
    next(answer)
    answer.close()
    answer.close()
    assert ask(pool) == LARGE
    assert server.connections == 2


def test_an_answer_to_head_has_no_body(serving: Callable[..., Server]) -> None:
    server = serving(lambda path: HEAD + b"Content-Length: 99\r\n\r\n")
    pool = pool_to(server)
    for _ in range(2):
        answer = pool.request("HEAD", "/", {"host": "store"})
        assert (answer.headers["content-length"], answer.read()) == ("99", b"")
    assert server.connections == 1


def test_a_connection_that_the_server_closed_meanwhile_is_not_used(serving: Callable[..., Server]) -> None:
    server = serving(lambda path: sized(path.encode()))
    pool = pool_to(server)
    assert ask(pool, "/1") == b"/1"
    server._open[0].shutdown(socket.SHUT_RDWR)
    assert ask(pool, "/2") == b"/2"
    assert server.connections == 2


def test_many_threads_get_their_own_answers(serving: Callable[..., Server]) -> None:
    server = serving(lambda path: sized(path.encode() * 50))
    pool = pool_to(server)
    paths = [f"/{number}/" for number in range(300)]
    with ThreadPoolExecutor(16) as threads:
        assert [*threads.map(lambda path: ask(pool, path), paths)] == [path.encode() * 50 for path in paths]
    pool.close()
    before = server.connections
    assert ask(pool, "/x") == b"/x" * 50  # after close() it opens connections again
    assert server.connections == before + 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_fork_uses_no_connection_of_its_parent(serving: Callable[..., Server]) -> None:
    server = serving(lambda path: sized(path.encode()))
    pool = pool_to(server)
    assert ask(pool, "/parent") == b"/parent"
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if [ask(pool, f"/{number}") for number in range(3)] == [b"/0", b"/1", b"/2"] else 1)
        except BaseException:
            traceback.print_exc()
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ask(pool, "/again") == b"/again"
    assert server.connections == 2  # one of each process


def test_a_header_cannot_end_a_line(serving: Callable[..., Server]) -> None:
    server = serving(lambda path: sized(b""))
    pool = pool_to(server)
    for value in ("s3cret\r\ny: z", "s3cret\ny", " s3cret", "s3cret\0"):
        with pytest.raises(oss2.exceptions.RequestError) as caught:
            pool.request("GET", "/", {"host": "store", "x-oss-security-token": value})
        assert isinstance(caught.value.exception, requests.exceptions.InvalidHeader)
        assert "s3cret" not in str(caught.value)
    assert server.received == []


def test_silence_has_an_end(serving: Callable[..., Server]) -> None:
    released = threading.Event()

    def late(path: str) -> bytes:
        released.wait(PATIENCE_S)
        return sized(b"late")

    pool = pool_to(serving(late), silence_s=0.05)
    with pytest.raises(oss2.exceptions.RequestError) as caught:
        ask(pool)
    assert isinstance(caught.value.exception, TimeoutError)
    released.set()


def test_a_refusal_that_comes_before_the_whole_body_is_read(serving: Callable[..., Server]) -> None:
    """A server may answer and close while the body is still being sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 20):
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        pool = HttpPool(
            "http", "127.0.0.1", listener.getsockname()[1], size=1, timeouts_s=(PATIENCE_S, PATIENCE_S)
        )
        headers = {"host": "store", "content-length": str(len(LARGE))}
        answer = pool.request("PUT", "/", headers, [LARGE])  # type: ignore[arg-type]
        assert (answer.status, answer.read()) == (403, b"")
        thread.join(PATIENCE_S)


def test_a_slow_line_gives_a_block_before_it_is_full() -> None:
    """Between two blocks, a transfer looks whether it was cancelled."""
    size, has_block = 1 << 20, threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(HEAD + f"Content-Length: {size}\r\n\r\n".encode())
                sent = 0
                while not has_block.wait(0.05) and sent < size // 2:
                    connection.sendall(bytes(10_000))
                    sent += 10_000
                has_block.wait(PATIENCE_S)
                connection.sendall(bytes(size - sent))

        thread = threading.Thread(target=serve)
        thread.start()
        pool = HttpPool(
            "http", "127.0.0.1", listener.getsockname()[1], size=1, timeouts_s=(PATIENCE_S, PATIENCE_S)
        )
        lengths = []
        for block in pool.request("GET", "/", {}).blocks():
            lengths.append(len(block))
            has_block.set()
        thread.join()
        pool.close()
    assert 0 < lengths[0] <= size // 2
    assert sum(lengths) == size
