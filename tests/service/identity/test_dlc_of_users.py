"""Jobs of DLC have the audit log, the quotas and the limits of all jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pai_sdk._service.settings import ForeignCloud
from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user
from tests.service.services import Client


def test_requests_are_in_the_audit_log(operator: Client) -> None:
    alice = DlcClient(user(operator, "alice").info)
    job_id = alice.create(dlc_body())
    ids = {"job_id": job_id}
    alice.do("UpdateJob", {"Description": "better"}, ids)
    alice.do("StopJob", ids=ids)
    tags = {"ResourceType": "Job", "ResourceId": [job_id], "Tag": [{"Key": "a", "Value": "1"}]}
    alice.do("TagResources", tags)
    bob = DlcClient(user(operator, "bob").info)
    assert bob.refused("UpdateJob", {"Description": "mine"}, ids)[:2] == (404, "NotFound")
    entries = operator.get("/audit", PageSize="20")["Entries"]
    found = [
        (each["User"], each["Method"], each["Path"], each["Status"], each["CreatedId"])
        for each in entries
        if each["Path"].startswith(("/api/v1/jobs", "/api/v1/tags"))
    ]
    assert found[::-1] == [
        ("alice", "POST", "/api/v1/jobs", 200, job_id),
        ("alice", "PUT", f"/api/v1/jobs/{job_id}", 200, ""),
        ("alice", "POST", f"/api/v1/jobs/{job_id}/stop", 200, ""),
        ("alice", "POST", "/api/v1/tags", 200, ""),
        ("bob", "PUT", f"/api/v1/jobs/{job_id}", 404, ""),
    ]


def test_quotas_of_users_count(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), slots=1) as operator:
        alice = DlcClient(user(operator, "alice").info)
        assert operator.call("PUT", "/users/alice/quota", body={"QueuedJobs": 1}).status_code == 200
        alice.until(alice.create(dlc_body()), "Running")
        alice.create(dlc_body())
        assert alice.refused("CreateJob", dlc_body())[:2] == (400, "UserQuotaExceeded")


def test_too_many_requests_of_a_key_are_refused(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), requests_per_s=0.01) as operator:
        dlc = DlcClient(operator.info)
        codes = {dlc.call("POST", "/api/v1/jobs", dlc_body()).status_code for _ in range(8)}
        assert codes == {200, 429}


def test_a_create_that_is_delivered_twice_makes_one_job(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), foreign=ForeignCloud(doubled=1)) as operator:
        dlc = DlcClient(operator.info)
        assert dlc.refused("CreateJob", dlc_body())[:2] == (403, "SignatureNonceUsed")
        assert dlc.do("ListJobs")["TotalCount"] == 1
