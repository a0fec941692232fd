"""An image registry with one image in it, on loopback: enough of its protocol for an engine to pull from."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import docker

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@contextmanager
def registry(client: docker.DockerClient, image: str, *, key: str | None = None) -> Iterator[str]:
    """Serve an image of an engine as `<host>/team/image:1`; gives the host.

    Args:
        client: of the engine that has the image.
        image: its name there.
        key: `user:password`, if it is not for everybody.
    """
    blobs, manifest = _blobs(client, image)
    handler = type("Handler", (_Handler,), {"blobs": blobs, "manifest": manifest, "key": key})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _blobs(client: docker.DockerClient, image: str) -> tuple[dict[str, bytes], bytes]:
    saved = io.BytesIO(b"".join(client.images.get(image).save()))
    with tarfile.open(fileobj=saved) as archive:

        def read(name: str) -> bytes:
            member = archive.extractfile(name)
            assert member
            return member.read()

        (about,) = json.loads(read("manifest.json"))
        config = read(about["Config"])
        layers = [gzip.compress(read(name), compresslevel=1, mtime=0) for name in about["Layers"]]
    blobs = {_digest(content): content for content in (config, *layers)}
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": {"mediaType": _CONFIG, "size": len(config), "digest": _digest(config)},
        "layers": [{"mediaType": _LAYER, "size": len(one), "digest": _digest(one)} for one in layers],
    }
    return blobs, json.dumps(manifest).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    blobs: dict[str, bytes]
    manifest: bytes
    key: str | None

    def log_message(self, *args: object) -> None: ...

    def do_GET(self) -> None:
        wanted = self.path.partition("?")[0]
        if self.key and self.headers.get("Authorization") != _basic(self.key):
            self._say(401, b"", ("WWW-Authenticate", 'Basic realm="here"'))
        elif wanted in ("/v2/", "/v2"):
            self._say(200, b"{}")
        elif wanted in ("/v2/team/image/manifests/1", f"/v2/team/image/manifests/{_digest(self.manifest)}"):
            self._say(200, self.manifest, ("Docker-Content-Digest", _digest(self.manifest)), kind=_MANIFEST)
        elif wanted.startswith("/v2/team/image/blobs/") and wanted.rpartition("/")[2] in self.blobs:
            self._say(200, self.blobs[wanted.rpartition("/")[2]], kind="application/octet-stream")
        else:
            fault = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            self._say(404, json.dumps(fault).encode())

    do_HEAD = do_GET

    def _say(self, status: int, body: bytes, *headers: tuple[str, str], kind: str = "application/json") -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _basic(key: str) -> str:
    return f"Basic {base64.b64encode(key.encode()).decode()}"
