"""Who may open a tunnel into a job, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from websockets.exceptions import InvalidStatus

from pai_sdk._service.settings import TunnelLimits
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from tests.service.identity.test_two_users import user
from tests.service.identity.test_workspaces import workspace
from tests.service.services import Client, job_body
from tests.service.tunnel.tunnelling import (
    TunnelledExecutor,
    close_code,
    refusal,
    running_job,
    signed_headers,
    tunnel,
)
from tests.support.waiting import PATIENCE_S, until

SOON_S = 20.0  # much less than the interval of the checks of the job


@pytest.fixture
def executor() -> TunnelledExecutor:
    return TunnelledExecutor()


@pytest.fixture
def operator(start: Callable[..., Any], executor: TunnelledExecutor) -> Iterator[Client]:
    with start(executor) as client:
        yield client


def entries(operator: Client) -> list[tuple[str, int]]:
    """Who has opened tunnels, by the audit log, the first one first."""
    found = operator.get("/audit", PageSize="100")["Entries"]
    return [(entry["User"], entry["Status"]) for entry in reversed(found) if entry["Path"].endswith("/tunnel")]


def test_a_tunnel_needs_the_right_to_change_the_job(operator: Client, executor: TunnelledExecutor) -> None:
    alice, bob, admin = user(operator, "alice"), user(operator, "bob"), user(operator, "carol", "admin")
    job_id = running_job(alice)
    for client in (alice, admin, operator):
        with tunnel(client, job_id) as websocket:
            websocket.send(b"hello")
            assert websocket.recv(PATIENCE_S) == b"hello"
    assert refusal(bob, job_id) == (404, "TRAINING_JOB_NOT_FOUND")
    operator.call("PUT", "/users/alice", body={"Right": "read"})
    assert refusal(alice, job_id) == (403, "Forbidden.NoPermission")
    assert entries(operator) == [("alice", 101), ("carol", 101), ("", 101), ("bob", 404), ("alice", 403)]
    assert len(executor.connected) == 3


def test_a_public_job_of_a_colleague_has_no_tunnel(operator: Client, executor: TunnelledExecutor) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    workspace_id = workspace(operator, "first", alice="AlgoDeveloper", bob="AlgoDeveloper")
    public = [{"Key": ACCESSIBILITY_LABEL, "Value": "PUBLIC"}]
    job_id = running_job(alice, WorkspaceId=workspace_id, Labels=public)
    assert bob.call("GET", f"/trainingjobs/{job_id}").status_code == 200
    assert refusal(bob, job_id) == (403, "Forbidden.NoPermission")
    assert executor.connected == []


def test_a_revoked_key_loses_its_open_tunnels(operator: Client) -> None:
    alice = user(operator, "alice")
    job_id = running_job(alice)
    with tunnel(alice, job_id) as websocket, tunnel(operator, job_id) as other:
        revoked_at = time.monotonic()
        operator.call("DELETE", f"/users/alice/keys/{alice.info.access_key_id}")
        assert close_code(websocket) == 4403
        assert time.monotonic() - revoked_at < SOON_S
        other.send(b"still there")
        assert other.recv(PATIENCE_S) == b"still there"
    assert refusal(alice, job_id) == (403, "InvalidAccessKeyId.NotFound")


def test_a_lower_right_ends_open_tunnels(operator: Client) -> None:
    alice = user(operator, "alice")
    with tunnel(alice, running_job(alice)) as websocket:
        operator.call("PUT", "/users/alice", body={"Right": "read"})
        assert close_code(websocket) == 4403


def test_an_unsigned_request_opens_nothing(operator: Client, executor: TunnelledExecutor) -> None:
    job_id = running_job(operator)
    url = f"{operator.info.endpoint}/api/v1/trainingjobs/{job_id}/instances/first/tunnel"
    signed = signed_headers(operator, url)
    with tunnel(operator, job_id, headers=signed):
        pass
    assert refusal(operator, job_id, headers={"Authorization": ""}) == (401, "MissingAuthorization")
    assert refusal(operator, job_id, headers=signed) == (403, "SignatureNonceUsed")
    wrong = {"Authorization": signed["Authorization"][:-4] + "0000"}
    assert refusal(operator, job_id, headers=wrong) == (403, "SignatureDoesNotMatch")
    assert refusal(operator, job_id, "master-0", headers=signed_headers(operator, url)) == (
        403,
        "SignatureDoesNotMatch",
    )
    assert len(executor.connected) == 1


def test_a_page_opens_nothing(operator: Client, executor: TunnelledExecutor) -> None:
    job_id = running_job(operator)
    for origin in (operator.info.endpoint, "https://elsewhere.example", "null"):
        assert refusal(operator, job_id, origin=origin) == (403, "OriginNotAllowed")
    unsigned = {"Authorization": "", "Cookie": "pai-ui=1", "x-pai-ui": "1"}
    assert refusal(operator, job_id, headers=unsigned)[0] == 401
    assert executor.connected == []


def test_tunnels_are_limited_in_number(start: Callable[..., Any], executor: TunnelledExecutor) -> None:
    limits = TunnelLimits(of_user=2, total=3)
    with start(executor, tunnels=limits) as operator:
        alice = user(operator, "alice")
        job_id = running_job(alice)
        with tunnel(alice, job_id), tunnel(alice, job_id):
            assert refusal(alice, job_id) == (429, "TooManyTunnels")
            with tunnel(operator, job_id):
                assert refusal(operator, job_id) == (503, "ServiceBusy")
        until(lambda: opens(alice, job_id))


def opens(client: Client, job_id: str) -> bool:
    """Whether another tunnel may be opened: a closed one counts until the service has noticed."""
    try:
        with tunnel(client, job_id):
            return True
    except InvalidStatus:
        return False


def test_many_attempts_leave_nothing_open(start: Callable[..., Any], executor: TunnelledExecutor) -> None:
    with start(executor, tunnels=TunnelLimits(of_user=1)) as operator:
        alice = user(operator, "alice")
        waiting = alice.create(job_body())
        for _ in range(3):
            assert refusal(alice, waiting, "worker-9")[0] in (404, 409)
        alice.until(waiting, "Running")
        with tunnel(alice, waiting) as websocket:
            websocket.send(b"one")
            assert websocket.recv(PATIENCE_S) == b"one"


def test_a_plain_request_checks_rights_too(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    path = f"/trainingjobs/{running_job(alice)}/instances/first/tunnel"
    assert bob.call("GET", path).status_code == 404
    operator.call("PUT", "/users/alice", body={"Right": "read"})
    assert alice.call("GET", path).status_code == 403
    assert requests.get(f"{operator.info.endpoint}/api/v1{path}", timeout=PATIENCE_S).status_code == 401
