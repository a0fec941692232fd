"""A store that keeps nothing: it counts what arrives, and answers as OSS does, with the CRC-64 of what arrived.

As a program of its own (`python -m tests.support.acknowledging_oss`) it takes nothing from who is measured. The
first line of its output is its port.
"""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from pai_sdk._data.storage.crc64 import combine_crc64, crc64_of

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_EMPTY_PAGE = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.parts: dict[str, dict[int, tuple[int, int]]] = {}  # of each upload: size and CRC-64 by number


class _Handler(socketserver.BaseRequestHandler):
    server: _Server
    request: socket.socket

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer, received = memoryview(bytearray(1 << 20)), b""
        while True:
            while b"\r\n\r\n" not in received:
                if not (more := self.request.recv(1 << 16)):
                    return
                received += more
            head, _, received = received.partition(b"\r\n\r\n")
            length = int(found[1]) if (found := _LENGTH.search(head)) else 0
            body, received = received[:length], received[length:]
            crc64, xml = crc64_of(body), body if length < 1 << 20 else b""
            for chunk in self._rest(length - len(body), buffer):
                crc64 = crc64_of(chunk, crc64)
                xml += bytes(chunk) if length < 1 << 20 else b""
            self.request.sendall(self._answer(head, length, crc64, xml))

    def _rest(self, size_bytes: int, buffer: memoryview) -> Iterator[memoryview]:
        while size_bytes:
            count = self.request.recv_into(buffer, min(size_bytes, len(buffer)))
            if not count:
                raise ConnectionError
            size_bytes -= count
            yield buffer[:count]

    def _answer(self, head: bytes, size_bytes: int, crc64: int, xml: bytes) -> bytes:
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        query = parse_qs(urlsplit(target).query, keep_blank_values=True)
        etag = f"{crc64:016X}{size_bytes:016X}"
        if method == "PUT":
            if "partNumber" in query:
                with self.server.lock:
                    parts = self.server.parts[query["uploadId"][0]]
                    parts[int(query["partNumber"][0])] = size_bytes, crc64
            return _response(crc64=crc64, etag=etag)
        if method == "POST" and "uploads" in query:
            with self.server.lock:
                upload_id = f"{len(self.server.parts):032X}"
                self.server.parts[upload_id] = {}
            return _response(f"<Result><UploadId>{upload_id}</UploadId></Result>".encode())
        if method == "POST":
            return self._complete(query["uploadId"][0], xml)
        return _response(_EMPTY_PAGE) if method == "GET" else _response(status="404 Not Found")

    def _complete(self, upload_id: str, xml: bytes) -> bytes:
        with self.server.lock:
            parts = self.server.parts[upload_id]
        if [int(number) for number in re.findall(rb"<PartNumber>(\d+)<", xml)] != sorted(parts):
            return _response(status="400 Bad Request")
        crc64 = 0
        for _, (size_bytes, of_part) in sorted(parts.items()):
            crc64 = combine_crc64(crc64, of_part, size_bytes)
        return _response(b'<Result><ETag>"0-1"</ETag></Result>', crc64=crc64, etag="0-1")


def _response(body: bytes = b"", *, status: str = "200 OK", crc64: int | None = None, etag: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "x-oss-request-id: 1"]
    if crc64 is not None:
        lines += [f"x-oss-hash-crc64ecma: {crc64}", f'ETag: "{etag}"']
    return "\r\n".join([*lines, "\r\n"]).encode() + body


def main() -> None:
    with _Server() as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
