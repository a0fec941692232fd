"""Our signatures against those of Alibaba Cloud's own library."""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import replace
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import requests
from alibabacloud_tea_openapi.utils import Utils as official
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._client.api.transport import Acs3Auth, path_of, query_of
from pai_sdk._core.config.credentials import Credentials, static_credentials
from pai_sdk._service.http.authentication import Authenticator, SignedRequest
from pai_sdk._service.state.folder import Keys
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.signature import acs3_signature, encode, payload_hash, roa_signature
from tests.support.messages import refused
from tests.support.own_key import OwnKey
from tests.unit.client.api.scripted_server import Asked, ScriptedServer

pytestmark = pytest.mark.interpreter

_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_some_text = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
_name = st.text("ABCDEFGHabcdefgh.1", min_size=1, max_size=12)
_header_value = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
_queries = st.dictionaries(_name, _text, max_size=5)
_headers = st.dictionaries(
    st.sampled_from(
        ["host", "accept", "content-type", "date", "content-md5", "user-agent", "x-acs-date", "x-acs-action"]
    ),
    _header_value.map(str.strip),
)
_paths = st.lists(_some_text.map(encode), max_size=4).map(lambda parts: "/" + "/".join(parts))
_QUERY = {"Labels": '{"team":"a b/ü~*"}', "Status": "Running"}
_methods = st.sampled_from(["GET", "POST", "PUT", "DELETE"])
_secrets = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789+/", min_size=1, max_size=40)


@given(_secrets, _methods, _paths, _queries, _headers, st.binary(max_size=50))
def test_acs3_is_the_official_signature(
    secret: str, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
) -> None:
    request = SimpleNamespace(method=method, pathname=path, query=query, headers=headers)
    digest = payload_hash(body)
    theirs = official.get_authorization(request, "ACS3-HMAC-SHA256", digest, "LTAI", secret)
    ours = acs3_signature(
        secret,
        method=method,
        path=path,
        query=query,
        headers=headers,
        signed_headers=headers,
        payload_hash=digest,
    )
    assert theirs.endswith(f"Signature={ours}")


@given(_secrets, _methods, _paths, _queries, _headers)
def test_roa_is_the_official_signature(
    secret: str, method: str, path: str, query: dict[str, str], headers: dict[str, str]
) -> None:
    request = SimpleNamespace(method=method, pathname=path, query=query, headers=headers)
    theirs = official.get_roasignature(official.get_string_to_sign(request), secret)
    assert roa_signature(secret, method=method, path=path, query=query, headers=headers) == theirs


@given(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(lambda t: t not in (".", "..")),
    _queries,
    st.one_of(st.none(), st.binary(max_size=50)),
    st.booleans(),
)
@settings(max_examples=60)
def test_what_we_send_is_accepted_by_the_official_signer(
    job_id: str, query: dict[str, str], body: bytes | None, sts: bool
) -> None:
    key = static_credentials("LTAI", "secret", "token" if sts else None)
    url = "http://127.0.0.1:8080" + path_of("/api/v1/trainingjobs/{id}/logs", {"id": job_id}) + query_of(query)
    sent = requests.Request("PUT", url, data=body, auth=Acs3Auth(key, "Do", "2022-01-12")).prepare()

    scheme, _, fields = sent.headers["Authorization"].partition(" ")
    parts = dict(pair.split("=", 1) for pair in fields.split(","))
    lower = {name.lower(): value for name, value in sent.headers.items()}
    on_the_wire = urlsplit(sent.url)
    theirs = official.get_authorization(
        SimpleNamespace(
            method="PUT",
            pathname=on_the_wire.path,
            query=dict(parse_qsl(on_the_wire.query, keep_blank_values=True)),
            headers={name: lower[name] for name in parts["SignedHeaders"].split(";")},
        ),
        "ACS3-HMAC-SHA256",
        payload_hash(body or b""),
        "LTAI",
        "secret",
    )
    assert sent.headers["Authorization"] == theirs
    assert dict(parse_qsl(on_the_wire.query, keep_blank_values=True)) == query
    assert lower["host"] == "127.0.0.1:8080"
    assert ("x-acs-security-token" in parts["SignedHeaders"]) == sts
    assert scheme == "ACS3-HMAC-SHA256"


