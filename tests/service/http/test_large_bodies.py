"""Large bodies, which threads receive and send beside the event loop, byte by byte on raw connections."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import oss2
import pytest

from pai_sdk._service.http import guarded_connections, socket_transfers
from pai_sdk._service.http.socket_transfers import IncomingBody, OutgoingFile
from pai_sdk._service.oss import body
from pai_sdk._service.oss.blobs import BlobWriter
from tests.service.objects.conftest import Wire
from tests.service.objects.serving import BUCKET, served
from tests.support.waiting import PATIENCE_S, until

CONTENT = os.urandom((3 << 20) + 17)
OTHER = os.urandom((2 << 20) + 1)


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with served(tmp_path_factory.mktemp("store")) as (store, endpoint):
        made = Wire(endpoint, store)
        yield made
        made.close()


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What threads receive and send."""
    made: list[Any] = []

    def recording(kind: type) -> Any:
        def make(*args: Any) -> Any:
            made.append(kind(*args))
            return made[-1]

        return make

    for kind in (IncomingBody, OutgoingFile):
        monkeypatch.setattr(guarded_connections, kind.__name__, recording(kind))
    return made


def connect(wire: Wire) -> socket.socket:
    address = urlsplit(wire.endpoint)
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S)


def head(
    wire: Wire, method: str, key: str, size_bytes: int = 0, *lines: str, version: str = "1.1", **params: str
) -> bytes:
    names = [line.partition(":") for line in lines]
    signed = {name: value.strip() for name, _, value in names if name.lower() == "content-md5"}
    url = urlsplit(wire.bucket().sign_url(method, key, 600, headers=signed, params=params, slash_safe=True))
    length = [f"Content-Length: {size_bytes}"] if method == "PUT" else []
    path = f"{method} {url.path}?{url.query} HTTP/{version}"
    return "\r\n".join([path, f"Host: {url.netloc}", *length, *lines, "", ""]).encode()


def answer(connection: socket.socket, method: str = "PUT") -> tuple[int, bytes]:
    """Reads one response, and not a byte more."""
    lines = b""
    while not lines.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, lines
        lines += byte
    length = re.search(rb"content-length: (\d+)", lines)
    remaining = int(length[1]) if length and method != "HEAD" else 0
    content = bytearray()
    while remaining > len(content) and (chunk := connection.recv(min(1 << 20, remaining - len(content)))):
        content += chunk
    assert len(content) == remaining
    return int(lines.split()[1]), bytes(content)


def content_of(wire: Wire, key: str) -> bytes:
    return wire.bucket().get_object(key).read()


def leftovers(wire: Wire) -> list[Path]:
    store = wire.store
    assert store is not None
    return list((store.path_of_blob("0" * 32).parents[2] / "incoming").iterdir())


def test_a_body_goes_through_a_thread_and_the_connection_continues(wire: Wire, transfers: list[Any]) -> None:
    with closing(connect(wire)) as connection:
        for key, content in (("first", CONTENT), ("small", b"x"), ("second", OTHER)):
            connection.sendall(head(wire, "PUT", key, len(content)) + content)
            assert answer(connection) == (200, b"")
        for key, content in (("first", CONTENT), ("small", b"x"), ("second", OTHER)):
            connection.sendall(head(wire, "GET", key))
            assert answer(connection, "GET") == (200, content)
    assert [type(transfer) for transfer in transfers] == [IncomingBody] * 2 + [OutgoingFile] * 2


def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    requests = [
        head(wire, "PUT", "piped", len(CONTENT)) + CONTENT,
        head(wire, "GET", "piped"),
        head(wire, "PUT", "piped 2", len(OTHER)) + OTHER,
        head(wire, "GET", "piped 2"),
        head(wire, "GET", "piped"),
    ]
    with closing(connect(wire)) as connection, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(connection.sendall, b"".join(requests))
        wanted = [(200, b""), (200, CONTENT), (200, b""), (200, OTHER), (200, CONTENT)]
        methods = [request[:3].decode() for request in requests]
        assert [answer(connection, method) for method in methods] == wanted
        sending.result()


def test_what_follows_a_body_is_another_request(wire: Wire) -> None:
    with closing(connect(wire)) as connection:
        connection.sendall(head(wire, "PUT", "longer", len(CONTENT)) + CONTENT + b"no request\r\n\r\n")
        assert answer(connection)[0] == 200
        assert answer(connection)[0] == 400
        assert connection.recv(1) == b""
    assert content_of(wire, "longer") == CONTENT


