"""What a user reads when a request fails: one sentence that says what is wrong and what to do, word by word."""

from __future__ import annotations

import ipaddress
import ssl
import time
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from pathlib import Path

import pytest

from pai_sdk import Session
from pai_sdk._client.api.transport import Transport
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk.errors import (
    AuthenticationError,
    ConnectionFailedError,
    InvalidResponseError,
    PaiError,
    RepeatedRequestError,
    ServerError,
    ThrottledError,
)
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import BrokenRecord, Reply, Reset, ScriptedServer, Step, unused_endpoint

CLOUD = "https://pai.cn-hangzhou.aliyuncs.com"
CHECK = "check that the endpoint belongs to PAI, and check the proxy"
FAULT = "the service, or a gateway in front of it, failed"
PROXY = "check HTTPS_PROXY and NO_PROXY"
HTML = b"<html><body>502 Bad Gateway</body></html>"
KEY = static_credentials("LTAI-example", "keep-me-secret", "keep-my-token")


def what_is_read(endpoint: str) -> PaiError:
    """The error of one call."""
    retry = RetryPolicy(max_attempts=10, sleep=lambda _: None)
    with (
        Session("cn-hangzhou", "1", endpoint=endpoint, credentials=KEY, retry=retry) as session,
        pytest.raises(PaiError) as caught,
    ):
        session.get_job("train1")
    error = caught.value
    assert "keep-m" not in str(error)
    assert "\n" not in str(error)
    return error


def refusal(code: str, *, clock_s: float = 0.0) -> Reply:
    body = {"Code": code, "Message": "string to sign: keep-my-token", "RequestId": "r-1"}
    return Reply(body, 403, {"Date": formatdate(time.time() + clock_s, usegmt=True)})


@pytest.mark.parametrize(
    ("step", "kind", "sentence"),
    [
        pytest.param(
            refusal("InvalidAccessKeyId.NotFound"),
            AuthenticationError,
            "HOST has no such access key id; check it, and that it is not disabled"
            " [InvalidAccessKeyId.NotFound, HTTP 403, RequestId r-1]",
            id="wrong key id",
        ),
        pytest.param(
            refusal("SignatureDoesNotMatch"),
            AuthenticationError,
            "the access key secret does not belong to the access key id; check both"
            " [SignatureDoesNotMatch, HTTP 403, RequestId r-1]",
            id="wrong secret",
        ),
        pytest.param(
            refusal("InvalidSecurityToken.Expired"),
            AuthenticationError,
            "the security token is not valid or has expired; get a new temporary key"
            " [InvalidSecurityToken.Expired, HTTP 403, RequestId r-1]",
            id="expired STS",
        ),
        pytest.param(
            refusal("InvalidTimeStamp.Expired", clock_s=3 * 3600),
            AuthenticationError,
            "the clock of this machine is 3 hours behind the service's; correct it"
            " [InvalidTimeStamp.Expired, HTTP 403, RequestId r-1]",
            id="wrong clock",
        ),
        pytest.param(
            refusal("SignatureNonceUsed"),
            RepeatedRequestError,
            "the request arrived twice; does a proxy before HOST repeat requests?"
            " [SignatureNonceUsed, HTTP 403, RequestId r-1]",
            id="repeated on the way",
        ),
        pytest.param(
            Reply(HTML, 502),
            InvalidResponseError,
            f"HOST sent HTTP 502 with HTML or XML instead of JSON; {FAULT}",
            id="HTML from a gateway",
        ),
        pytest.param(
            Reply(b"", 503),
            InvalidResponseError,
            f"HOST sent HTTP 503 with an empty body; {FAULT}",
            id="empty 503",
        ),
        pytest.param(
            Reply(HTML),
            InvalidResponseError,
            f"HOST sent HTTP 200 with HTML or XML instead of JSON; {CHECK}",
            id="a login page",
        ),
        pytest.param(
            Reply(b""), InvalidResponseError, f"HOST sent HTTP 200 with an empty body; {CHECK}", id="empty"
        ),
        pytest.param(
            Reply([1]),
            InvalidResponseError,
            f"HOST sent HTTP 200 with a JSON list instead of an object; {CHECK}",
            id="array",
        ),
        pytest.param(
            Reply(b'{"TrainingJobId": "tr'),
            InvalidResponseError,
            f"HOST sent HTTP 200 with truncated or damaged JSON; {CHECK}",
            id="truncated JSON",
        ),
        pytest.param(
            Reply({"TrainingJobId": "t"}, cut=4),
            ConnectionFailedError,
            "the connection to http://HOST broke off before the response was complete (tried 10 times)",
            id="cut off",
        ),
        pytest.param(
            Reset,
            ConnectionFailedError,
            "the connection to http://HOST broke off before the response was complete (tried 10 times)",
            id="reset",
        ),
        pytest.param(
            Reply({}, 302, {"Location": "/login"}),
            InvalidResponseError,
            f"HOST sent HTTP 302 with a redirection; {CHECK}",
            id="redirection",
        ),
        pytest.param(
            Reply(HTML, 429),
            ThrottledError,
            "HOST received too many requests; send fewer at a time [HTTP 429]",
            id="too many, says a gateway",
        ),
        pytest.param(
            Reply({"Code": "InternalError", "Message": "oops", "RequestId": "r-1"}, 500),
            ServerError,
            "oops [InternalError, HTTP 500, RequestId r-1]",
            id="a fault of the service",
        ),
    ],
)
def test_what_a_server_says(server: ScriptedServer, step: Step, kind: type[PaiError], sentence: str) -> None:
    server.script = [step]
    error = what_is_read(server.endpoint)
    host = server.endpoint.removeprefix("http://")
    assert str(error) == f"GetTrainingJob: {sentence}".replace("HOST", host)
    assert type(error) is kind


