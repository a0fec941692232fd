"""The signatures, against those that Alibaba Cloud's own client makes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from urllib.parse import parse_qsl, urlsplit

import oss2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oss2 import http

from pai_sdk._service.oss import oss_auth
from pai_sdk._service.oss.oss_auth import Verifier, signature_v1, signature_v4, signing_key_v4
from pai_sdk._service.oss.oss_request import OssSignedRequest
from pai_sdk.errors import StorageError

KEYS = {"my-id": "my-secret"}
BUCKET, REGION = "my-bucket", "cn-test"
Sign = Callable[..., OssSignedRequest]


def by_header(
    auth: oss2.Auth,
    *,
    method: str = "GET",
    key: str = "a/b.txt",
    params: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    region: str = REGION,
    **extra: object,
) -> OssSignedRequest:
    request = http.Request(
        method, "http://127.0.0.1/x", params=dict(params or {}), headers=headers, region=region, product="oss"
    )
    auth._sign_request(request, BUCKET, key, **extra)
    sent = {name.lower(): value.encode() for name, value in request.headers.items() if value is not None}
    return OssSignedRequest(method, BUCKET, key, list(request.params.items()), sent)


def by_url(
    auth: oss2.Auth,
    *,
    method: str = "GET",
    key: str = "a/b.txt",
    params: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    region: str = REGION,
    expires_s: int = 60,
) -> OssSignedRequest:
    request = http.Request(
        method, "http://127.0.0.1/x", params=dict(params or {}), headers=headers, region=region, product="oss"
    )
    url = auth._sign_url(request, BUCKET, key, expires_s)
    sent = {name.lower(): value.encode() for name, value in (headers or {}).items()}
    return OssSignedRequest(method, BUCKET, key, parse_qsl(urlsplit(url).query, keep_blank_values=True), sent)


V1, V4 = oss2.Auth("my-id", "my-secret"), oss2.AuthV4("my-id", "my-secret")
WAYS = [(by_header, V1), (by_header, V4), (by_url, V1), (by_url, V4)]
way = pytest.mark.parametrize(("sign", "auth"), WAYS, ids=["v1-header", "v4-header", "v1-url", "v4-url"])


def refusal(request: OssSignedRequest, *, region: str = REGION, now: float | None = None) -> str:
    clock = {} if now is None else {"now": lambda: now}
    with pytest.raises(StorageError) as error:
        Verifier(KEYS, region=region, **clock).check(request)
    assert "my-secret" not in str(error.value)
    return error.value.code


text = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8)
latin = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)


@way
@settings(max_examples=60, deadline=None)
@given(
    key=text,
    params=st.dictionaries(st.sampled_from(["uploadId", "prefix", "response-content-type", "acl", "x y"]), text),
    headers=st.dictionaries(st.sampled_from(["Content-Type", "x-oss-meta-b", "X-OSS-Meta-A", "Range"]), latin),
)
def test_what_oss2_signs_is_accepted(sign: Sign, auth: oss2.Auth, key, params, headers) -> None:
    assert Verifier(KEYS, region=REGION).check(sign(auth, key=key, params=params, headers=headers)) == "my-id"


def test_additional_headers_of_version_4_are_signed() -> None:
    signed = by_header(V4, headers={"Range": "bytes=0-1"}, in_additional_headers={"range"})
    assert Verifier(KEYS, region=REGION).check(signed) == "my-id"
    assert refusal(replace(signed, headers={**signed.headers, "range": b"bytes=0-9"})) == "SignatureDoesNotMatch"
    without = {name: value for name, value in signed.headers.items() if name != "range"}
    assert refusal(replace(signed, headers=without)) == "SignatureDoesNotMatch"


@way
@pytest.mark.parametrize(
    "tamper",
    [
        lambda request: replace(request, method="DELETE"),
        lambda request: replace(request, key="a/c.txt"),
        lambda request: replace(request, key="a"),
        lambda request: replace(request, bucket="other-bucket"),
        lambda request: replace(request, query=[*request.query, ("uploadId", "1")]),
        lambda request: replace(request, query=[pair for pair in request.query if pair[0] != "acl"]),
        lambda request: replace(request, headers={**request.headers, "x-oss-meta-a": b"2"}),
        lambda request: replace(request, headers={**request.headers, "x-oss-forbid-overwrite": b"true"}),
        lambda request: replace(request, headers={**request.headers, "content-type": b"text/html"}),
        lambda request: replace(request, headers={**request.headers, "content-md5": b"AAAA"}),
    ],
)
def test_nothing_that_is_signed_can_be_changed(sign: Sign, auth: oss2.Auth, tamper) -> None:
    request = sign(auth, params={"acl": ""}, headers={"x-oss-meta-a": "1"})
    assert refusal(tamper(request)) == "SignatureDoesNotMatch"


@pytest.mark.parametrize("sign", [by_header, by_url])
@pytest.mark.parametrize("auth", [oss2.Auth, oss2.AuthV4])
def test_wrong_keys(sign: Sign, auth: type) -> None:
    assert refusal(sign(auth("my-id", "wrong"))) == "SignatureDoesNotMatch"
    assert refusal(sign(auth("unknown", "my-secret"))) == "InvalidAccessKeyId"
    assert refusal(sign(auth("my-id", ""))) == "SignatureDoesNotMatch"


def test_keys_may_come_from_a_function() -> None:
    asked = []
    verifier = Verifier(lambda key_id: asked.append(key_id) or KEYS.get(key_id), region=REGION)
    assert verifier.check(by_header(V4)) == "my-id"
    assert asked == ["my-id"]


@pytest.mark.parametrize("off_s", [-16 * 60, 16 * 60])
@pytest.mark.parametrize("auth", [V1, V4])
def test_a_clock_that_is_wrong(auth: oss2.Auth, off_s: int) -> None:
    before, request, after = time.time(), by_header(auth), time.time()
    # It was made somewhere between the two, however long that took.
    far, near = (after, before) if off_s > 0 else (before, after)
    assert refusal(request, now=far + off_s) == "RequestTimeTooSkewed"
    Verifier(KEYS, region=REGION, now=lambda: near + off_s * 0.9).check(request)


@pytest.mark.parametrize("auth", [V1, V4])
def test_a_presigned_url_ends(auth: oss2.Auth) -> None:
    before, request, after = time.time(), by_url(auth, expires_s=3600), time.time()
    Verifier(KEYS, region=REGION, now=lambda: before + 3590).check(request)
    assert refusal(request, now=after + 3610) == "AccessDenied"


def test_a_presigned_url_of_version_4_has_limits() -> None:
    now = time.time()
    assert refusal(by_url(V4, expires_s=7 * 24 * 3600 + 1)) == "AccessDenied"
    assert refusal(by_url(V4), now=now - 16 * 60) == "RequestTimeTooSkewed"


def test_version_4_names_the_region_and_the_day() -> None:
    assert refusal(by_header(V4, region="cn-other")) == "InvalidArgument"
    assert refusal(by_url(V4), region="cn-other") == "InvalidArgument"
    signed = by_header(V4)
    assert (
        refusal(replace(signed, headers={**signed.headers, "x-oss-content-sha256": b"abc"})) == "InvalidArgument"
    )
    moved = {**signed.headers, "x-oss-date": b"20200101T000000Z"}
    assert refusal(replace(signed, headers=moved)) == "InvalidArgument"


NOW = time.time()
HTTP_DATE = formatdate(NOW, usegmt=True).encode()


@pytest.mark.parametrize(
    ("headers", "query", "code"),
    [
        ({}, [], "AccessDenied"),
        ({"authorization": b"Basic bXktaWQ6bXktc2VjcmV0"}, [], "AccessDenied"),
        ({"authorization": b"OSS"}, [], "AccessDenied"),
        ({"authorization": b"OSS ", "date": HTTP_DATE}, [], "InvalidAccessKeyId"),
        ({"authorization": b"OSS my-id", "date": HTTP_DATE}, [], "SignatureDoesNotMatch"),
        ({"authorization": b"OSS my-id:\xff\xfe", "date": HTTP_DATE}, [], "SignatureDoesNotMatch"),
        ({"authorization": b"OSS my-id:c2ln"}, [], "AccessDenied"),
        ({"authorization": b"OSS my-id:c2ln", "date": b"yesterday"}, [], "AccessDenied"),
        ({"authorization": b"OSS my-id:c2ln", "date": b"Sat, 99 Nov 2026 99:00:00 GMT"}, [], "AccessDenied"),
        ({"authorization": b"OSS4-HMAC-SHA256 "}, [], "InvalidArgument"),
        ({"authorization": b"OSS4-HMAC-SHA256 Credential=my-id/1/2/3/4/5,Signature=0"}, [], "InvalidArgument"),
        ({}, [("OSSAccessKeyId", "my-id")], "AccessDenied"),
        ({}, [("OSSAccessKeyId", "my-id"), ("Expires", "²"), ("Signature", "s")], "AccessDenied"),
        ({}, [("OSSAccessKeyId", "my-id"), ("Expires", "9" * 12), ("Signature", "é")], "SignatureDoesNotMatch"),
        ({}, [("x-oss-signature-version", "OSS2")], "AccessDenied"),
        ({}, [("x-oss-signature-version", "OSS4-HMAC-SHA256"), ("x-oss-expires", "60")], "InvalidArgument"),
        ({}, [("acl", ""), ("acl", "")], "InvalidArgument"),
    ],
)
def test_what_is_not_a_signature(headers: dict[str, bytes], query: list[tuple[str, str]], code: str) -> None:
    assert refusal(OssSignedRequest("GET", BUCKET, "k", query, headers), now=NOW) == code


def test_examples_that_others_computed() -> None:
    # A mistake shared with oss2 would show here: the example of OSS's documentation for version 1,
    # and one that the test suites of Alibaba Cloud's newer clients share for version 4.
    put = OssSignedRequest(
        "PUT",
        "oss-example",
        "nelson",
        [],
        {
            "content-md5": b"ODBGOERFMDMzQTczRUY3NUE3NzA5QzdFNUYzMDQxNEM=",
            "content-type": b"text/html",
            "x-oss-meta-author": b"foo@bar.com",
            "x-oss-magic": b"abracadabra",
        },
    )
    date, secret = "Thu, 17 Nov 2005 18:49:58 GMT", "OtxrzxIsfpFjA7SwPzILwy8Bw21TLhquhboDYROV"
    assert signature_v1(put, secret, date) == "26NBxoKdsyly4EDv6inkoDft/yA="

    odd_names = [("param1", "value1"), ("+param1", "value3"), ("|param1", "value4"), ("+param2", "")]
    put = OssSignedRequest(
        "PUT",
        "bucket",
        "1234+-/123/1.txt",
        [*odd_names, ("|param2", ""), ("param2", "")],
        {
            "abc": b"value",
            "content-type": b"text/plain",
            "x-oss-content-sha256": b"UNSIGNED-PAYLOAD",
            "x-oss-date": b"20231216T162057Z",
            "x-oss-head1": b"value",
        },
    )
    scope, date = "20231216/cn-hangzhou/oss/aliyun_v4_request", "20231216T162057Z"
    expected = "e21d18daa82167720f9b1047ae7e7f1ce7cb77a31e8203a7d5f4624fa0284afe"
    assert signature_v4(put, signing_key_v4("sk", scope), scope=scope, date=date, also_signed=[]) == expected


def test_the_requests_of_a_day_share_one_derived_key(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[str] = []

    def noted(secret: str, scope: str) -> bytes:
        derived.append(scope)
        return signing_key_v4(secret, scope)

    monkeypatch.setattr(oss_auth, "signing_key_v4", noted)
    verifier = Verifier(KEYS, region=REGION)
    requests = [by_header(V4, key=f"{number}") for number in range(5)]
    assert [verifier.check(request) for request in requests] == ["my-id"] * 5
    assert len(derived) == len(set(derived))
    other = by_header(oss2.AuthV4("my-id", "another"), key="0")
    with pytest.raises(StorageError) as error:
        verifier.check(other)
    assert error.value.code == "SignatureDoesNotMatch"
