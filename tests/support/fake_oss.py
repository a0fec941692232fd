"""An object store in memory that speaks as much OSS as the client needs, and fails on demand.

It does not verify signatures; the embedded service's own store does that, and has tests with the same client.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import anycrc

PAGE_LIMIT = 1000
_CRC64 = anycrc.Model("CRC64-XZ")


@dataclass
class StoredObject:
    content: bytes
    meta: dict[str, str] = field(default_factory=dict)
    kind: str = "Normal"
    etag: str = ""
    storage_class: str = "Standard"
    written: bytes = b""  # checksums are of this one, also when the content is damaged later

    def __post_init__(self) -> None:
        self.written = self.content
        self.etag = self.etag or hashlib.md5(self.content).hexdigest().upper()


@dataclass(frozen=True)
class Seen:
    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass
class WireError:
    """What goes wrong with the next `times` requests that fit.

    kind: `reset` (nothing is done), `lost` (done, but not answered), `status`, `truncate` (half of the body),
    `html`, `corrupt` (one byte of the body is another), `page` (`message` from a server that is not OSS).
    """

    kind: str
    times: int = 1
    status: int = 503
    code: str = "ServiceUnavailable"
    message: str = "try again"
    headers: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    fits: Callable[[Seen], bool] = lambda seen: True


class FakeOss:
    def __init__(self, *buckets: str) -> None:
        self.buckets: dict[str, dict[str, StoredObject]] = {bucket: {} for bucket in buckets}
        self.uploads: dict[str, tuple[str, dict[str, str], dict[int, bytes]]] = {}
        self.faults: list[WireError] = []
        self.seen: list[Seen] = []
        self.before: Callable[[Seen], object] = lambda seen: None
        self.parts_a_page = PAGE_LIMIT
        self.checks_md5 = True
        self.is_encrypted = False  # then the ETag of a part is not its MD5
        self.has_crc64 = True
        self.ignores_ranges = False  # the response to each request for a range is the complete object
        # Another CRC-64 than that of the content, as of a disk that damages it.
        self.misreads: Callable[[Seen], bool] = lambda seen: False
        # What arrives has another first byte.
        self.damages: Callable[[Seen], bool] = lambda seen: False
        self.most_at_once = 0
        self.connections = 0
        self._at_once = 0
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fail(self, kind: str, **details: object) -> None:
        self.faults.append(WireError(kind, **details))  # type: ignore[arg-type]

    def take_fault(self, seen: Seen) -> WireError | None:
        with self.lock:
            self.seen.append(seen)
            for fault in self.faults:
                if fault.times > 0 and fault.fits(seen):
                    fault.times -= 1
                    return fault
        return None

    def crc64(self, seen: Seen, content: bytes) -> dict[str, str]:
        """The header of a response, where the store has it."""
        if not self.has_crc64:
            return {}
        return {"x-oss-hash-crc64ecma": str(_CRC64.calc(content) ^ self.misreads(seen))}

    def entered(self, step: int) -> None:
        with self.lock:
            self._at_once += step
            self.most_at_once = max(self.most_at_once, self._at_once)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    fake: FakeOss


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        with self.server.fake.lock:
            self.server.fake.connections += 1

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def _serve(self) -> None:
        url = urlsplit(self.path)
        _, bucket, *rest = url.path.split("/", 2)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, unquote(rest[0]) if rest else "", query, headers)
        body = self.rfile.read(int(headers.get("content-length", 0)))
        if body and self.server.fake.damages(seen):
            body = bytes([body[0] ^ 1]) + body[1:]
        self.server.fake.before(seen)
        self._fault = self.server.fake.take_fault(seen)
        if self._fault and self._fault.kind == "reset":
            return self._hang_up()
        if self._fault and self._fault.kind == "status":
            fault = self._fault
            return self._refuse(fault.status, fault.code, fault.message, fault.headers, fault.details)
        if self._fault and self._fault.kind == "page":
            body = self._fault.message.encode()
            return self._answer(self._fault.status, body, self._fault.headers)
        if self._fault and self._fault.kind == "html":
            return self._answer(200, b"<html>Please log in<br></html>", {"Content-Type": "text/html"})
        self.server.fake.entered(1)
        try:
            self._act(bucket, seen, body)
        finally:
            self.server.fake.entered(-1)

    def _act(self, bucket: str, seen: Seen, body: bytes) -> None:
        fake = self.server.fake
        if not seen.headers.get("authorization", "").startswith("OSS4-HMAC-SHA256 Credential="):
            return self._refuse(403, "AccessDenied", "not signed")
        objects = fake.buckets.get(bucket)
        if objects is None:
            return self._refuse(404, "NoSuchBucket", "The specified bucket does not exist.")
        digest = seen.headers.get("content-md5")
        if fake.checks_md5 and digest and base64.b64decode(digest) != hashlib.md5(body).digest():
            return self._refuse(400, "InvalidDigest", "The Content-MD5 you specified was invalid.")
        if not seen.key and "delete" in seen.query:
            for key in ElementTree.fromstring(body).iter("Key"):
                objects.pop(unquote(key.text or ""), None)
            return self._answer(200, b"<DeleteResult/>", {"Content-Type": "application/xml"})
        if not seen.key:
            return self._list(objects, seen.query)
        return self._act_on_object(objects, seen, body)

    def _act_on_object(self, objects: dict[str, StoredObject], seen: Seen, body: bytes) -> None:
        meta = {name: value for name, value in seen.headers.items() if name.startswith("x-oss-meta-")}
        if "uploads" in seen.query or "uploadId" in seen.query:
            return self._parts(objects, seen, body, meta)
        if seen.method == "PUT" and "x-oss-copy-source" in seen.headers:
            return self._copy(objects, seen, meta)
        if seen.method == "PUT":
            objects[seen.key] = StoredObject(body, meta)
            headers = {"ETag": f'"{objects[seen.key].etag}"', **self.server.fake.crc64(seen, body)}
            return self._answer(200, b"", headers)
        if seen.method == "DELETE":
            objects.pop(seen.key, None)
            return self._answer(204, b"")
        if seen.key not in objects:
            return self._refuse(404, "NoSuchKey", "The specified key does not exist.")
        return self._get(objects[seen.key], seen)

    def _copy(self, objects: dict[str, StoredObject], seen: Seen, meta: dict[str, str]) -> None:
        bucket, _, key = unquote(seen.headers["x-oss-copy-source"]).removeprefix("/").partition("/")
        source = self.server.fake.buckets[bucket].get(key)
        if source is None:
            return self._refuse(404, "NoSuchKey", "The specified key does not exist.")
        if seen.headers.get("x-oss-copy-source-if-match", source.etag) != source.etag:
            return self._refuse(412, "PreconditionFailed", "the source has changed")
        replaced = seen.headers.get("x-oss-metadata-directive") == "REPLACE"
        # As in OSS: what did not come by PutObject has an ETag that tells nothing of the content.
        copied = StoredObject(source.content, meta if replaced else source.meta, etag=uuid.uuid4().hex.upper())
        objects[seen.key] = copied
        namespace = "http://doc.oss-cn-hangzhou.aliyuncs.com"
        text = f'<CopyObjectResult xmlns="{namespace}"><ETag>"{copied.etag}"</ETag></CopyObjectResult>'
        return self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _copy_part(self, parts: dict[int, bytes], seen: Seen) -> None:
        bucket, _, key = unquote(seen.headers["x-oss-copy-source"]).removeprefix("/").partition("/")
        source = self.server.fake.buckets[bucket].get(key)
        if source is None:
            return self._refuse(404, "NoSuchKey", "The specified key does not exist.")
        if seen.headers["x-oss-copy-source-if-match"] != source.etag:
            return self._refuse(412, "PreconditionFailed", "the source has changed")
        first, _, last = seen.headers["x-oss-copy-source-range"].removeprefix("bytes=").partition("-")
        part = parts[int(seen.query["partNumber"])] = source.content[int(first) : int(last) + 1]
        text = f'<CopyPartResult><ETag>"{hashlib.md5(part).hexdigest().upper()}"</ETag></CopyPartResult>'
        return self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _get(self, found: StoredObject, seen: Seen) -> None:
        headers = {"ETag": f'"{found.etag}"', "x-oss-object-type": found.kind}
        headers |= self.server.fake.crc64(seen, found.written or found.content) | found.meta
        wanted = seen.headers.get("if-match")
        if wanted and wanted.strip('"') != found.etag:
            return self._refuse(412, "PreconditionFailed", "the object has changed")
        if "range" in seen.headers and not self.server.fake.ignores_ranges:
            first, _, last = seen.headers["range"].removeprefix("bytes=").partition("-")
            part = found.content[int(first) : int(last) + 1]
            if int(first) >= len(found.content):
                return self._refuse(416, "InvalidRange", "The requested range cannot be satisfied")
            last = str(min(int(last), len(found.content) - 1))
            span = f"bytes {first}-{last}/{len(found.content)}"
            return self._answer(206, part, {**headers, "Content-Range": span})
        return self._answer(200, found.content, headers)

    def _parts(self, objects: dict[str, StoredObject], seen: Seen, body: bytes, meta: dict[str, str]) -> None:
        fake = self.server.fake
        if "uploads" in seen.query:
            upload_id = uuid.uuid4().hex
            fake.uploads[upload_id] = (seen.key, meta, {})
            text = (
                f"<InitiateMultipartUploadResult><UploadId>{upload_id}</UploadId></InitiateMultipartUploadResult>"
            )
            return self._answer(200, text.encode())
        if seen.query["uploadId"] not in fake.uploads:
            return self._refuse(404, "NoSuchUpload", "The specified upload does not exist.")
        key, meta, parts = fake.uploads[seen.query["uploadId"]]
        if seen.method == "PUT" and "x-oss-copy-source" in seen.headers:
            return self._copy_part(parts, seen)
        if seen.method == "PUT":
            parts[int(seen.query["partNumber"])] = body
            etag = uuid.uuid4().hex if fake.is_encrypted else hashlib.md5(body).hexdigest()
            kms = {"x-oss-server-side-encryption": "KMS"} if fake.is_encrypted else {}
            return self._answer(200, b"", {"ETag": f'"{etag.upper()}"', **kms, **fake.crc64(seen, body)})
        if seen.method == "GET":
            return self._list_parts(parts, int(seen.query.get("part-number-marker") or 0))
        del fake.uploads[seen.query["uploadId"]]
        if seen.method == "DELETE":
            return self._answer(204, b"")
        numbers = [int(node.text or 0) for node in ElementTree.fromstring(body).iter("PartNumber")]
        content = b"".join(parts[number] for number in numbers)
        etag = f"{hashlib.md5(content).hexdigest().upper()}-{len(numbers)}"
        objects[key] = StoredObject(content, meta, kind="Multipart", etag=etag)
        answer = f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        return self._answer(200, answer.encode(), {"ETag": f'"{etag}"', **fake.crc64(seen, content)})

    def _list_parts(self, parts: dict[int, bytes], after: int) -> None:
        numbers = sorted(number for number in parts if number > after)
        page = numbers[: self.server.fake.parts_a_page]
        rows = "".join(
            f"<Part><PartNumber>{number}</PartNumber><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"{hashlib.md5(parts[number]).hexdigest().upper()}"</ETag><Size>{len(parts[number])}</Size>'
            + (
                f"<HashCrc64ecma>{_CRC64.calc(parts[number])}</HashCrc64ecma>"
                if self.server.fake.has_crc64
                else ""
            )
            + "</Part>"
            for number in page
        )
        text = (
            f"<ListPartsResult><IsTruncated>{str(len(numbers) > len(page)).lower()}</IsTruncated>"
            f"<NextPartNumberMarker>{page[-1] if page else after}</NextPartNumberMarker>{rows}</ListPartsResult>"
        )
        return self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _list(self, objects: dict[str, StoredObject], query: dict[str, str]) -> None:
        after = unquote(query.get("continuation-token", ""))
        keys = sorted(key for key in objects if key.startswith(query.get("prefix", "")) and key > after)
        page = keys[: min(int(query.get("max-keys", "100")), PAGE_LIMIT)]
        rows = "".join(
            f"<Contents><Key>{quote(key, safe='')}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"{objects[key].etag}"</ETag><Type>{objects[key].kind}</Type>'
            f"<Size>{len(objects[key].content)}</Size>"
            f"<StorageClass>{objects[key].storage_class}</StorageClass></Contents>"
            for key in page
        )
        more = len(keys) > len(page)
        token = f"<NextContinuationToken>{quote(page[-1], safe='')}</NextContinuationToken>" if more else ""
        text = (
            f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{token}{rows}</ListBucketResult>"
        )
        return self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _refuse(
        self,
        status: int,
        code: str,
        message: str,
        headers: dict[str, str] | None = None,
        details: dict[str, str] | None = None,
    ) -> None:
        more = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in (details or {}).items())
        text = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message>{more}</Error>"
        if self.command == "HEAD":
            headers = {**(headers or {}), "x-oss-err": base64.b64encode(text.encode()).decode()}
        self._answer(status, text.encode(), headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        kind = self._fault.kind if self._fault else ""
        if kind == "lost":
            return self._hang_up()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if kind != "page":
            self.send_header("x-oss-request-id", "REQ-1")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if kind == "corrupt" and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        self.wfile.write(body[: len(body) // 2] if kind == "truncate" else body)
        return self._hang_up() if kind == "truncate" else None

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