def test_what_is_no_request_never_gets_into_the_content_of_a_response(wire: Wire) -> None:
    content = os.urandom(32 << 20)
    wire.bucket().put_object("in progress", content)
    for garbage in (b"no request\r\n\r\n", head(wire, "GET", "in progress") + b"no request\r\n\r\n"):
        with closing(connect(wire)) as connection:
            connection.sendall(head(wire, "GET", "in progress"))
            received = connection.recv(1 << 16)
            connection.sendall(garbage)
            with suppress(ConnectionError):
                while chunk := connection.recv(1 << 20):
                    received += chunk
        body = received.partition(b"\r\n\r\n")[2]
        assert body == content[: len(body)]


@pytest.mark.parametrize("first_bytes", [0, 1, 100_000, 1 << 20])
def test_a_body_that_arrives_late_or_in_pieces(wire: Wire, first_bytes: int) -> None:
    with closing(connect(wire)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head(wire, "PUT", "pieces", len(CONTENT)) + CONTENT[:first_bytes])
        for start in range(first_bytes, len(CONTENT), 50_000):
            connection.sendall(CONTENT[start : start + 50_000])
        assert answer(connection)[0] == 200
    assert content_of(wire, "pieces") == CONTENT


def test_a_client_that_waits_for_100_continue(wire: Wire, transfers: list[Any]) -> None:
    with closing(connect(wire)) as connection:
        connection.sendall(head(wire, "PUT", "expected", len(CONTENT), "Expect: 100-continue"))
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert connection.recv(len(interim), socket.MSG_WAITALL) == interim
        connection.sendall(CONTENT)
        assert answer(connection)[0] == 200
    assert content_of(wire, "expected") == CONTENT
    assert transfers


@pytest.mark.parametrize(("version", "line"), [("1.0", "X: y"), ("1.1", "Connection: close")])
def test_a_connection_that_ends_with_its_request(wire: Wire, version: str, line: str) -> None:
    for method, content, wanted in (("PUT", CONTENT, b""), ("GET", b"", CONTENT)):
        with closing(connect(wire)) as connection:
            connection.sendall(head(wire, method, "closed", len(content), line, version=version) + content)
            assert answer(connection, method) == (200, wanted)
            assert connection.recv(1) == b""


def test_a_range_and_the_head_of_a_large_object(wire: Wire) -> None:
    wire.bucket().put_object("ranged", CONTENT)
    with closing(connect(wire)) as connection:
        connection.sendall(head(wire, "GET", "ranged", 0, f"Range: bytes=100-{len(CONTENT) - 2}"))
        assert answer(connection, "GET") == (206, CONTENT[100:-1])
        connection.sendall(head(wire, "HEAD", "ranged"))
        assert answer(connection, "HEAD") == (200, b"")
        connection.sendall(head(wire, "GET", "ranged"))
        assert answer(connection, "GET") == (200, CONTENT)


