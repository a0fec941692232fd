"""The signature is that of oss2, for any key, metadata and query."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import oss2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oss2.http import Request

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.storage.oss import v4 as oss_v4
from pai_sdk._data.storage.oss.v4 import Signer, canonical_query

NOW = 1_790_000_000
REGION = "cn-test"
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
HOSTILE_KEYS = st.one_of(
    ANY_TEXT,
    st.text("/.%2Ff+ &=?#~'\"\\:;@\n\t", min_size=1, max_size=20),
    st.lists(st.sampled_from(["..", ".", "%2e", "a b", "ü", "日本", "", "%", "%2F", "x"]), min_size=1).map(
        "/".join
    ),
)
PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20).map(str.strip)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12)


class _Moment(datetime.datetime):
    @classmethod
    def utcnow(cls) -> Any:
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)


def _clock(now: Callable[[], float]) -> SimpleNamespace:
    return SimpleNamespace(time=now, strftime=time.strftime, gmtime=time.gmtime)


@pytest.fixture(autouse=True, scope="module")
def one_moment() -> Any:
    """oss2 and the signer sign in the same second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oss2.auth.datetime", _Moment)
        patch.setattr(oss_v4, "time", _clock(lambda: NOW + 0.9))
        yield


def signed_by_oss2(
    key: Credentials, method: str, name: str, query: dict[str, str], headers: dict[str, str]
) -> dict[str, str]:
    provider = oss2.credentials.StaticCredentialsProvider(
        key.access_key_id, key.access_key_secret, key.security_token or ""
    )
    request = Request(
        method, "http://store/", params=dict(query), headers=dict(headers), region=REGION, product="oss"
    )
    oss2.ProviderAuthV4(provider)._sign_request(request, "bucket", name, {"host"})
    return {header.lower(): value for header, value in request.headers.items() if value is not None}


@given(
    method=st.sampled_from(["GET", "PUT", "HEAD"]),
    name=HOSTILE_KEYS,
    query=st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3),
    meta=st.dictionaries(NAMES, PRINTABLE, max_size=4),
    token=st.none() | st.text("abc123+/=", min_size=1),
    secret=st.text("abcXYZ019+/", min_size=1, max_size=30),
)
def test_as_oss2_signs(
    method: str, name: str, query: dict[str, str], meta: dict[str, str], token: str | None, secret: str
) -> None:
    key = Credentials("key-id", secret, token)
    headers = {"host": "bucket.store:80", "content-md5": "x==", "content-type": "text/plain", "range": "bytes=0-1"}
    headers |= {f"x-oss-meta-{each}": value for each, value in meta.items()}
    ours = dict(headers)
    resource = f"/bucket/{quote(name)}"
    Signer(REGION).sign(key, method, resource, canonical_query(query), ours)
    theirs = signed_by_oss2(key, method, name, query, headers)
    assert ours["authorization"] == theirs["authorization"]
    assert {header: theirs[header] for header in ours} == ours


def test_what_is_kept_is_computed_again_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer(REGION)

    def signature(key: Credentials) -> str:
        headers = {"host": "store"}
        signer.sign(key, "GET", "/bucket/k", "", headers)
        return headers["authorization"].partition("Signature=")[2]

    one, other = Credentials("id", "one"), Credentials("id", "other")
    first = signature(one)
    assert signature(one) == first
    assert signature(other) != first
    assert signature(one) == first
    monkeypatch.setattr(oss_v4, "time", _clock(lambda: NOW + 1))
    later = signature(one)
    monkeypatch.setattr(oss_v4, "time", _clock(lambda: NOW + 86_400))
    assert len({first, later, signature(one)}) == 3
    fresh = {"host": "store"}
    Signer(REGION).sign(one, "GET", "/bucket/k", "", fresh)
    assert fresh["authorization"].endswith(signature(one))
    assert fresh["x-oss-date"] == time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(NOW + 86_400))


def test_a_signed_request_has_the_date_and_the_signature() -> None:
    headers = {"host": "bucket.oss-cn-hangzhou.aliyuncs.com"}
    Signer("cn-hangzhou").sign(Credentials("id", "secret"), "GET", "/bucket/key", "", headers)
    assert sorted(headers) == ["authorization", "host", "x-oss-content-sha256", "x-oss-date"]


def test_a_query_is_sorted_and_its_slashes_are_encoded() -> None:
    assert canonical_query({"uploadId": "a/b", "partNumber": "1"}) == "partNumber=1&uploadId=a%2Fb"