def ask_officially(server: ScriptedServer, algorithm: str, **key: str) -> Asked:
    """A request of the official client, as it came over the wire."""
    from alibabacloud_tea_openapi.client import Client
    from alibabacloud_tea_openapi.utils_models import Config, OpenApiRequest, Params
    from darabonba.runtime import RuntimeOptions

    endpoint = server.endpoint.removeprefix("http://")
    client = Client(Config(endpoint=endpoint, protocol="http", signature_algorithm=algorithm, **key))
    params = Params(
        action="ListTrainingJobs",
        version="2022-01-12",
        protocol="HTTP",
        pathname="/api/v1/trainingjobs",
        method="POST",
        auth_type="AK",
        style="ROA",
        req_body_type="json",
        body_type="json",
    )
    client.call_api(params, OpenApiRequest(query=_QUERY, body={"Name": "größe"}), RuntimeOptions())
    (asked,) = server.asked
    assert asked.query == _QUERY
    return asked


@pytest.mark.parametrize("sts", [False, True])
@pytest.mark.parametrize("algorithm", ["ACS3-HMAC-SHA256", "v2"])
def test_the_official_client_is_verified_by_our_functions(
    server: ScriptedServer, algorithm: str, sts: bool
) -> None:
    token = {"security_token": "a-token"} if sts else {}
    asked = ask_officially(server, algorithm, access_key_id="LTAI", access_key_secret="secret", **token)
    assert asked.headers.get("x-acs-security-token") == token.get("security_token")
    authorization = asked.headers["authorization"]
    if algorithm == "v2":
        ours = roa_signature("secret", method="POST", path=asked.path, query=asked.query, headers=asked.headers)
        assert authorization == f"acs LTAI:{ours}"
    else:
        signed = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        ours = acs3_signature(
            "secret",
            method="POST",
            path=asked.path,
            query=asked.query,
            headers=asked.headers,
            signed_headers=signed,
            payload_hash=payload_hash(asked.body),
        )
        assert authorization.endswith(f"Signature={ours}")


def _headers_of(key: Credentials, **request: Any) -> dict[str, str]:
    auth = Acs3Auth(lambda: key, "GetTrainingJob", "2022-01-12")
    return dict(requests.Request("GET", "https://pai.example.com/x", auth=auth, **request).prepare().headers)


def test_date_and_nonce_are_new_each_time() -> None:
    first, second = (_headers_of(Credentials("id", "secret")) for _ in range(2))
    assert first["x-acs-signature-nonce"] != second["x-acs-signature-nonce"]
    assert first["Authorization"] != second["Authorization"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            {"access_key_id": "LTAI", "access_key_secret": "secret", "security_token": "a-token"},
            Credentials("LTAI", "secret", "a-token"),
        ),
        ({"bearer_token": "a-bearer"}, Credentials("", "", bearer_token="a-bearer")),
    ],
    ids=["STS", "bearer"],
)
def test_temporary_keys_are_sent_as_the_official_client_does(
    server: ScriptedServer, theirs: dict[str, str], ours: Credentials
) -> None:
    official_headers = ask_officially(server, "ACS3-HMAC-SHA256", **theirs).headers
    headers = {name.lower(): value for name, value in _headers_of(ours).items()}
    mine = {name for name in headers if name.startswith("x-acs-") or name == "authorization"}
    expected = {name for name in official_headers if name.startswith("x-acs-") or name == "authorization"}
    # The one header that they have alone says which of their providers gave the key.
    assert mine == expected - {"x-acs-credentials-provider"}
    for name in mine & {
        "x-acs-security-token",
        "x-acs-accesskey-id",
        "x-acs-bearer-token",
        "x-acs-signature-type",
    }:
        assert headers[name] == official_headers[name]


def _independent_roa(secret: str, method: str, path: str, query: dict[str, str], headers: dict[str, str]) -> str:
    """The older scheme once more, written from its description and with nothing of ours."""
    text = method + "\n"
    for name in ("accept", "content-md5", "content-type", "date"):
        text += headers.get(name, "") + "\n"
    for name, value in sorted(headers.items()):
        if name.startswith("x-acs-"):
            text += f"{name}:{value}\n"
    resource = path
    for place, (name, value) in enumerate(sorted(query.items())):
        resource += ("&" if place else "?") + name + (f"={value}" if value else "")
    return b64encode(hmac.digest(secret.encode(), (text + resource).encode(), "sha1")).decode()


