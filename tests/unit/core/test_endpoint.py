"""Endpoints are written in several ways; some of them name a region."""

from __future__ import annotations

import pytest

from pai_sdk._core.config.rules import api_region_of
from pai_sdk._core.endpoint import is_alibaba_oss, region_of, scheme_and_host, short_endpoint, with_scheme

pytestmark = pytest.mark.interpreter


@pytest.mark.parametrize(
    ("endpoint", "scheme", "host"),
    [
        ("pai.cn-hangzhou.aliyuncs.com", "https", "pai.cn-hangzhou.aliyuncs.com"),
        ("http://127.0.0.1:8765/", "http", "127.0.0.1:8765"),
        ("127.0.0.1:8765", "http", "127.0.0.1:8765"),
        ("LocalHost", "http", "localhost"),
        ("https://127.0.0.1:8765", "https", "127.0.0.1:8765"),
        ("10.0.0.5:9000", "https", "10.0.0.5:9000"),
    ],
)
def test_an_endpoint_without_a_scheme_is_https_but_here(endpoint: str, scheme: str, host: str) -> None:
    assert scheme_and_host(endpoint) == (scheme, host)
    assert with_scheme(endpoint) == f"{scheme}://{host}"


@pytest.mark.parametrize(
    ("url", "short"),
    [
        ("https://oss-cn-x.aliyuncs.com", "oss-cn-x.aliyuncs.com"),
        ("http://oss-cn-x.aliyuncs.com", "http://oss-cn-x.aliyuncs.com"),
        ("http://127.0.0.1:8765", "127.0.0.1:8765"),
        ("https://127.0.0.1:8765", "https://127.0.0.1:8765"),
    ],
)
def test_the_short_endpoint_has_the_same_url(url: str, short: str) -> None:
    assert short_endpoint(url) == short
    assert with_scheme(short) == url


@pytest.mark.parametrize(
    ("host", "is_oss"), [("oss-cn-beijing.aliyuncs.com", True), ("oss-cn-beijing.aliyuncs.com.evil.com", False)]
)
def test_only_hosts_of_alibaba_cloud_are_its_oss(host: str, is_oss: bool) -> None:
    assert is_alibaba_oss(host) is is_oss


def test_standard_endpoints_name_their_region() -> None:
    assert region_of("oss-cn-beijing-internal.aliyuncs.com") == "cn-beijing"
    assert api_region_of("pai-vpc.cn-shanghai.aliyuncs.com") == "cn-shanghai"
    assert region_of("127.0.0.1:8765") is api_region_of("127.0.0.1:8765") is None
