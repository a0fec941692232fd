"""The transport through faults: what is tried again, what is not, and what the user reads in the end."""

from __future__ import annotations

import logging
import os
import threading
from email.utils import formatdate
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from pai_sdk._client.api.transport import Transport, form_of
from pai_sdk._core.config.credentials import Credentials, static_credentials
from pai_sdk._core.endpoint import Endpoint
from pai_sdk._core.retry import RetryPolicy
from pai_sdk.errors import (
    ApiError,
    AuthenticationError,
    ConflictError,
    ConnectionFailedError,
    CredentialsError,
    CredentialsRenewalError,
    InvalidInputError,
    InvalidRequestError,
    InvalidResponseError,
    NotFoundError,
    PermissionDeniedError,
    RepeatedRequestError,
    ServerError,
    SettingsError,
    ThrottledError,
)
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S
from tests.unit.client.api.conftest import FakeClock
from tests.unit.client.api.scripted_server import Reply, Reset, ScriptedServer, unused_endpoint

pytestmark = pytest.mark.interpreter

KEY = static_credentials("LTAI-example", "keep-me-secret", "keep-my-token")
GOOD = Reply({"RequestId": "r-1", "Answer": 42})
HTML = b"<html><body>502 Bad Gateway</body></html>"


def get(transport: Transport, **more: Any) -> Any:
    return transport.call("GetThing", "GET", "/api/v1/things/{id}", {"id": "t-1"}, **more)


def post(transport: Transport, **more: Any) -> Any:
    return transport.call("CreateThing", "POST", "/api/v1/things", body={"Name": "ü"}, **more)


def test_an_answer(server: ScriptedServer, transport: Transport) -> None:
    server.script = [GOOD]
    answer = post(transport, query={"A": 1, "B": None, "C": True, "L": {"k": "a b&c=ü"}, "E": ""})
    assert answer.json["Answer"] == 42
    assert (answer.status_code, answer.request_id) == (200, "r-1")
    (asked,) = server.asked
    assert asked.query == {"A": "1", "C": "true", "L": '{"k":"a b&c=ü"}', "E": ""}
    assert asked.body == '{"Name":"ü"}'.encode()
    assert asked.headers["content-type"] == "application/json; charset=utf-8"
    assert asked.headers["user-agent"].startswith("pai-sdk/")
    assert asked.headers["x-acs-action"] == "CreateThing"


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body(server: ScriptedServer, transport: Transport, status: int) -> None:
    server.script = [Reply(status=status, headers={"ETag": '"7"'})]
    answer = get(transport)
    assert (answer.json, answer.status_code, answer.headers["etag"]) == ({}, status, '"7"')


@pytest.mark.parametrize(
    "fault",
    [
        Reset,
        Reply({"Code": "InternalError", "Message": "oops"}, 500),
        Reply({"Code": "ServiceUnavailable", "Message": "oops"}, 503),
        Reply({"Code": "Throttling.User", "Message": "slow"}, 429),
        Reply({"Code": "Throttling", "Message": "slow"}, 400),
        Reply(HTML, 502),
        Reply(HTML, 429),
        Reply(b"", 200),
        Reply(b"", 500),
        Reply(b'{"RequestId": "cut', 200),
        Reply({"RequestId": "r"}, 200, cut=5),
        Reply([], 200),
        Reply(HTML, 200),
    ],
)
def test_passing_faults_of_repeatable_calls(
    server: ScriptedServer, transport: Transport, clock: FakeClock, fault: Any
) -> None:
    server.script = [fault, fault, GOOD]
    assert get(transport).json["Answer"] == 42
    assert len(server.asked) == 3
    assert len({asked.headers["x-acs-signature-nonce"] for asked in server.asked}) == 3
    assert len(clock.pauses) == 2


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"x-acs-retry-after": "1500"}, 1.5),
        ({"x-acs-retry-after": "1500", "Retry-After": "3"}, 1.5),
        ({"Retry-After": formatdate(1_000_004, usegmt=True), "Date": formatdate(1_000_000, usegmt=True)}, 4.0),
        ({"Retry-After": "1000"}, 10.0),
    ],
)
@pytest.mark.parametrize("body", [{"Code": "Throttling"}, HTML])
def test_the_server_says_when_to_come_back(
    server: ScriptedServer,
    transport: Transport,
    clock: FakeClock,
    headers: dict[str, str],
    pause_s: float,
    body: Any,
) -> None:
    server.script = [Reply(body, 503, headers), GOOD]
    get(transport)
    assert clock.pauses == [pause_s]