@given(_methods, _paths, _queries, st.sampled_from(["path", "method", "query", "header", "secret", "key", "date"]))
@settings(max_examples=150)
def test_the_service_accepts_the_older_scheme_and_nothing_that_was_changed(
    method: str, path: str, query: dict[str, str], changed: str
) -> None:
    headers = {
        "accept": "application/json",
        "date": formatdate(1_000_000, usegmt=True),
        "x-acs-signature-nonce": "n-1",
        "x-acs-signature-method": "HMAC-SHA1",
        "x-acs-action": "Any",
    }
    signature = _independent_roa("secret", method, path, query, headers)
    headers["authorization"] = f"acs LTAI:{signature}"
    sent = SignedRequest(method, path, query, headers)
    service = Authenticator(OwnKey(Keys("LTAI", "secret")), now=lambda: 1_000_001.0)
    service.check(sent)
    with refused(WireError, code="SignatureNonceUsed"):
        service.check(sent)
    other = {
        "path": replace(sent, path=path + "x"),
        "method": replace(sent, method="HEAD"),
        "query": replace(sent, query={**query, "Zz": "1"}),
        "header": replace(sent, headers={**headers, "x-acs-action": "Other"}),
        "secret": replace(sent, headers={**headers, "authorization": "acs LTAI:" + b64encode(b"x" * 20).decode()}),
        "key": replace(sent, headers={**headers, "authorization": f"acs OTHER:{signature}"}),
        "date": replace(sent, headers={**headers, "date": formatdate(1_000_100, usegmt=True)}),
    }[changed]
    with pytest.raises(WireError) as caught:
        Authenticator(OwnKey(Keys("LTAI", "secret")), now=lambda: 1_000_001.0).check(other)
    assert caught.value.status_code == 403


@given(st.binary(max_size=80), st.binary(min_size=1, max_size=80))
def test_the_body_is_signed(body: bytes, other: bytes) -> None:
    if body == other:
        return
    key = static_credentials("LTAI", "secret")
    sent = requests.Request("POST", "http://h/x", data=body, auth=Acs3Auth(key, "A", "1")).prepare()
    request = SignedRequest("POST", "/x", {}, {name.lower(): value for name, value in sent.headers.items()})
    service = Authenticator(OwnKey(Keys("LTAI", "secret")))
    service.check(request)
    service.check_body(request, body)
    with refused(WireError, code="SignatureDoesNotMatch"):
        service.check_body(request, other)
    told_otherwise = replace(request, headers={**request.headers, "x-acs-content-sha256": payload_hash(other)})
    with refused(WireError, code="SignatureDoesNotMatch"):
        Authenticator(OwnKey(Keys("LTAI", "secret"))).check(told_otherwise)


def test_netrc_does_not_replace_the_signature(clean_home: Any) -> None:
    (clean_home / ".netrc").write_text("machine pai.example.com login a password b\n")
    with requests.Session() as session:
        auth = Acs3Auth(static_credentials("id", "secret"), "A", "1")
        prepared = session.prepare_request(requests.Request("GET", "https://pai.example.com/x", auth=auth))
    assert prepared.headers["Authorization"].startswith("ACS3-HMAC-SHA256 ")


def test_a_query_sent_by_others_with_plus_for_space_is_the_same_query() -> None:
    query = {"Name": "a b", "Empty": ""}
    auth = Acs3Auth(static_credentials("id", "secret"), "A", "1")
    sent = requests.Request("GET", "http://h/x?" + urlencode(query), auth=auth).prepare()
    lower = {name.lower(): value for name, value in sent.headers.items()}
    signed = lower["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    ours = acs3_signature(
        "secret",
        method="GET",
        path="/x",
        query=query,
        headers=lower,
        signed_headers=signed,
        payload_hash=payload_hash(b""),
    )
    assert lower["authorization"].endswith(ours)


def test_signatures_of_fixed_requests() -> None:
    request: dict[str, str] = {"method": "GET", "path": "/api/v1/trainingjobs"}
    signature = acs3_signature(
        "secret",
        **request,
        query={"PageSize": "10"},
        headers={"host": "pai.cn-hangzhou.aliyuncs.com"},
        signed_headers=["host"],
        payload_hash=payload_hash(b""),
    )
    assert signature.startswith("3bd4aafab06ac47b")
    headers = {"accept": "application/json", "date": "Thu, 01 Jan 1970 00:00:00 GMT"}
    assert roa_signature("secret", **request, query={}, headers=headers) == "fhdhNyvy16yPgJOV2ktk7TBh020="


def test_letters_digits_and_four_marks_are_not_encoded() -> None:
    assert encode("a b/c~ü") == "a%20b%2Fc~%C3%BC"
