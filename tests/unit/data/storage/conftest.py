"""A fake object store, and a client of it that never sleeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests.utils

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.oss.client import OssClient
from tests.support.fake_oss import FakeOss

BUCKET = "test-bucket"


@pytest.fixture
def oss() -> Iterator[FakeOss]:
    fake = FakeOss(BUCKET)
    yield fake
    fake.close()


@pytest.fixture(params=["own connections", "requests"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of a request: over our own connections, and by requests, as where there is a proxy."""
    if request.param == "requests":
        monkeypatch.setattr(requests.utils, "select_proxy", lambda url, proxies: "http://proxy")


@pytest.fixture
def retry() -> RetryPolicy:
    return RetryPolicy(max_attempts=4, sleep=lambda seconds: None)


@pytest.fixture
def client(oss: FakeOss, retry: RetryPolicy) -> Iterator[OssClient]:
    with OssClient(
        oss.endpoint, lambda: Credentials("key-id", "key-secret"), region="cn-test", retry=retry
    ) as made:
        yield made
