"""oss2 where warnings are errors."""

from __future__ import annotations

import warnings

import pytest

from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.uri import OssUri
from tests.unit.data.storage.conftest import BUCKET

pytestmark = pytest.mark.interpreter


def test_no_warning_where_a_request_is_signed(client: OssClient) -> None:
    """oss2 signs with a function that Python 3.12 deprecates; the client signs without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.put_bytes(OssUri(BUCKET, "k"), b"content")
        assert [found.uri.key for found in client.list(OssUri(BUCKET, ""))] == ["k"]
        assert client.oss2_bucket(OssUri(BUCKET)).get_object("k").read() == b"content"
