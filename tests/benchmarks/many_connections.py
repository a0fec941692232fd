"""A client that costs little: requests that are ready to be sent, over many connections, in one thread."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

import oss2

__all__ = ["ask_all", "signed_request"]


def signed_request(
    bucket: oss2.Bucket, method: str, key: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> bytes:
    """A request as it goes over the wire, signed in its headers."""
    url = f"{bucket.endpoint}/{bucket.bucket_name}/{key}"
    request = oss2.http.Request(method, url, headers=dict(headers or {}), region=bucket.region, product="oss")
    bucket.auth._sign_request(request, bucket.bucket_name, key)
    parts = urlsplit(url)
    lines = [f"{method} {parts.path} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def ask_all(host: str, port: int, requests: Iterable[bytes], connections: int) -> None:
    """Send the requests, each connection the next one when it has its answer; all must be answered with 200."""
    left = iter(requests)
    with selectors.DefaultSelector() as selector:
        for _, request in zip(range(connections), left, strict=False):
            connection = socket.create_connection((host, port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            for ready, _ in selector.select():
                connection, answer = ready.fileobj, ready.data
                received = connection.recv(1 << 17)
                assert received, "the connection ended"
                answer += received
                if not _is_whole(answer):
                    continue
                assert answer.startswith(b"HTTP/1.1 200"), bytes(answer[:500])
                answer.clear()
                if (request := next(left, None)) is not None:
                    connection.sendall(request)
                else:
                    selector.unregister(connection)
                    connection.close()


def _is_whole(answer: bytearray) -> bool:
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(answer[:end]).lower()
    _, _, length = head.partition(b"\r\ncontent-length:")
    return len(answer) >= end + 4 + int(length.partition(b"\r\n")[0])
