"""URIs with the endpoint of OSS in their host."""

from __future__ import annotations

import pytest

from pai_sdk._wire.dlc import uris

ENDPOINT = "oss-cn-beijing-internal.aliyuncs.com"


@pytest.mark.parametrize("path", ["", "a/", "a/b c/%20/", "数据/"])
@pytest.mark.parametrize("endpoint", [ENDPOINT, "127.0.0.1:8080", "localhost:1"])
def test_both_forms_say_the_same(path: str, endpoint: str) -> None:
    short, long = f"oss://data-1/{path}", f"oss://data-1.{endpoint}/{path}"
    assert uris.with_endpoint(short, endpoint) == long
    assert uris.with_endpoint(short, f"http://{endpoint}/") == long
    assert uris.without_endpoint(long) == short
    assert uris.with_endpoint(long, "another") == long
    assert uris.without_endpoint(short) == short


@pytest.mark.parametrize(
    "uri", ["nas://1.cn-beijing/a/", "cpfs://c.cn-x/p/e/", "/data", "", "oss:///a", "oss:/b/a"]
)
def test_other_uris_stay(uri: str) -> None:
    assert uris.with_endpoint(uri, ENDPOINT) == uris.without_endpoint(uri) == uri
    assert uris.parse_oss(uri) is None


def test_parts() -> None:
    assert uris.parse_oss(f"oss://data.{ENDPOINT}/a/b") == uris.OssUri("data", ENDPOINT, "a/b")
    assert uris.parse_oss("oss://data") == uris.OssUri("data", None, "")
    assert uris.parse_oss("OSS://data/a") == uris.OssUri("data", None, "a")


@pytest.mark.parametrize(
    ("endpoint", "internal"),
    [
        ("oss-cn-beijing.aliyuncs.com", ENDPOINT),
        ("https://oss-cn-beijing.aliyuncs.com/", ENDPOINT),
        (ENDPOINT, ENDPOINT),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("oss.example.org", "oss.example.org"),
    ],
)
def test_internal_endpoints(endpoint: str, internal: str) -> None:
    assert uris.internal_endpoint(endpoint) == internal


@pytest.mark.parametrize(
    "uri", [f"oss://b.{ENDPOINT}/a/", "oss://b/a/", "nas://1.cn-x/", "cpfs://1.cn-x/p/", "bmcpfs://1.cn-x/"]
)
def test_what_can_be_mounted(uri: str) -> None:
    assert uris.uri_problem(uri) is None


@pytest.mark.parametrize("uri", ["", "/a", "odps://p/tables/t", "oss:///a/", "nas://", "b/a"])
def test_what_cannot_be_mounted(uri: str) -> None:
    assert uris.uri_problem(uri)
