"""What the audit log says of a request: what it has created, and sign-ins that failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_page_sessions import page_of, port_of, send
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body, running_service
from tests.service.web.browsing import ask_as_browser, headers_of_page


def newest(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/audit", PageSize="1")["Entries"][0]
    return found


def test_an_entry_names_what_was_created(operator: Client) -> None:
    alice = user(operator, "alice")
    keys = operator.get("/users/alice")["AccessKeyIds"]
    assert (newest(operator)["Path"], newest(operator)["CreatedId"]) == ("/api/v1/users/alice/keys", keys[0])
    job_id = alice.create(job_body())
    entry = newest(operator)
    assert (entry["User"], entry["Path"], entry["CreatedId"]) == ("alice", "/api/v1/trainingjobs", job_id)
    rerun = alice.call("POST", f"/runs/{job_id}/rerun", body={"changes": {}, "token": "a-long-token"})
    assert rerun.status_code == 200, rerun.text
    assert newest(operator)["CreatedId"] == rerun.json()["id"]
    assert alice.call("PUT", f"/trainingjobs/{job_id}/stop").status_code == 200
    assert newest(operator)["CreatedId"] == ""
    created = operator.call("POST", "/workspaces", body={"WorkspaceName": "vision"}).json()
    assert newest(operator)["CreatedId"] == created["WorkspaceId"]
    refused = alice.call("POST", "/workspaces", body={"WorkspaceName": "other"})
    assert (refused.status_code, newest(operator)["Status"], newest(operator)["CreatedId"]) == (403, 403, "")
    for path, body, name in (
        ("/experiments", {"Name": "first"}, "ExperimentId"),
        ("/models", {"ModelName": "first"}, "ModelId"),
        ("/algorithms", {"AlgorithmName": "first"}, "AlgorithmId"),
        ("/schedules", {"Name": "often", "Cron": "0 0 1 1 *", "Request": job_body()}, "ScheduleId"),
        ("/users", {"Name": "eve"}, "Name"),
    ):
        answer = operator.call("POST", path, body=body)
        assert answer.status_code == 200, answer.text
        assert newest(operator)["CreatedId"] == answer.json()[name], path


def test_a_failed_sign_in_is_noted(operator: Client) -> None:
    bob = user(operator, "bob")
    send(operator, page_of(operator), "POST", "/ui/session", {"code": "made-up"})
    entry = newest(operator)
    assert (entry["User"], entry["AccessKeyId"], entry["Path"]) == ("-", "", "/ui/session")
    assert (entry["Status"], entry["Client"]) == (403, "127.0.0.1")

    wrong_secret = Client(replace(bob.info, access_key_secret="a-wrong-one"))
    assert wrong_secret.call("GET", "/trainingjobs").status_code == 403
    entry = newest(operator)
    assert (entry["User"], entry["AccessKeyId"]) == ("-", bob.info.access_key_id)
    assert (entry["Path"], entry["Status"]) == ("/api/v1/trainingjobs", 403)

    unknown = Client(replace(bob.info, access_key_id="a-secret-by-mistake"))
    assert unknown.call("GET", "/models").status_code == 403
    entry = newest(operator)
    assert (entry["User"], entry["AccessKeyId"], entry["Path"]) == ("-", "", "/api/v1/models")
    # What does not try to sign in is none.
    ask_as_browser(port_of(operator), "GET", "/api/v1/runs", **headers_of_page(port_of(operator)))
    assert newest(operator)["Number"] == entry["Number"]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path / "data", ScriptedExecutor()) as client:
        yield client


def test_a_flood_of_failed_sign_ins_does_not_fill_the_log(other: Client) -> None:
    wrong = Client(replace(other.info, access_key_secret="a-wrong-one"))
    for _ in range(80):
        assert wrong.call("GET", "/trainingjobs").status_code == 403
    entries = other.get("/audit", PageSize="100")["Entries"]
    assert 60 <= len(entries) <= 62
    assert {one["User"] for one in entries} == {"-"}


def test_a_number_that_no_database_holds_is_refused(operator: Client) -> None:
    for number in (1 << 31, 1 << 63):
        assert operator.call("GET", "/audit", Before=str(number)).status_code == 400
