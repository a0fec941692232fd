"""Users with keys of their own: what each can see and do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import oss2
import pytest

from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL, SUBMISSION_LABEL
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body
from tests.service.web.browsing import Answer, ask_as_browser, sign_in
from tests.support.waiting import until


def user(operator: Client, name: str, right: str = "submit") -> Client:
    """A new user, with a key and a client that signs with it."""
    answer = operator.call("POST", "/users", body={"Name": name, "Right": right})
    assert answer.status_code == 200, answer.text
    return with_new_key(operator, name)


def with_new_key(operator: Client, name: str, **body: Any) -> Client:
    """A client that signs with a new key of a user."""
    key = operator.call("POST", f"/users/{name}/keys", body=body or None).json()
    info = replace(
        operator.info,
        access_key_id=key["AccessKeyId"],
        access_key_secret=key["AccessKeySecret"],
        bucket=operator.get(f"/users/{name}")["Bucket"],
    )
    return Client(info)


@pytest.fixture
def operator(start: Callable[..., Any]) -> Iterator[Client]:
    with start(ScriptedExecutor()) as client:
        yield client


def test_a_user_sees_their_own_jobs_only(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    mine, theirs = alice.create(job_body()), bob.create(job_body())
    assert [job["TrainingJobId"] for job in alice.get("/trainingjobs")["TrainingJobs"]] == [mine]
    assert alice.get("/trainingjobs")["TotalCount"] == 1
    assert operator.get("/trainingjobs")["TotalCount"] == 2
    for path in (f"/trainingjobs/{theirs}", f"/trainingjobs/{theirs}/logs", f"/runs/{theirs}/job"):
        missing = alice.call("GET", path.replace(theirs, "train000000000000"))
        refused = alice.call("GET", path)
        assert (refused.status_code, refused.json()["Code"]) == (404, missing.json()["Code"])
        assert operator.call("GET", path).status_code == 200
    assert alice.call("PUT", f"/trainingjobs/{theirs}/stop").status_code == 404
    assert alice.call("DELETE", f"/trainingjobs/{theirs}").status_code == 404
    changes = alice.call("POST", "/trainingjobs/changes", body={"Known": {mine: "", theirs: ""}}).json()
    assert changes["Missing"] == [theirs]
    until(lambda: alice.get("/runs")["total"] and operator.get("/runs")["total"] == 2, "the runs of both")
    listed = alice.get("/runs", filter="status=Failed")
    assert (listed["runs"], listed["all"], sum(listed["statuses"].values())) == ([], 1, 1)
    assert [(run["id"], run["owner"]) for run in alice.get("/runs")["runs"]] == [(mine, "alice")]
    assert alice.get("/runs", filter="owner=bob")["total"] == 0
    assert [run["id"] for run in operator.get("/runs", filter="owner=bob")["runs"]] == [theirs]


def test_a_submission_of_someone_else_is_not_found_by_its_label(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    body = job_body(Labels=[{"Key": SUBMISSION_LABEL, "Value": "guessed"}])
    assert alice.create(body) != bob.create(body)


def test_a_key_that_may_read_changes_nothing(operator: Client) -> None:
    alice = user(operator, "alice")
    job_id = alice.create(job_body())
    operator.call("PUT", "/users/alice", body={"Right": "read"})
    assert alice.get(f"/trainingjobs/{job_id}")["TrainingJobId"] == job_id
    for method, path in (("POST", "/trainingjobs"), ("PUT", f"/trainingjobs/{job_id}/stop"), ("POST", "/models")):
        answer = alice.call(method, path, body=job_body())
        assert (answer.status_code, answer.json()["Code"]) == (403, "Forbidden.NoPermission")
    with pytest.raises(oss2.exceptions.AccessDenied):
        alice.bucket().put_object("a", b"x")
    assert alice.bucket().list_objects().object_list == []


def test_only_administrators_manage_users(operator: Client) -> None:
    alice, carol = user(operator, "alice"), user(operator, "carol", "admin")
    assert alice.call("GET", "/users").status_code == 403
    assert alice.call("POST", "/users/carol/keys").status_code == 403
    assert [one["Name"] for one in carol.get("/users")["Users"]] == ["alice", "carol"]


def test_a_revoked_key_is_worth_nothing_at_once(operator: Client) -> None:
    alice = user(operator, "alice")
    alice.get("/trainingjobs")
    operator.call("DELETE", f"/users/alice/keys/{alice.info.access_key_id}")
    answer = alice.call("GET", "/trainingjobs")
    assert (answer.status_code, answer.json()["Code"]) == (403, "InvalidAccessKeyId.NotFound")
    with pytest.raises(oss2.exceptions.ServerError) as refused:
        alice.bucket().get_object("a")
    assert refused.value.code == "InvalidAccessKeyId"


def test_a_bucket_opens_for_its_owner_only(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    alice.bucket().put_object("secret", b"x")
    other = oss2.Bucket(
        oss2.AuthV4(bob.info.access_key_id, bob.info.access_key_secret),
        bob.info.oss_endpoint,
        alice.info.bucket,
        region=bob.info.region_id,
    )
    for action in (
        lambda: other.get_object("secret").read(),
        lambda: other.put_object("other", b"x"),
        lambda: other.list_objects(),
        lambda: other.delete_object("secret"),
        lambda: other.batch_delete_objects(["secret"]),
        lambda: other.create_bucket(),
        lambda: other.delete_bucket(),
        lambda: bob.bucket().copy_object(alice.info.bucket, "secret", "mine"),
    ):
        with pytest.raises(oss2.exceptions.ServerError) as refused:
            action()
        assert refused.value.status in (403, 409)
    service = oss2.Service(
        oss2.AuthV4(bob.info.access_key_id, bob.info.access_key_secret),
        bob.info.oss_endpoint,
        region=bob.info.region_id,
    )
    assert [bucket.name for bucket in service.list_buckets().buckets] == [bob.info.bucket]
    assert alice.bucket().get_object("secret").read() == b"x"


def test_a_job_cannot_read_what_its_owner_cannot(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    alice.bucket().put_object("secret/file", b"x")
    stolen = {"Name": "train", "InputUri": f"oss://{alice.info.bucket}/secret/"}
    answer = bob.call("POST", "/trainingjobs", body=job_body(InputChannels=[stolen]))
    assert answer.status_code == 400
    assert "there is no bucket" in answer.json()["Message"]
    spoilt = {"Name": "model", "OutputUri": f"oss://{alice.info.bucket}/secret/"}
    assert bob.call("POST", "/trainingjobs", body=job_body(OutputChannels=[spoilt])).status_code == 400


def test_the_page_shows_what_its_user_can_see(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    mine, theirs = alice.create(job_body()), bob.create(job_body())
    assert alice.call("POST", "/pagelinks", body={"JobId": theirs}).status_code == 404
    port = urlsplit(alice.info.endpoint).port or 0
    page = sign_in(port, alice.call("POST", "/pagelinks").json()["Url"])

    def ask(path: str) -> Answer:
        return ask_as_browser(port, "GET", f"/api/v1{path}", **page)

    until(lambda: operator.get("/runs")["total"] == 2, "the runs of both")
    until(lambda: ask("/runs").json["runs"], "the run of alice")
    assert [run["id"] for run in ask("/runs").json["runs"]] == [mine]
    assert ask(f"/runs/{theirs}/job").status == 404
    operator.call("DELETE", f"/users/alice/keys/{alice.info.access_key_id}")
    assert ask("/runs").status == 401


def test_a_public_job_is_seen_by_the_members_of_its_workspace_and_changed_by_its_owner(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    job_id = alice.create(job_body(Labels=[{"Key": ACCESSIBILITY_LABEL, "Value": "PUBLIC"}]))
    assert bob.get(f"/trainingjobs/{job_id}")["TrainingJobId"] == job_id
    assert bob.get("/trainingjobs")["TotalCount"] == 1
    assert bob.call("PUT", f"/trainingjobs/{job_id}/stop").status_code == 403
    assert bob.call("DELETE", f"/trainingjobs/{job_id}/labels", Keys=ACCESSIBILITY_LABEL).status_code == 403
    alice.call("DELETE", f"/trainingjobs/{job_id}/labels", Keys=ACCESSIBILITY_LABEL)
    assert bob.call("GET", f"/trainingjobs/{job_id}").status_code == 404
    wrong = alice.call(
        "POST", "/trainingjobs", body=job_body(Labels=[{"Key": ACCESSIBILITY_LABEL, "Value": "all"}])
    )
    assert wrong.status_code == 400


def test_the_audit_log_says_who_changed_what_and_who_was_refused(operator: Client) -> None:
    alice = user(operator, "alice")
    job_id = alice.create(job_body())
    alice.get(f"/trainingjobs/{job_id}")
    alice.call("POST", "/users", body={"Name": "mallory"})
    entries = operator.get("/audit")["Entries"]
    shown = [(one["User"], one["Method"], one["Path"], one["Status"]) for one in entries]
    assert shown == [
        ("alice", "POST", "/api/v1/users", 403),
        ("alice", "POST", "/api/v1/trainingjobs", 200),
        ("", "POST", "/api/v1/users/alice/keys", 200),
        ("", "POST", "/api/v1/users", 200),
    ]
    assert alice.info.access_key_secret not in str(entries)
    assert [one["Status"] for one in operator.get("/audit", User="alice", PageSize=1)["Entries"]] == [403]
    assert alice.call("GET", "/audit").status_code == 403
