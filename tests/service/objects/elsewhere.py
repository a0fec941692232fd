"""Stores in their own processes for contents elsewhere: moto as S3, the objects of another service as OSS."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import requests

from pai_sdk._data.storage.base import Store
from pai_sdk.cli.service.external_objects import objects_store
from tests.service.certificates import Files
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET
from tests.support.waiting import until

KEY = ("moto-id", "moto-secret")


def _responds(endpoint: str) -> bool:
    try:
        return requests.get(endpoint, timeout=5).status_code < 500
    except requests.RequestException:
        return False


class S3:
    """A server of moto, which forgets everything when it ends; started again, it listens on the same port."""

    bucket = "objects"

    def __init__(self) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self._port = listener.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self.start()
        self.client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY[0],
            aws_secret_access_key=KEY[1],
        )
        self.client.create_bucket(Bucket=self.bucket)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: _responds(self.endpoint), "moto's start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"{prefix}/blobs/"
        )
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def store(self, prefix: str, key: tuple[str, str] = KEY) -> Store:
        return objects_store(f"s3://{self.bucket}/{prefix}", endpoint=self.endpoint, region="us-east-1", key=key)


@contextmanager
def s3_server() -> Iterator[S3]:
    server = S3()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def strict_s3(certificate: Files) -> Iterator[str]:
    """A moto behind https that refuses bodies without a length, as many stores do; yields its address."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = DomainDispatcherApplication(create_backend_app)

    def strict(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        encoding = environ.get("HTTP_CONTENT_ENCODING", "")
        if environ["REQUEST_METHOD"] == "PUT" and ("CONTENT_LENGTH" not in environ or "aws-chunked" in encoding):
            start_response("411 Length Required", [("Content-Length", "0")])
            return [b""]
        return application(environ, start_response)

    context = (str(certificate.certificate), str(certificate.key))
    server = make_server("127.0.0.1", 0, strict, threaded=True, ssl_context=context)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Oss:
    """The object store of another pai_sdk service, whose folder outlives its process."""

    def __init__(self, root: Path, endpoint: str) -> None:
        self.root, self.endpoint = root, endpoint

    def store(self, prefix: str, key: tuple[str, str] = (KEY_ID, SECRET)) -> Store:
        return objects_store(f"oss://{BUCKET}/{prefix}", endpoint=self.endpoint, region=REGION, key=key)


@contextmanager
def oss_server(root: Path) -> Iterator[Oss]:
    repository = Path(__file__).parents[3]
    command = [sys.executable, "-W", "ignore", "-m", "tests.service.objects.serving", str(root), "0"]
    with (
        subprocess.Popen(
            command,
            cwd=repository,
            env={**os.environ, "PYTHONPATH": str(repository)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        yield Oss(root, process.stdout.readline().strip())
