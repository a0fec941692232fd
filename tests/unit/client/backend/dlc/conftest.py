"""A session whose DLC backend sends to a fake, and whose bucket is a fake too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from pai_sdk import Session
from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.backend.dlc.backend import DlcBackend
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.uri import OssUri
from tests.support.odd_dlc import FakeDlc


class Bucket:
    """Records the objects that are written."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_bytes(self, uri: OssUri, content: bytes, *, overwrite: bool = True) -> str:
        self.objects.setdefault(str(uri), content)
        return "etag"


@pytest.fixture
def dlc() -> FakeDlc:
    return FakeDlc()


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def session(dlc: FakeDlc, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    retry = RetryPolicy(max_attempts=3, sleep=dlc.sleep, clock=dlc.clock)
    session = Session(
        "cn-hangzhou",
        "123",
        oss_bucket_name="models",
        api="dlc",
        retry=retry,
        access_key_id="LTAI-example",
        access_key_secret="a-secret",
    )

    def open_backend(connection: Any) -> DlcBackend:
        return DlcBackend(connection, jobs=cast(DlcJobs, dlc), clock=dlc.clock)

    def upload_trees(self: Any, plan: Any, *, progress: bool) -> None:
        for upload in plan.uploads:
            for entry in upload.tree.entries:
                bucket.objects[upload.uri + entry.path] = (upload.tree.root / entry.path).read_bytes()

    monkeypatch.setattr(DlcBackend, "open", staticmethod(open_backend))
    monkeypatch.setattr(DlcBackend, "_upload_trees", upload_trees)
    monkeypatch.setattr(DlcBackend, "files", lambda self: bucket)
    with session:
        yield session
