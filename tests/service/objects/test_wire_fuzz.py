"""Whatever is asked, signed or not: an answer in OSS's words, never a failure of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pai_sdk._service.oss.store import ObjectStore
from tests.service.objects.asking import Asking
from tests.service.objects.serving import BUCKET, open_store

_PARAMETERS = """
acl append bucketInfo continuation-token delete delimiter encoding-type fetch-owner key-marker list-type location
marker max-keys max-parts max-uploads objectMeta part-number-marker partNumber position prefix
response-content-type start-after upload-id-marker uploadId uploads versionId x-oss-process
"""
PARAMETERS = _PARAMETERS.split()
_HEADERS = """
content-length content-md5 content-type if-match if-modified-since range x-oss-copy-source x-oss-copy-source-range
x-oss-forbid-overwrite x-oss-meta-a x-oss-metadata-directive x-oss-range-behavior transfer-encoding
"""
HEADERS = _HEADERS.split()
VALUES = [
    "",
    "0",
    "1",
    "-1",
    "99999999999999999999",
    "²",
    "2",
    "url",
    "true",
    "/",
    "bytes=0-1",
    f"/{BUCKET}/k",
    "\x00",
]

values = st.sampled_from(VALUES) | st.text(max_size=6)
path_text = st.sampled_from(["", "k", "a//b", "..", "%", "\x00", "api"]) | st.text(max_size=6)
header_value = st.sampled_from([value.encode() for value in VALUES if value.isprintable()]) | st.binary(max_size=6)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    folder = tmp_path_factory.mktemp("fuzz")
    with open_store(folder / "store") as made:
        yield made
        root = folder / "store"
        assert [path.name for path in folder.iterdir()] == ["store"]
        expected = {"blobs", "incoming", "lock", "objects.db", "objects.db-shm", "objects.db-wal"}
        assert {path.name for path in root.iterdir()} <= expected
        assert list((root / "incoming").iterdir()) == []


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS"]),
    bucket=st.sampled_from(["", BUCKET, BUCKET, BUCKET, "api", "no-such-bucket", "\xff"]),
    key=path_text,
    query=st.dictionaries(st.sampled_from(PARAMETERS) | st.text(max_size=4), values, max_size=3),
    headers=st.dictionaries(st.sampled_from(HEADERS), header_value, max_size=3),
    body=st.binary(max_size=40) | st.sampled_from([b"<Delete><Object><Key>k</Key></Object></Delete>"]),
    signed=st.sampled_from([True, True, True, False]),
)
def test_no_request_makes_the_server_fail(
    store: ObjectStore, method, bucket, key, query, headers, body, signed
) -> None:
    store.create_bucket(BUCKET)
    answer = asyncio.run(
        Asking(store).ask(
            method,
            quote(f"/{bucket}/{key}", errors="surrogatepass").encode(),
            "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items()).encode(),
            {name.encode(): value for name, value in headers.items()},
            body,
            signed=signed,
        )
    )
    status, content = answer.status, answer.body
    assert status < 500 or (status == 501 and (method == "HEAD" or b"NotImplemented" in content))
    assert status != 403 or not signed
    if not signed:
        assert status in (400, 403)
