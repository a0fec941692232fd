"""The tests of a store, unchanged, with every content in S3."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._service.oss.object_rows import ContentLimits
from pai_sdk._service.oss.store import ObjectStore
from tests.service.objects.elsewhere import S3, s3_server
from tests.service.objects.serving import BUCKET
from tests.service.objects.test_bucket_store import *  # noqa: F403

_number = itertools.count()


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def store(s3: S3, tmp_path: Path) -> Iterator[ObjectStore]:
    contents, limits = s3.store(f"service-{next(_number)}"), ContentLimits(max_row_bytes=0)
    with ObjectStore(tmp_path / "store", contents=contents, limits=limits) as made:
        made.create_bucket(BUCKET)
        yield made
