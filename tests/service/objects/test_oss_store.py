"""The store of OSS against the object store of the embedded service."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.store import OssStore, Store
from pai_sdk._data.storage.uri import OssUri
from tests.service.objects.conftest import Wire
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET
from tests.unit.data.storage.stores.store_conformance import StoreConformance


class TestOssStore(StoreConformance):
    @pytest.fixture
    def store(self, wire: Wire) -> Iterator[Store]:
        with OssClient(wire.endpoint, lambda: Credentials(KEY_ID, SECRET), region=REGION) as client:
            yield OssStore(client, OssUri(BUCKET, f"{uuid.uuid4().hex}/"))