def test_content_of_a_file_system_without_sendfile(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> int:
        raise OSError(errno.EINVAL, "no sendfile")

    wire.bucket().put_object("copied", CONTENT)
    monkeypatch.setattr(os, "sendfile", refused)
    assert content_of(wire, "copied") == CONTENT


# ---- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["at once", "after the answer"])
def test_a_refusal_in_the_middle_leaves_the_connection_usable(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    def full(writer: BlobWriter, *chunks: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space")

    arrived = len(CONTENT) if rest == "at once" else 1 << 20
    with closing(connect(wire)) as connection:
        with monkeypatch.context() as patch:
            patch.setattr(BlobWriter, "write", full)
            connection.sendall(head(wire, "PUT", "refused", len(CONTENT)) + CONTENT[:arrived])
            assert answer(connection)[0] == 507
        connection.sendall(CONTENT[arrived:] + head(wire, "PUT", "next", len(OTHER)) + OTHER)
        assert answer(connection)[0] == 200
    assert content_of(wire, "next") == OTHER
    assert not wire.bucket().object_exists("refused")
    assert leftovers(wire) == []


@pytest.mark.parametrize(
    ("key", "lines", "params", "status"),
    [
        ("md5", [f"Content-MD5: {oss2.utils.content_md5(b'other')}"], {}, 400),
        ("no upload", [], {"uploadId": "0" * 32, "partNumber": "1"}, 404),
        ("key" * 400, [], {}, 400),
    ],
)
def test_a_refused_body(wire: Wire, key: str, lines: list[str], params: dict[str, str], status: int) -> None:
    with closing(connect(wire)) as connection:
        connection.sendall(head(wire, "PUT", key, len(CONTENT), *lines, **params) + CONTENT)
        assert answer(connection)[0] == status
        connection.sendall(head(wire, "PUT", "after", len(OTHER)) + OTHER)
        assert answer(connection)[0] == 200
    assert content_of(wire, "after") == OTHER
    assert leftovers(wire) == []


def test_a_bucket_that_is_missing_and_a_signature_that_is_wrong(wire: Wire) -> None:
    for wrong, status in ((f"/{BUCKET}/", 404), (b"Signature=", 403)):
        request = head(wire, "PUT", "k", len(CONTENT))
        if status == 404:
            auth_bucket = oss2.Bucket(wire.bucket().auth, wire.endpoint, "no-such-bucket", region="cn-test")
            url = urlsplit(auth_bucket.sign_url("PUT", "k", 600))
            request = (
                f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n"
                f"Content-Length: {len(CONTENT)}\r\n\r\n"
            ).encode()
        else:
            request = request.replace(b"ignature=", b"ignature=0", 1)
        with closing(connect(wire)) as connection:
            connection.sendall(request + CONTENT)
            assert answer(connection)[0] == status, wrong
            connection.sendall(head(wire, "PUT", "k", 1) + b"1")
            assert answer(connection)[0] == 200


# ---- clients that vanish or wait ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["ends", "resets"])
def test_a_client_that_vanishes_leaves_nothing(wire: Wire, transfers: list[Any], way: str) -> None:
    with closing(connect(wire)) as connection:
        connection.sendall(head(wire, "PUT", "vanished", len(CONTENT)) + CONTENT[: 2 << 20])
        until(lambda: transfers and transfers[0].remaining_bytes == len(CONTENT) - (2 << 20))
        if way == "resets":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    until(lambda: transfers[0].has_finished and not leftovers(wire))
    assert not wire.bucket().object_exists("vanished")


def test_a_client_that_vanishes_while_it_receives_frees_the_thread(wire: Wire, transfers: list[Any]) -> None:
    wire.bucket().put_object("received", CONTENT * 10)
    del transfers[:]
    with closing(connect(wire)) as connection:
        connection.sendall(head(wire, "GET", "received"))
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        until(lambda: transfers and transfers[0].is_waiting)
    until(lambda: transfers[0].has_finished)


def test_more_uploads_than_threads_hold_up_nobody(
    wire: Wire, transfers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = [connect(wire) for _ in range(100)]
    try:
        for number, connection in enumerate(connections):
            connection.sendall(head(wire, "PUT", f"slow/{number}", len(OTHER)) + OTHER[:1000])
        until(lambda: len(transfers) == 32)
        for number in range(20):
            wire.bucket().put_object(f"quick/{number}", b"x")
            assert content_of(wire, f"quick/{number}") == b"x"
        wire.bucket().put_object("quick/large", CONTENT)
        assert content_of(wire, "quick/large") == CONTENT
        # Those without a thread finish first.
        for connection in reversed(connections):
            connection.sendall(OTHER[1000:])
            assert answer(connection)[0] == 200
    finally:
        for connection in connections:
            connection.close()
    assert len(transfers) == 32
    assert {content_of(wire, f"slow/{number}") == OTHER for number in (0, 50, 99)} == {True}


def test_two_uploads_of_one_part_at_once(wire: Wire) -> None:
    bucket = wire.bucket()
    upload_id = bucket.init_multipart_upload("twice").upload_id
    contents = [bytes([number]) * len(CONTENT) for number in range(4)]
    params = {"uploadId": upload_id, "partNumber": "1"}
    ready = threading.Barrier(len(contents), timeout=PATIENCE_S)

    def upload(content: bytes) -> int:
        with closing(connect(wire)) as connection:
            connection.sendall(head(wire, "PUT", "twice", len(content), **params) + content[: 1 << 20])
            ready.wait()
            connection.sendall(content[1 << 20 :])
            return answer(connection)[0]

    with ThreadPoolExecutor(len(contents)) as pool:
        assert [*pool.map(upload, contents)] == [200] * len(contents)
    (part,) = bucket.list_parts("twice", upload_id).parts
    bucket.complete_multipart_upload("twice", upload_id, [oss2.models.PartInfo(1, part.etag)])
    assert content_of(wire, "twice") in contents


# ---- the threads themselves ---------------------------------------------------------------------------------


def test_a_transfer_that_is_cancelled_before_it_starts_closes_its_descriptors() -> None:
    ours, theirs = socket.socketpair()
    file = os.open(os.devnull, os.O_RDONLY)
    with ours, theirs:
        outgoing = OutgoingFile(ours.dup(), file, 0, 1)
        outgoing.cancel()
        outgoing.cancel()
        with pytest.raises(socket_transfers.ClientDisconnect):
            outgoing.send()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)
        assert theirs.recv(1) == b""


def test_a_cancelled_transfer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        incoming = IncomingBody(ours.dup(), b"first", 100)

        def read() -> list[bytes]:
            with incoming.running():
                return [bytes(chunk) for chunk in incoming.chunks()]

        reading = pool.submit(read)
        until(lambda: incoming.is_waiting)
        incoming.cancel()
        with pytest.raises(socket_transfers.ClientDisconnect):
            reading.result(PATIENCE_S)
        assert incoming.has_finished


def test_the_threads_of_transfers_are_limited() -> None:
    assert body.Threads(0).can_transfer is False
