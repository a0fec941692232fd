"""Requests without a valid signature are refused."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from urllib.parse import urlsplit

import oss2
import pytest
import requests

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._service.http.authentication import Authenticator, SignedRequest
from pai_sdk._service.state.folder import Keys
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.signature import acs3_signature, payload_hash, roa_signature
from tests.service.services import Client, job_body
from tests.support.own_key import OwnKey
from tests.support.waiting import PATIENCE_S

KEYS = Keys("LTAItest", "the secret")
NOW = datetime(2026, 1, 31, 8, 0, tzinfo=timezone.utc)


def signed(
    *,
    key_id: str = "LTAItest",
    secret: str = "the secret",
    at: datetime = NOW,
    nonce: str = "1",
    body: bytes = b"",
    method: str = "GET",
    path: str = "/api/v1/trainingjobs",
    query: dict[str, str] | None = None,
    leave_out: tuple[str, ...] = (),
) -> SignedRequest:
    headers = {
        "host": "127.0.0.1:1",
        "x-acs-date": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "x-acs-content-sha256": payload_hash(body),
        "x-acs-signature-nonce": nonce,
    }
    names = [name for name in headers if name not in leave_out]
    signature = acs3_signature(
        secret,
        method=method,
        path=path,
        query=query or {},
        headers=headers,
        signed_headers=names,
        payload_hash=headers["x-acs-content-sha256"],
    )
    headers["authorization"] = (
        f"ACS3-HMAC-SHA256 Credential={key_id},SignedHeaders={';'.join(sorted(names))},Signature={signature}"
    )
    return SignedRequest(method, path, query or {}, headers)


def signed_roa(
    *, secret: str = "the secret", at: datetime = NOW, path: str = "/api/v1/trainingjobs"
) -> SignedRequest:
    headers = {
        "accept": "application/json",
        "date": format_datetime(at, usegmt=True),
        "x-acs-signature-method": "HMAC-SHA1",
        "x-acs-signature-nonce": "roa",
    }
    signature = roa_signature(secret, method="GET", path=path, query={}, headers=headers)
    return SignedRequest("GET", path, {}, {**headers, "authorization": f"acs LTAItest:{signature}"})


def guard() -> Authenticator:
    return Authenticator(OwnKey(KEYS), now=NOW.timestamp)


def refused(request: SignedRequest, guard: Authenticator) -> str:
    with pytest.raises(WireError) as caught:
        guard.check(request)
    assert caught.value.status_code in (401, 403)
    assert "the secret" not in caught.value.message
    return caught.value.code


def test_both_schemes_are_let_in() -> None:
    guard().check(signed(query={"Labels": '{"a b": "ü/+"}', "Empty": ""}))
    guard().check(signed_roa())


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (signed(secret="wrong"), "SignatureDoesNotMatch"),
        (signed(key_id="LTAIother"), "InvalidAccessKeyId.NotFound"),
        (signed(at=NOW - timedelta(minutes=16)), "InvalidTimeStamp.Expired"),
        (signed(at=NOW + timedelta(minutes=16)), "InvalidTimeStamp.Expired"),
        (signed(nonce=""), "SignatureNonceUsed"),
        (signed(leave_out=("x-acs-content-sha256",)), "IncompleteSignature"),
        (signed(leave_out=("x-acs-date",)), "IncompleteSignature"),
        (signed_roa(secret="wrong"), "SignatureDoesNotMatch"),
        (signed_roa(at=NOW - timedelta(hours=1)), "InvalidTimeStamp.Expired"),
        (SignedRequest("GET", "/", {}, {}), "MissingAuthorization"),
        (SignedRequest("GET", "/", {}, {"authorization": "Basic YTpi"}), "InvalidAuthorization"),
        (SignedRequest("GET", "/", {}, {"authorization": "acs "}), "InvalidAccessKeyId.NotFound"),
        (SignedRequest("GET", "/", {}, {"authorization": "acs LTAItest:"}), "InvalidTimeStamp.Format"),
        (SignedRequest("GET", "/", {}, {"authorization": "ACS3-HMAC-SHA256 x"}), "IncompleteSignature"),
    ],
)
def test_everything_else_is_not(request_: SignedRequest, code: str) -> None:
    assert refused(request_, guard()) == code


def test_what_is_signed_cannot_be_changed() -> None:
    true = signed(query={"PageSize": "10"}, body=b"{}")
    for changed in (
        SignedRequest("DELETE", true.path, true.query, true.headers),
        SignedRequest("GET", true.path + "/train1", true.query, true.headers),
        SignedRequest("GET", true.path, {"PageSize": "11"}, true.headers),
        SignedRequest("GET", true.path, true.query, {**true.headers, "host": "elsewhere"}),
    ):
        assert refused(changed, guard()) == "SignatureDoesNotMatch"
    with pytest.raises(WireError, match="body"):
        guard().check_body(true, b"{ }")


def test_a_request_is_let_in_once_and_a_forged_nonce_shuts_nobody_out() -> None:
    guard_ = guard()
    assert refused(signed(secret="wrong"), guard_) == "SignatureDoesNotMatch"
    guard_.check(signed())
    assert refused(signed(), guard_) == "SignatureNonceUsed"


# ---- over HTTP --------------------------------------------------------------------------------------------

PATHS = [
    "/api/v1/trainingjobs",
    "/api/v1/trainingjobs/train1",
    "/api/v1/workspaces",
    "/api/v1/health",
    "/api/docs",
    "/api/openapi.json",
    "/api/../api/v1/workspaces",
    "/api",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "PATCH"])
def test_without_a_signature_no_path_answers_more_than_a_refusal(service: Client, method: str, path: str) -> None:
    answer = requests.request(method, service.info.endpoint + path, timeout=PATIENCE_S)
    assert answer.status_code == 401
    fault = answer.json()
    assert set(fault) == {"RequestId", "Code", "Message", "HostId"}
    assert fault["Code"] == "MissingAuthorization"
    assert fault["RequestId"] == answer.headers["x-acs-request-id"]


def test_a_body_that_was_changed_on_the_way_is_refused(service: Client) -> None:
    prepared: list[requests.PreparedRequest] = []
    session = requests.Session()
    session.send = lambda request, **_: prepared.append(request)  # type: ignore[method-assign, assignment]
    Client(service.info, session).call("POST", "/trainingjobs", body=job_body())
    prepared[0].body = prepared[0].body.replace(b"true", b"evil")  # type: ignore[union-attr]
    answer = requests.Session().send(prepared[0], timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["Code"]) == (403, "SignatureDoesNotMatch")


def test_a_repeated_parameter_is_refused(service: Client) -> None:
    answer = service.call("GET", "/trainingjobs", PageSize=["1", "2"])
    assert answer.status_code == 403


def test_a_large_body_is_not_read_before_the_signature_is_checked(service: Client) -> None:
    address = urlsplit(service.info.endpoint)
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"POST /api/v1/trainingjobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
        assert b" 401 " in connection.recv(100)


def test_every_answer_has_an_id_of_its_own(service: Client) -> None:
    answers = [service.call("GET", "/trainingjobs") for _ in range(3)]
    ids = {answer.json()["RequestId"] for answer in answers}
    assert ids == {answer.headers["x-acs-request-id"] for answer in answers}
    assert len(ids) == 3


def test_an_unknown_action_is_named(service: Client) -> None:
    for method, path in (
        ("GET", "/nothing"),
        ("PATCH", "/trainingjobs"),
        ("GET", "/trainingjobs/a/b/c"),
        ("GET", "/trainingjobs/"),
    ):
        answer = service.call(method, path)
        assert answer.status_code in (404, 405)
        assert answer.json()["Code"] == "InvalidAction.NotFound"


@pytest.mark.parametrize(
    "path", ["/", "/workspaces", "/api/v2/workspaces", "/api/v1/nothing", "/v1/images", "/x/y"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_an_unknown_action_is_never_answered_in_xml(service: Client, method: str, path: str) -> None:
    """As with the workspace's clients, which have actions on other paths too."""
    key = static_credentials(service.info.access_key_id, service.info.access_key_secret)
    auth = Acs3Auth(key, "ListImages", "2021-02-04")
    url = service.info.endpoint + path
    answer = service.session.request(method, url, auth=auth, timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["Code"]) == (404, "InvalidAction.NotFound")
    unsigned = requests.request(method, url, headers={"x-acs-version": "2021-02-04"}, timeout=PATIENCE_S)
    assert (unsigned.status_code, unsigned.json()["Code"]) == (401, "MissingAuthorization")


def test_a_security_token_beside_a_key_that_has_none_is_refused(service: Client) -> None:
    info = service.info
    key = static_credentials(info.access_key_id, info.access_key_secret, "bogus")
    url = f"{info.endpoint}/api/v1/workspaces"
    answer = requests.get(url, auth=Acs3Auth(key, "Any", "2022-01-12"), timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["Code"]) == (403, "InvalidSecurityToken.MismatchWithAccessKey")
    answer = service.call("GET", "/workspaces", SecurityToken="bogus")
    assert answer.status_code == 403
    bucket = oss2.Bucket(
        oss2.StsAuth(info.access_key_id, info.access_key_secret, "bogus", auth_version="v4"),
        info.oss_endpoint,
        info.bucket,
        region=info.region_id,
    )
    with pytest.raises(oss2.exceptions.ServerError) as caught:
        bucket.put_object("k", b"x")
    assert (caught.value.status, caught.value.code) == (403, "InvalidAccessKeyId")
    with requests.get(bucket.sign_url("GET", "k", 60), timeout=PATIENCE_S) as presigned:
        assert presigned.status_code == 403


def test_the_secret_is_in_no_repr() -> None:
    assert "the secret" not in repr(KEYS)
