"""Requests are signed for OSS and for hosts that the user named, never for a host that only a URI names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pai_sdk import Session
from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.endpoint import Endpoint, is_alibaba_oss
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.transfer import download, upload
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import InvalidInputError, SettingsError, TransferError, UntrustedEndpointError
from tests.support.fake_oss import FakeOss, StoredObject
from tests.support.messages import refused
from tests.unit.data.storage.conftest import BUCKET

KEY = Credentials("key-id", "key-secret", "a-token")


@pytest.fixture
def stranger() -> Iterator[FakeOss]:
    """An untrusted server that speaks OSS and has the requested objects."""
    fake = FakeOss(BUCKET)
    fake.buckets[BUCKET] |= {"run/model": StoredObject(b"theirs"), "run/": StoredObject(b"")}
    yield fake
    fake.close()


def host_of(fake: FakeOss) -> str:
    return fake.endpoint.removeprefix("http://")


@pytest.mark.parametrize(
    ("host", "is_oss"),
    [
        ("oss-cn-hangzhou.aliyuncs.com", True),
        ("OSS-cn-hangzhou-INTERNAL.aliyuncs.com", True),
        ("oss-accelerate-overseas.aliyuncs.com", True),
        ("vpc100-oss-cn-hangzhou.aliyuncs.com", True),
        ("cn-hangzhou.oss.aliyuncs.com", True),
        ("oss-cn-hangzhou.aliyuncs.com:443", True),
        ("aliyuncs.com", False),
        ("evil.com", False),
        ("oss-cn-hangzhou.aliyuncs.com.evil.com", False),
        ("oss-cn-hangzhou.aliyuncs.com.", False),
        ("evil-aliyuncs.com", False),
        ("oss-cn-hangzhou.evilaliyuncs.com", False),
        ("oss-cn-hangzhou-aliyuncs.com", False),
        ("oss-cn-hangzhou.xn--aliyuncs-9db.com", False),
        # A function, a load balancer, a model of any customer of Alibaba Cloud's.
        ("cn-shanghai.fc.aliyuncs.com", False),
        ("oss-evil.cn-shanghai.fc.aliyuncs.com", False),
        ("alb-1.cn-hangzhou.alb.aliyuncs.com", False),
        ("1.cn-shanghai.pai-eas.aliyuncs.com", False),
        ("x.oss-cn-qingdao.oss-object-process.aliyuncs.com", False),
        ("evil.com:443", False),
        ("127.0.0.1:80", False),
        ("localhost", False),
    ],
)
def test_which_hosts_are_oss(host: str, is_oss: bool) -> None:
    client = OssClient("oss-cn-beijing.aliyuncs.com", lambda: KEY)
    try:
        uri = OssUri.parse(f"oss://{BUCKET}.{host}/k")
    except InvalidInputError:  # a dot at the end
        assert not is_oss
        return
    assert is_alibaba_oss(host) == is_oss
    if is_oss:
        assert client._connection.bucket(uri).endpoint.lower() == f"https://{host.lower()}"
    else:
        with pytest.raises(UntrustedEndpointError):
            client._connection.bucket(uri)


@pytest.mark.parametrize(
    "authority",
    [
        "oss-cn-hangzhou.aliyuncs.com@evil.com",
        "b.oss-cn-hangzhou.aliyuncs.com@evil.com",
        "key:secret@b.evil.com",
        "b.evil.com#.oss-cn-hangzhou.aliyuncs.com",
        "b.evil.com?.oss-cn-hangzhou.aliyuncs.com",
        "b.evil.com\\.oss-cn-hangzhou.aliyuncs.com",
        "b.evil.com:80@oss-cn-hangzhou.aliyuncs.com",
        "b.evil.com%2f.oss-cn-hangzhou.aliyuncs.com",
        "b.evil.com\t.oss-cn-hangzhou.aliyuncs.com",
        "b.oss-cn-hangzhou.aliyuncs.com\N{FULLWIDTH FULL STOP}evil.com",
        "b.oss-cn-hangzhou.aliyuncs\N{IDEOGRAPHIC FULL STOP}com",
        "b.oss-cn-hangzhou.\N{CYRILLIC SMALL LETTER A}liyuncs.com",
    ],
)
def test_what_hides_a_host_is_no_uri(authority: str) -> None:
    with pytest.raises(InvalidInputError):
        OssUri.parse(f"oss://{authority}/k")


CALLS: list[Callable[[OssClient, OssUri, Path], object]] = [
    lambda client, uri, path: client.head(uri),
    lambda client, uri, path: client.get_bytes(uri),
    lambda client, uri, path: client.get_file(uri, path / "model"),
    lambda client, uri, path: client.put_bytes(uri, b"ours"),
    lambda client, uri, path: client.delete(uri),
    lambda client, uri, path: client.copy(OssUri(uri.bucket, "other"), uri, etag="e"),
    lambda client, uri, path: list(client.list(uri)),
    lambda client, uri, path: client.parts.start(uri),
    lambda client, uri, path: download(client, uri, path / "down"),
    lambda client, uri, path: download(client, OssUri(uri.bucket, "run/", uri.endpoint), path / "down"),
    lambda client, uri, path: upload(client, path / "ours", uri),
    lambda client, uri, path: upload(client, path, uri),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_stranger_gets_no_request(
    client: OssClient, stranger: FakeOss, tmp_path: Path, call: Callable[[OssClient, OssUri, Path], object]
) -> None:
    (tmp_path / "ours").write_text("our code")
    host = host_of(stranger)
    with refused(UntrustedEndpointError) as caught:
        call(client, OssUri(BUCKET, "run/model", host), tmp_path)
    assert not isinstance(caught.value, TransferError)  # said once, not for each file
    assert stranger.seen == []
    assert stranger.connections == 0


def test_a_host_that_the_user_trusts_is_asked(
    stranger: FakeOss, oss: FakeOss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"oss://{BUCKET}.{host_of(stranger)}/run/model"
    settings = {
        "oss_bucket_name": BUCKET,
        "endpoint": oss.endpoint,
        "oss_endpoint": oss.endpoint,
        "credentials": KEY,
        "retry": RetryPolicy(max_attempts=1),
    }
    with Session("cn-test", "1", **settings) as session, pytest.raises(UntrustedEndpointError):
        session.download(uri, tmp_path / "model", progress=False)
    trusted = f"oss.example.com, {stranger.endpoint}"
    with Session("cn-test", "1", **settings, trusted_oss_endpoints=trusted) as session:
        assert session.download(uri, tmp_path / "one", progress=False).read_bytes() == b"theirs"
    monkeypatch.setenv("PAI_TRUSTED_OSS_ENDPOINTS", stranger.endpoint)
    with Session("cn-test", "1", **settings) as session:
        assert session.download(uri, tmp_path / "two", progress=False).read_bytes() == b"theirs"
    assert oss.seen == []


def test_a_store_that_has_moved_is_asked_where_it_is(stranger: FakeOss, retry: RetryPolicy) -> None:
    """Another server may listen at its former port by now."""
    with OssClient(
        Endpoint("http://127.0.0.1:9", lambda: stranger.endpoint), lambda: KEY, region="cn-test", retry=retry
    ) as client:
        for host in ("127.0.0.1:9", host_of(stranger), "127.0.0.1:9"):
            assert client.get_bytes(OssUri(BUCKET, "run/model", host)) == b"theirs"


def test_the_host_is_part_of_what_is_signed(client: OssClient, oss: FakeOss) -> None:
    client.put_bytes(OssUri(BUCKET, "k"), b"x")
    client.get_bytes(OssUri(BUCKET, "k"))
    for seen in oss.seen:
        assert seen.headers["host"] == host_of(oss)
        assert seen.headers["authorization"].endswith(", AdditionalHeaders=host")


def test_a_malformed_setting_is_told() -> None:
    with refused(SettingsError):
        Session("cn-test", trusted_oss_endpoints="oss.example.com, b/c")