@pytest.mark.parametrize("wish", ["soon", "-1", "nan", "Wed, 99 Foo"])
def test_an_unreadable_retry_after_is_ignored(
    server: ScriptedServer, transport: Transport, clock: FakeClock, wish: str
) -> None:
    server.script = [Reply({}, 503, {"Retry-After": wish}), GOOD]
    get(transport)
    assert 0 < clock.pauses[0] <= 0.2


def test_the_deadline_ends_it(server: ScriptedServer, transport: Transport, clock: FakeClock) -> None:
    server.script = [Reply({"Code": "InternalError", "Message": "oops", "RequestId": "r-9"}, 500)]
    with refused(ServerError, code="InternalError"):
        get(transport)
    assert clock.now_s <= 60
    assert len(server.asked) == 10


@pytest.mark.parametrize(
    ("code", "status", "family"),
    [
        ("InvalidParameter", 400, InvalidRequestError),
        ("TrainingJobNotFound", 404, NotFoundError),
        ("Conflict", 409, ConflictError),
        ("Forbidden.RAM", 403, PermissionDeniedError),
        ("NoPermission", 400, PermissionDeniedError),
        ("InvalidAccessKeyId.NotFound", 404, AuthenticationError),
        ("", 401, AuthenticationError),
        ("Strange", 418, ApiError),
        ("NotImplemented", 501, ServerError),
    ],
)
def test_refusals_are_reported_at_once(
    server: ScriptedServer, transport: Transport, code: str, status: int, family: type[ApiError]
) -> None:
    server.script = [Reply({"code": code, "message": "no", "requestId": "r-5"}, status)]
    with pytest.raises(family) as caught:
        get(transport)
    assert type(caught.value) is family
    assert (caught.value.code, caught.value.status_code, caught.value.request_id) == (code, status, "r-5")
    assert len(server.asked) == 1


def test_the_request_id_may_be_in_a_header(server: ScriptedServer, transport: Transport) -> None:
    server.script = [Reply({"Code": "X", "Message": "no"}, 400, {"x-acs-request-id": "r-h"})]
    with refused(InvalidRequestError, code="X"):
        get(transport)


@pytest.mark.parametrize(
    ("code", "date_ahead_s"),
    [
        ("InvalidAccessKeyId.NotFound", 0),
        ("SignatureDoesNotMatch", 0),
        ("InvalidSecurityToken.Expired", 0),
        ("MissingSecurityToken", 0),
        ("InvalidTimeStamp.Expired", 3600),
        ("IllegalTimestamp", -90),
        ("IllegalTimestamp", -86400 * 40),
        ("IllegalTimestamp", 0),
    ],
)
def test_wrong_key_and_wrong_clock_in_one_sentence(
    server: ScriptedServer,
    transport: Transport,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    date_ahead_s: int,
) -> None:
    now_s = 1_700_000_000
    monkeypatch.setattr("pai_sdk._client.api.responses.time", SimpleNamespace(time=lambda: now_s))
    body = {"Code": code, "Message": "server string to sign is: x-acs-security-token:keep-my-token"}
    server.script = [Reply(body, 400, {"Date": formatdate(now_s + date_ahead_s, usegmt=True)})]
    with refused(AuthenticationError) as caught:
        get(transport)
    assert "keep-my-token" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(HTML, 404), 404),
        (Reply(b"plain words", 403), 403),
        (Reply({}, 302, {"Location": "http://elsewhere/"}), 302),
        (Reply(HTML, 200), 200),
        (Reply([1], 200), 200),
        (Reply(b"null", 200), 200),
        (Reply(b"", 200), 200),
        (Reply(b"\xff\xfe{", 200), 200),
        (Reply(b'{"a":' * 100_000, 200), 200),
        (Reply(HTML, 502), 502),
    ],
)
def test_answers_that_are_not_the_services_keep_their_status(
    server: ScriptedServer, transport: Transport, reply: Reply, status: int
) -> None:
    server.script = [reply]
    with refused(InvalidResponseError) as caught:
        get(transport)
    assert caught.value.status_code == status
    assert len(caught.value.body) <= 500


def test_a_truncated_answer_that_stays_is_a_broken_connection(
    server: ScriptedServer, transport: Transport
) -> None:
    server.script = [Reply({"RequestId": "r"}, cut=5)]
    with refused(ConnectionFailedError) as caught:
        get(transport)
    assert caught.value.attempts == 10


