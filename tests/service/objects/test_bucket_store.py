"""A folder of the service's own object store against the suite of all stores."""

from __future__ import annotations

import pytest

from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._service.oss.bucket_store import BucketStore
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk.errors import StorageError
from tests.service.objects.serving import BUCKET
from tests.support.messages import refused
from tests.unit.data.storage.stores.store_conformance import StoreConformance


class TestBucketStore(StoreConformance):
    @pytest.fixture
    def store(self, store: ObjectStore) -> Store:
        return BucketStore(store, OssUri(BUCKET, "root/"))


def test_a_cancelled_write_stores_nothing(store: ObjectStore) -> None:
    def check() -> None:
        raise StorageError("stopped")

    with refused(StorageError):
        BucketStore(store, OssUri(BUCKET), check_cancelled=check).write("a", b"1")
    assert list(store.list(BUCKET)) == []
