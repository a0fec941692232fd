"""Workspaces and their members: what is in one is seen by its members."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pai_sdk import Processor, Session
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.workspaces import right_of_roles
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from pai_sdk.errors import ApiError, NotFoundError
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body, session_on


@pytest.fixture
def operator(start: Callable[..., Any]) -> Iterator[Client]:
    with start(ScriptedExecutor()) as client:
        yield client


def workspace(operator: Client, name: str, **roles: str) -> str:
    """A new workspace with these members, who are in no other one."""
    body = {"WorkspaceName": name, "Description": "a team", "EnvTypes": ["prod"]}
    answer = operator.call("POST", "/workspaces", body=body)
    assert answer.status_code == 200, answer.text
    workspace_id = str(answer.json()["WorkspaceId"])
    members = [{"UserId": name, "Roles": [f"PAI.{role}"]} for name, role in roles.items()]
    answer = operator.call("POST", f"/workspaces/{workspace_id}/members", body={"Members": members})
    assert answer.status_code == 200, answer.text
    operator.call("DELETE", "/workspaces/1/members", MemberIds=",".join(roles))
    return workspace_id


def test_what_is_in_a_workspace_is_seen_by_its_members_only(operator: Client) -> None:
    alice, bob, carol = (user(operator, name) for name in ("alice", "bob", "carol"))
    first = workspace(operator, "first", alice="AlgoDeveloper", carol="AlgoDeveloper")
    second = workspace(operator, "second", bob="AlgoDeveloper")
    public = {"Labels": [{"Key": ACCESSIBILITY_LABEL, "Value": "PUBLIC"}]}
    job_id = alice.create(job_body(WorkspaceId=first, **public))
    model = alice.call("POST", "/models", body={"ModelName": "m", "WorkspaceId": first}).json()["ModelId"]
    algorithm = {"AlgorithmName": "a", "WorkspaceId": first}
    algorithm_id = alice.call("POST", "/algorithms", body=algorithm).json()["AlgorithmId"]
    experiment = {"Name": "e", "WorkspaceId": first}
    experiment_id = alice.call("POST", "/experiments", body=experiment).json()["ExperimentId"]
    paths = [f"/trainingjobs/{job_id}", f"/models/{model}", f"/algorithms/{algorithm_id}"]
    paths += [f"/experiments/{experiment_id}", f"/workspaces/{first}", f"/workspaces/{first}/members"]
    for path in paths:
        assert carol.call("GET", path).status_code == 200, path
        refused = bob.call("GET", path)
        assert refused.status_code == 404, (path, refused.text)
        assert bob.call("DELETE", path).status_code in (400, 403, 404, 405), path
    for path, items in (("/models", "Models"), ("/algorithms", "Algorithms"), ("/experiments", "Experiments")):
        assert (carol.get(path)["TotalCount"], bob.get(path)["TotalCount"]) == (1, 0), path
        assert bob.get(path, WorkspaceId=first)[items] == []
    assert [one["WorkspaceId"] for one in bob.get("/workspaces")["Workspaces"]] == [second]
    assert bob.get("/defaultWorkspaces")["WorkspaceId"] == second
    assert bob.get("/trainingjobs")["TotalCount"] == 0


def test_a_job_goes_into_a_workspace_of_its_user_only(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    first = workspace(operator, "first", alice="AlgoDeveloper", bob="WorkspaceGuest")
    job_id = alice.create(job_body(WorkspaceId=first))
    assert alice.get(f"/trainingjobs/{job_id}")["WorkspaceId"] == first
    for given, status in ((first, 403), ("1", 404), ("99", 404), (None, 404)):
        answer = bob.call("POST", "/trainingjobs", body=job_body(**({"WorkspaceId": given} if given else {})))
        assert answer.status_code == status, (given, answer.text)
    assert "There is no workspace '1' here, only '2'" in bob.call("GET", "/workspaces/1").json()["Message"]


def test_an_administrator_of_a_workspace_manages_its_members_and_jobs(operator: Client) -> None:
    alice, bob, carol = (user(operator, name) for name in ("alice", "bob", "carol"))
    first = workspace(operator, "first", alice="WorkspaceAdmin", bob="AlgoDeveloper")
    theirs, elsewhere = bob.create(job_body(WorkspaceId=first)), carol.create(job_body())
    assert alice.call("PUT", f"/trainingjobs/{theirs}/stop").status_code == 200
    assert alice.call("GET", f"/trainingjobs/{elsewhere}").status_code == 404
    new = {"Members": [{"UserId": "carol", "Roles": ["PAI.WorkspaceGuest"]}]}
    assert bob.call("POST", f"/workspaces/{first}/members", body=new).status_code == 403
    assert alice.call("POST", f"/workspaces/{first}/members", body=new).status_code == 200
    assert alice.call("POST", "/workspaces/1/members", body=new).status_code == 404
    members = carol.get(f"/workspaces/{first}/members")["Members"]
    assert [(one["MemberId"], *one["Roles"]) for one in members] == [
        ("alice", "PAI.WorkspaceAdmin"),
        ("bob", "PAI.AlgoDeveloper"),
        ("carol", "PAI.WorkspaceGuest"),
    ]
    alice.call("DELETE", f"/workspaces/{first}/members", MemberIds="carol")
    assert carol.call("GET", f"/workspaces/{first}").status_code == 404
    assert alice.call("POST", "/workspaces", body={"WorkspaceName": "mine"}).status_code == 403


def test_wrong_members_and_workspaces_are_refused(operator: Client) -> None:
    user(operator, "alice")
    for name in ("", "a b", "1st", "x" * 64, "a/../b"):
        assert operator.call("POST", "/workspaces", body={"WorkspaceName": name}).status_code == 400, name
    first = workspace(operator, "first", alice="AlgoDeveloper")
    assert operator.call("POST", "/workspaces", body={"WorkspaceName": "first"}).status_code == 409
    for member, status in (
        ({"UserId": "alice", "Roles": ["PAI.Emperor"]}, 400),
        ({"UserId": "alice", "Roles": []}, 400),
        ({"UserId": "nobody", "Roles": ["PAI.AlgoDeveloper"]}, 404),
    ):
        answer = operator.call("POST", f"/workspaces/{first}/members", body={"Members": [member]})
        assert answer.status_code == status, answer.text
    assert operator.call("DELETE", "/workspaces/1").status_code == 409
    job_id = operator.create(job_body(WorkspaceId=first))
    assert "jobs" in operator.call("DELETE", f"/workspaces/{first}").json()["Message"]
    operator.call("PUT", f"/trainingjobs/{job_id}/stop")
    operator.until(job_id)
    operator.call("DELETE", f"/trainingjobs/{job_id}")
    assert operator.call("DELETE", f"/workspaces/{first}").status_code == 200


def test_of_several_roles_the_highest_right_counts() -> None:
    assert right_of_roles(["PAI.WorkspaceGuest", "PAI.AlgoDeveloper"]) == "submit"


def test_a_right_in_a_workspace_needs_the_right_of_the_key_too() -> None:
    alice = Principal("alice", "LTAIalice", "submit", {"1": "read", "2": "admin"})
    assert (alice.has_right("submit"), alice.has_right_in("1", "submit")) == (True, False)
    assert alice.has_right_in("2", "admin")
    assert not Principal("bob", "LTAIbob", "read", {"2": "admin"}).has_right_in("2", "admin")
    assert Principal.operator("LTAI").has_right_in("1", "submit")


def test_who_loses_a_right_loses_what_came_with_it(operator: Client) -> None:
    alice, bob = user(operator, "alice", "admin"), user(operator, "bob")
    theirs = bob.create(job_body())
    assert alice.get(f"/trainingjobs/{theirs}")["TrainingJobId"] == theirs
    operator.call("PUT", "/users/alice", body={"Right": "submit"})
    assert alice.call("GET", f"/trainingjobs/{theirs}").status_code == 404
    assert alice.create(job_body())


def test_a_session_in_a_workspace(operator: Client) -> None:
    alice = user(operator, "alice")
    first = workspace(operator, "first", alice="AlgoDeveloper")
    session = session_on(replace(alice.info, workspace_id=first))
    job = Processor("none", "true", instance_type="ecs.c6.large", session=session).run(wait=False)
    assert alice.get(f"/trainingjobs/{job.id}")["WorkspaceId"] == first
    assert [one.workspace_id for one in session.workspaces.list()] == [first]
    wrong: Session = session_on(replace(alice.info, workspace_id="777"))
    with pytest.raises(NotFoundError, match="no workspace '777' here, only '2'"):
        Processor("none", "true", instance_type="ecs.c6.large", session=wrong).run(wait=False)


def test_a_session_manages_workspaces(operator: Client) -> None:
    user(operator, "alice")
    workspaces = session_on(operator.info).workspaces
    first = workspaces.create("first")
    assert first.workspace_id == "2"
    workspaces.add_member("2", "alice", role="PAI.AlgoDeveloper")
    assert [(one.member_id, one.roles) for one in workspaces.members("2")] == [("alice", ["PAI.AlgoDeveloper"])]
    workspaces.remove_member("2", "alice")
    assert list(workspaces.members("2")) == []
    workspaces.delete("2")
    with pytest.raises(ApiError):
        workspaces.get("2")