class TestWhatMayNotBeSentTwice:
    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            (Reset, ConnectionFailedError),
            (Reply({}, cut=1), ConnectionFailedError),
            (Reply({"Code": "InternalError"}, 500), ServerError),
            (Reply(HTML, 502), InvalidResponseError),
            (Reply(b"", 200), InvalidResponseError),
        ],
    )
    def test_once_it_may_have_arrived(
        self, server: ScriptedServer, transport: Transport, fault: Any, error: type[Exception]
    ) -> None:
        server.script = [fault]
        with pytest.raises(error) as caught:
            post(transport)
        assert len(server.asked) == 1
        assert getattr(caught.value, "maybe_arrived", True)

    def test_silence(self, server: ScriptedServer, transport: Transport) -> None:
        is_over = threading.Event()
        server.script = [Reply(after=is_over.wait)]
        try:
            with refused(ConnectionFailedError) as caught:
                post(transport, timeout_s=(PATIENCE_S, 0.1))
        finally:
            is_over.set()
        assert caught.value.maybe_arrived

    @pytest.mark.parametrize("body", [{"Code": "Throttling.Api"}, HTML, b"", [1]])
    def test_but_again_when_it_was_turned_away(
        self, server: ScriptedServer, transport: Transport, clock: FakeClock, body: Any
    ) -> None:
        server.script = [Reply(body, 429, {"Retry-After": "2"}), GOOD]
        assert post(transport).json["Answer"] == 42
        assert clock.pauses == [2.0]

    def test_but_again_when_nothing_listened(self, retry: RetryPolicy) -> None:
        starts: list[ScriptedServer] = []
        endpoint = unused_endpoint()

        def start() -> None:
            server = ScriptedServer(int(endpoint.rpartition(":")[2]))
            server.script = [GOOD]
            starts.append(server)

        transport = Transport(Endpoint(endpoint, start), KEY, version="1", retry=retry)
        try:
            assert post(transport).json["Answer"] == 42
            assert len(starts) == 1
        finally:
            transport.close()
            for server in starts:
                server.close()


@pytest.mark.parametrize("job_id", ["", ".", ".."])
def test_an_id_that_would_be_another_path(transport: Transport, job_id: str) -> None:
    with refused(InvalidInputError, "id"):
        transport.call("GetThing", "GET", "/things/{id}", {"id": job_id})


@pytest.mark.parametrize("job_id", ["a/b", "a b", "ü", "a?b#c", "%2e%2e", "a\nb", "\"'$(x)", "a{b}"])
def test_a_hostile_id_stays_one_part_of_the_path(
    server: ScriptedServer, transport: Transport, job_id: str
) -> None:
    from urllib.parse import unquote

    transport.call("GetThing", "GET", "/things/{id}/x", {"id": job_id})
    (asked,) = server.asked
    _, things, part, x = asked.path.split("/")
    assert (things, unquote(part), x) == ("things", job_id, "x")


def test_half_a_character_is_reported(transport: Transport) -> None:
    with refused(InvalidInputError, "request"):
        transport.call("CreateThing", "POST", "/things", body={"Name": "a\ud800b"})
    with refused(InvalidInputError, "Name"):
        transport.call("ListThings", "GET", "/things", query={"Name": "a\ud800b"})


def test_an_endpoint_without_a_scheme_is_https() -> None:
    transport = Transport("pai.cn-hangzhou.aliyuncs.com", KEY, version="2022-01-12")
    assert repr(transport) == "<Transport https://pai.cn-hangzhou.aliyuncs.com 2022-01-12>"
    transport.close()


def test_a_form_leaves_none_out_and_encodes_the_rest() -> None:
    fields = {"AlgorithmName": "digits", "DisplayName": "a & b", "WorkspaceId": None}
    assert form_of(fields) == b"AlgorithmName=digits&DisplayName=a%20%26%20b"


@pytest.mark.parametrize("endpoint", ["ftp://x", "http://u:pw-secret@host", "http://host/path", "a b", ""])
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    with refused(SettingsError) as caught:
        Transport(endpoint, KEY, version="1")
    assert "pw-secret" not in str(caught.value)