def test_nothing_listens() -> None:
    endpoint = unused_endpoint()
    assert str(what_is_read(endpoint)) == (
        f"GetTrainingJob: nothing listens at {endpoint}; check the endpoint, or start the service (tried 10 times)"
    )


def test_https_to_a_port_of_http(server: ScriptedServer) -> None:
    endpoint = server.endpoint.replace("http://", "https://")
    assert str(what_is_read(endpoint)) == (
        f"GetTrainingJob: no secure connection to {endpoint}; does it speak TLS?"
        " If not, write the endpoint with http://"
    )


class TestProxies:
    def test_no_response(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", unused_endpoint())
        assert (
            str(what_is_read(CLOUD))
            == f"GetTrainingJob: the proxy did not reach {CLOUD}; {PROXY} (tried 10 times)"
        )

    def test_it_refuses(self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", server.endpoint)
        server.script = [Reply(b"forbidden", 403)]
        assert (
            str(what_is_read(CLOUD))
            == f"GetTrainingJob: the proxy refused the connection to {CLOUD} (HTTP 403); {PROXY}"
        )

    def test_it_wants_a_password(self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTP_PROXY", server.endpoint)
        server.script = [Reply(b"who are you?", 407)]
        assert str(what_is_read("http://pai.example.com")) == (
            "GetTrainingJob: pai.example.com sent HTTP 407 with a body that is not JSON;"
            " the proxy requires a user and a password: HTTPS_PROXY=http://user:password@host:port"
        )


class TestCertificates:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        """A self-signed certificate for 127.0.0.1, with its key."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
        now = datetime.now(timezone.utc)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(here, critical=False)
            .sign(key, hashes.SHA256())
        )
        path = tmp_path / "certificate.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
        return path

    @pytest.fixture
    def secure_endpoint(self, server: ScriptedServer, certificate: Path) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.speak_tls(context)
        return server.endpoint.replace("http://", "https://")

    def test_an_unknown_certificate(self, secure_endpoint: str) -> None:
        assert str(what_is_read(secure_endpoint)) == (
            f"GetTrainingJob: the certificate of {secure_endpoint} is not accepted: self-signed certificate;"
            " for a CA of your own, set REQUESTS_CA_BUNDLE to its file"
        )

    def test_one_that_the_environment_names(
        self, server: ScriptedServer, secure_endpoint: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        server.script = [Reply({"TrainingJobId": "train1", "Status": "Running"})]
        with Session("cn-hangzhou", "1", endpoint=secure_endpoint, credentials=KEY) as session:
            assert session.get_job("train1").id == "train1"

    def test_a_record_that_breaks_after_the_request_was_sent(
        self, server: ScriptedServer, secure_endpoint: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        server.script = [BrokenRecord]
        transport = Transport(secure_endpoint, KEY, version="1")
        with refused(ConnectionFailedError) as caught:
            transport.call("CreateThing", "POST", "/things", body={})
        transport.close()
        assert caught.value.maybe_arrived
        assert len(server.asked) == 1
