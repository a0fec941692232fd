"""Keys that expire: what is created, what refuses them, and what continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import oss2
import pytest
import requests
from odps import ODPS, errors

from pai_sdk._service.identity.users import Users
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.folder import Keys
from pai_sdk.errors import AuthenticationError, InvalidInputError, StorageError
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.expiry import DAY_S, expire, with_expiring_key
from tests.service.identity.test_page_sessions import page_of, port_of, send
from tests.service.identity.test_strangers import auth_of
from tests.service.identity.test_two_users import with_new_key
from tests.service.services import Client, job_body, session_on
from tests.service.test_scheduler import root
from tests.service.tunnel.tunnelling import TunnelledExecutor, close_code, refusal, running_job, tunnel
from tests.service.web.browsing import ask_as_browser
from tests.support.waiting import PATIENCE_S

REFUSED = (403, "InvalidAccessKeyId.Inactive")


@pytest.fixture
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture
def operator(start: Callable[..., Any], executor: ScriptedExecutor) -> Iterator[Client]:
    with start(executor) as client:
        yield client


@pytest.fixture
def alice(operator: Client) -> Client:
    """A user whose only key expires tomorrow."""
    assert operator.call("POST", "/users", body={"Name": "alice"}).status_code == 200
    return with_expiring_key(operator, "alice", DAY_S)


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["Code"]


def test_a_key_is_valid_until_its_expiry(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    with closing(Database.in_file(tmp_path / "jobs.db")) as database:
        users = Users(database, Keys("LTAIown", "a secret of the service"), now=lambda: now[0])
        users.add("alice", "submit")
        key_id = users.new_key("alice", expires_at=now[0] + 60).key_id
        admitted = users.principal(key_id)
        assert admitted is not None
        now[0] += 59.9
        assert users.secret(key_id)
        assert users.expired_at(key_id) is None
        assert users.refusal(admitted) is None
        assert users.with_key("alice") is not None
        now[0] += 0.1
        assert (users.secret(key_id), users.principal(key_id)) == (None, None)
        assert users.expired_at(key_id) == now[0]
        assert users.with_key("alice") is None
        ended = users.refusal(admitted)
        assert ended is not None
        assert (ended.status_code, ended.code) == REFUSED
        assert "2027-01-15T08:01:00" in ended.message
        assert len(ended.message.encode()) <= 123  # the reason of a closed WebSocket
        other = users.new_key("alice").key_id
        assert users.principal(other) is not None
        assert users.expired_at("LTAIunknown") is None


@pytest.mark.parametrize("expiration", ["soon", "", "2020-01-01T00:00:00Z", "2027-13-01T00:00:00Z", 7])
def test_a_key_that_has_no_valid_expiry_is_not_created(operator: Client, expiration: Any) -> None:
    operator.call("POST", "/users", body={"Name": "alice"})
    answer = operator.call("POST", "/users/alice/keys", body={"Expiration": expiration})
    assert code_of(answer) == (400, "InvalidParameter")
    assert operator.get("/users/alice")["AccessKeyIds"] == []


def test_the_expiry_is_shown_and_in_the_audit_log(operator: Client) -> None:
    expires_at = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=30)
    with session_on(operator.info) as session:
        session.users.add("alice")
        key = session.users.new_key("alice", expires_at=expires_at)
        lasting = session.users.new_key("alice")
        (alice,) = session.users.list()
        entries = {entry.created_id: entry for entry in session.users.audit()}
        with pytest.raises(InvalidInputError):
            session.users.new_key("alice", expires_at=datetime.now())
    written = f"{expires_at:%Y-%m-%dT%H:%M:%S.000Z}"
    assert (key.expiration, lasting.expiration) == (written, None)
    shown = {each.access_key_id: each.expiration for each in alice.access_keys}
    assert shown == {key.access_key_id: written, lasting.access_key_id: None}
    assert entries[key.access_key_id].expiration == written
    assert entries[lasting.access_key_id].expiration is None
    (of_page,) = operator.get("/administration")["users"]
    assert {each["id"]: each["expires_at"] for each in of_page["keys"]} == {
        key.access_key_id: expires_at.timestamp(),
        lasting.access_key_id: None,
    }


def test_a_signed_request_says_when_the_key_ended(operator: Client, alice: Client) -> None:
    assert alice.get("/trainingjobs")["TotalCount"] == 0
    expired_at = expire(operator, alice, "alice")
    answer = alice.call("GET", "/trainingjobs")
    assert code_of(answer) == REFUSED
    assert expired_at in answer.json()["Message"]
    newest = operator.get("/audit")["Entries"][0]
    assert (newest["User"], newest["AccessKeyId"], newest["Status"]) == ("-", alice.info.access_key_id, 403)
    with session_on(alice.info) as session:
        with pytest.raises(AuthenticationError) as refused:
            session.get_job("train1")
        assert refused.value.code == REFUSED[1]
        assert f"expired at {expired_at}" in str(refused.value)
        with pytest.raises(StorageError) as denied:
            session.download(f"oss://{alice.info.bucket}/file", "file")
        assert denied.value.code == "InvalidAccessKeyId"
        assert f"expired at {expired_at}" in str(denied.value)
    assert with_new_key(operator, "alice").call("GET", "/trainingjobs").status_code == 200


def test_objects_presigned_urls_and_tables_refuse_it(operator: Client, alice: Client) -> None:
    alice.bucket().put_object("a", b"content")
    url = alice.bucket().sign_url("GET", "a", 3600)
    assert alice.session.get(url).content == b"content"
    info = alice.info
    where = {"endpoint": info.endpoint, "tunnel_endpoint": info.endpoint}
    tables = ODPS(info.access_key_id, info.access_key_secret, project="shop", **where)
    assert list(tables.list_tables()) == []
    expired_at = expire(operator, alice, "alice")
    with pytest.raises(oss2.exceptions.ServerError) as refused:
        alice.bucket().get_object("a")
    assert (refused.value.status, refused.value.code) == (403, "InvalidAccessKeyId")
    assert expired_at in refused.value.message
    answer = alice.session.get(url)
    assert (answer.status_code, expired_at in answer.text) == (403, True)
    with pytest.raises(errors.ODPSError) as denied:
        list(tables.list_tables())
    assert expired_at in str(denied.value)


def test_an_open_stream_ends_with_the_key(operator: Client, alice: Client) -> None:
    url = f"{alice.info.endpoint}/api/v1/events"
    with requests.get(
        url, params={"topics": "runs"}, auth=auth_of(alice), stream=True, timeout=PATIENCE_S
    ) as open_:
        lines = open_.iter_lines()
        while b"ready" not in next(lines):
            pass
        expire(operator, alice, "alice")
        job_id = with_new_key(operator, "alice").create(job_body())
        assert not any(job_id in line.decode() for line in lines)  # and they end
    assert code_of(requests.get(url, auth=auth_of(alice), timeout=PATIENCE_S)) == REFUSED


def test_a_page_ends_with_the_key(operator: Client, alice: Client) -> None:
    page, port = page_of(alice), port_of(alice)
    late = alice.call("POST", "/pagelinks").json()["Url"]
    assert send(operator, page, "GET", "/api/v1/runs").status == 200
    expired_at = expire(operator, alice, "alice")
    answer = ask_as_browser(port, "GET", "/api/v1/runs", **page)
    assert (answer.status, answer.json["Code"]) == (401, REFUSED[1])
    assert expired_at in answer.json["Message"]
    assert answer.json["Command"].startswith("pai-sdk ui")
    # A code of the last minute signs in, and opens nothing.
    signed_in = send(operator, {"X_PAI_UI": "none"}, "POST", "/ui/session", {"code": late.partition("code=")[2]})
    assert signed_in.status == 200
    cookie = signed_in.headers["set-cookie"].partition(";")[0]
    refused = ask_as_browser(port, "GET", "/api/v1/runs", Cookie=cookie, X_PAI_UI=signed_in.json["key"])
    assert refused.status == 401


def test_jobs_continue_when_the_key_of_their_user_ends(
    start: Callable[..., Any], executor: ScriptedExecutor
) -> None:
    with start(executor, slots=1) as operator:
        assert operator.call("POST", "/users", body={"Name": "alice"}).status_code == 200
        alice = with_expiring_key(operator, "alice", DAY_S)
        running, queued = alice.create(job_body()), alice.create(job_body())
        alice.until(running, "Running")
        expire(operator, alice, "alice")
        executor.succeed(root(operator, running))
        assert operator.until(running)["Status"] == "Succeed"
        operator.until(queued, "Running")
        executor.succeed(root(operator, queued))
        assert operator.until(queued)["Status"] == "Succeed"


def test_a_key_that_has_expired_loses_its_open_tunnels(start: Callable[..., Any]) -> None:
    with start(TunnelledExecutor()) as operator:
        assert operator.call("POST", "/users", body={"Name": "alice"}).status_code == 200
        alice = with_expiring_key(operator, "alice", DAY_S)
        job_id = running_job(alice)
        with tunnel(alice, job_id) as websocket, tunnel(operator, job_id):
            expired_at = expire(operator, alice, "alice")
            assert close_code(websocket) == 4403
            assert expired_at in str(websocket.close_reason)
        assert refusal(alice, job_id) == REFUSED