def test_no_secret_in_logs_and_errors(
    server: ScriptedServer, retry: RetryPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.script = [Reply({"Code": "Throttling"}, 429), Reset, Reply({"Code": "X", "Message": "no"}, 400)]
    transport = Transport(server.endpoint, KEY, version="1", retry=retry)
    with pytest.raises(InvalidRequestError) as caught:
        transport.call("UpdateThing", "PUT", "/things", body={"Password": "in-the-body"})
    texts = [caplog.text, str(caught.value), repr(transport), repr(caught.value)]
    for secret in ("keep-me-secret", "keep-my-token", "Signature=", "in-the-body"):
        assert not any(secret in text for text in texts)
    assert "UpdateThing PUT" in caplog.text


def test_throttled_to_the_end(server: ScriptedServer, transport: Transport) -> None:
    server.script = [Reply({"Code": "Throttling.User", "Message": "slow down"}, 429, {"Retry-After": "2"})]
    with refused(ThrottledError, code="Throttling.User") as caught:
        post(transport)
    assert caught.value.retry_after_s == 2.0


def test_the_environment_of_the_process_stays_as_it_is(
    server: ScriptedServer, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads read it, and would start their programs with what was put there for a moment."""
    server.answer = lambda _: Reply({"Answer": 42})
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", MappingProxyType(dict(os.environ)))
        answer = transport.call("GetThing", "GET", "/things")
    assert answer.json == {"Answer": 42}


def test_many_threads_share_one_transport(server: ScriptedServer, transport: Transport) -> None:
    from concurrent.futures import ThreadPoolExecutor

    server.answer = lambda asked: Reset if len(server.asked) % 7 == 0 else Reply({"Path": asked.path})
    with ThreadPoolExecutor(8) as pool:
        answers = [
            *pool.map(lambda n: transport.call("GetThing", "GET", "/{n}", {"n": str(n)}).json["Path"], range(60))
        ]
    assert answers == [f"/{n}" for n in range(60)]


class TestUsedNonces:
    """A gateway that delivers a request twice answers with the service's refusal of the second one."""

    USED = Reply({"Code": "SignatureNonceUsed", "Message": "used", "RequestId": "r-2"}, 400)

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
    def test_signed_anew_and_asked_again(self, server: ScriptedServer, transport: Transport, method: str) -> None:
        server.script = [self.USED, self.USED, GOOD]
        assert transport.call("DoThing", method, "/api/v1/things").json["Answer"] == 42
        assert len({asked.headers["x-acs-signature-nonce"] for asked in server.asked}) == 3

    def test_a_gateway_that_never_stops_is_reported(self, server: ScriptedServer, transport: Transport) -> None:
        server.script = [self.USED]
        with refused(RepeatedRequestError, code="SignatureNonceUsed") as caught:
            get(transport)
        assert isinstance(caught.value, AuthenticationError)
        assert len(server.asked) == 10

    def test_it_can_be_final(self, server: ScriptedServer, transport: Transport) -> None:
        server.script = [self.USED]
        with pytest.raises(RepeatedRequestError) as caught:
            post(transport, final_codes=("SignatureNonceUsed",))
        assert caught.value.maybe_arrived
        assert len(server.asked) == 1


class TestDeletion:
    GONE = Reply({"Code": "TRAINING_JOB_NOT_FOUND", "Message": "no such job"}, 404)

    @pytest.mark.parametrize(
        "lost",
        [Reset, Reply({}, cut=1), Reply(HTML, 502), Reply({"Code": "InternalError"}, 500), TestUsedNonces.USED],
    )
    def test_not_found_after_a_lost_answer_is_success(
        self, server: ScriptedServer, transport: Transport, lost: Any
    ) -> None:
        server.script = [lost, self.GONE]
        assert transport.call("DeleteThing", "DELETE", "/api/v1/things/t-1").json == {}

    @pytest.mark.parametrize("script", [[GONE], [Reply({"Code": "Throttling"}, 429), GONE]])
    def test_not_found_is_reported_where_nothing_was_lost(
        self, server: ScriptedServer, transport: Transport, script: list[Any]
    ) -> None:
        server.script = script
        with pytest.raises(NotFoundError):
            transport.call("DeleteThing", "DELETE", "/api/v1/things/t-1")

    def test_only_for_deletions(self, server: ScriptedServer, transport: Transport) -> None:
        server.script = [Reset, self.GONE]
        with pytest.raises(NotFoundError):
            transport.call("StopThing", "PUT", "/api/v1/things/t-1/stop")


class TestKeysThatCannotBeRenewed:
    def transport(self, server: ScriptedServer, retry: RetryPolicy, faults: list[Exception]) -> Transport:
        def provide() -> Credentials:
            if faults:
                raise faults.pop(0)
            return KEY()

        return Transport(server.endpoint, provide, version="1", retry=retry)

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_asked_for_again(self, server: ScriptedServer, retry: RetryPolicy, method: str) -> None:
        server.script = [GOOD]
        transport = self.transport(
            server, retry, [CredentialsRenewalError("metadata"), CredentialsRenewalError("x")]
        )
        assert transport.call("DoThing", method, "/things").json["Answer"] == 42
        transport.close()

    def test_no_key_at_all_is_final(self, server: ScriptedServer, retry: RetryPolicy) -> None:
        transport = self.transport(server, retry, [CredentialsError("no access key was found")])
        with refused(CredentialsError):
            transport.call("GetThing", "GET", "/things")
        assert server.asked == []
        transport.close()
