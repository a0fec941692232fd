"""Experiments on the service: all actions of the wire, and the jobs that belong to one."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.service.services import Client, job_body

LABEL_FIELDS = {"ExperimentId", "Key", "Value", "GmtCreateTime", "GmtModifiedTime"}
FIELDS = {
    *("RequestId", "ExperimentId", "Name", "WorkspaceId", "Accessibility", "ArtifactUri", "TensorboardLogUri"),
    *("OwnerId", "UserId", "GmtCreateTime", "GmtModifiedTime", "Labels"),
}


def created(client: Client, name: str | None = None, **fields: Any) -> tuple[str, str]:
    """Name and id of a new experiment."""
    name = name or f"exp-{uuid.uuid4().hex[:8]}"
    answer = client.call("POST", "/experiments", body={"Name": name, "WorkspaceId": "1", **fields})
    assert answer.status_code == 200, answer.text
    return name, answer.json()["ExperimentId"]


def refusal(client: Client, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, str]:
    answer = client.call(method, path, body=body, **query)
    assert answer.json().keys() == {"RequestId", "Code", "Message", "HostId"}
    return answer.status_code, answer.json()["Code"]


def names(client: Client, **query: Any) -> list[str]:
    return [experiment["Name"] for experiment in client.get("/experiments", **query)["Experiments"]]


def test_an_experiment_from_its_creation_to_its_end(service: Client) -> None:
    name, experiment = created(service, ArtifactUri="oss://pai-local/digits/", Labels=[{"Key": "a", "Value": "b"}])
    shown = service.get(f"/experiments/{experiment}")
    assert shown.keys() == FIELDS
    assert (shown["Name"], shown["WorkspaceId"], shown["Accessibility"]) == (name, "1", "PRIVATE")
    assert shown["ArtifactUri"] == "oss://pai-local/digits/"
    assert shown["TensorboardLogUri"] == "oss://pai-local/digits/tensorboard/"
    assert [label.keys() for label in shown["Labels"]] == [LABEL_FIELDS]
    changed = {"Name": f"{name}-2", "Accessibility": "PUBLIC"}
    assert service.call("PUT", f"/experiments/{experiment}", body=changed).status_code == 200
    assert changed.items() <= service.get(f"/experiments/{experiment}").items()
    assert service.call("DELETE", f"/experiments/{experiment}").status_code == 200
    for method, path, body in (
        ("GET", "", None),
        ("PUT", "", changed),
        ("DELETE", "", None),
        ("POST", "/labels", {"Labels": []}),
        ("DELETE", "/labels/a", None),
    ):
        found = refusal(service, method, f"/experiments/{experiment}{path}", body)
        assert found == (404, "EXPERIMENT_NOT_FOUND")


def test_artifacts_have_a_place_when_none_is_given(service: Client) -> None:
    _, experiment = created(service)
    place = service.get(f"/experiments/{experiment}")["ArtifactUri"]
    assert place == f"oss://pai-local/pai/experiments/{experiment}/"


def test_labels_are_set_replaced_and_deleted(service: Client) -> None:
    _, experiment = created(service)
    path = f"/experiments/{experiment}/labels"
    for labels in ({"a": "1", "a/b c": "2"}, {"a": "3"}):
        body = {"Labels": [{"Key": key, "Value": value} for key, value in labels.items()]}
        assert service.call("POST", path, body=body).status_code == 200

    def known() -> dict[str, str]:
        return {each["Key"]: each["Value"] for each in service.get(f"/experiments/{experiment}")["Labels"]}

    assert known() == {"a": "3", "a/b c": "2"}
    for _ in range(2):
        assert service.call("DELETE", f"{path}/a%2Fb%20c").status_code == 200
    assert known() == {"a": "3"}


def test_a_list_is_filtered_sorted_and_paged(service: Client) -> None:
    mark = f"list-{uuid.uuid4().hex[:8]}"
    for letter, team in (("b", "x"), ("c", "y"), ("a", "x")):
        created(
            service, f"{mark}-{letter}", Labels=[{"Key": "team", "Value": team}, {"Key": "mark", "Value": mark}]
        )
    newest_first = [f"{mark}-{letter}" for letter in "acb"]
    assert names(service, Name=mark) == newest_first
    assert names(service, Name=mark, Order="ASC") == newest_first[::-1]
    assert names(service, Name=mark, SortBy="Name", Order="ASC") == sorted(newest_first)
    assert names(service, Name=mark, OrderBy="Name DESC,GmtCreateTime") == sorted(newest_first, reverse=True)
    assert names(service, Labels=f"team=x,mark={mark}") == [f"{mark}-a", f"{mark}-b"]
    assert names(service, Name=f"{mark}-a", Options='{"match_name_exactly":"true"}') == [f"{mark}-a"]
    assert names(service, Name=mark, Options='{"match_name_exactly":"true"}') == []
    assert names(service, Name=mark, WorkspaceId="777") == []
    assert names(service, Name=mark, PageSize=2, PageNumber=2) == newest_first[2:]
    first = service.get("/experiments", Name=mark, MaxResults=2)
    assert (first["TotalCount"], first["NextPageToken"], first["requestId"]) == (3, 2, first["RequestId"])
    last = service.get("/experiments", Name=mark, MaxResults=2, PageToken=2)
    assert ([e["Name"] for e in last["Experiments"]], "NextPageToken" in last) == (newest_first[2:], False)


def test_a_name_is_taken_once_in_its_workspace(service: Client) -> None:
    name, _ = created(service)
    other, experiment = created(service)
    body = {"Name": name, "WorkspaceId": "1"}
    assert refusal(service, "POST", "/experiments", body) == (409, "EXPERIMENT_ALREADY_EXISTS")
    assert refusal(service, "PUT", f"/experiments/{experiment}", {"Name": name})[0] == 409
    assert service.call("PUT", f"/experiments/{experiment}", body={"Name": other}).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"Name": None},
        {"Name": ""},
        {"Name": "1-digit"},
        {"Name": "a" * 64},
        {"Name": "with space"},
        {"Accessibility": "SECRET"},
        {"ArtifactUri": "nas://somewhere/"},
        {"ArtifactUri": "oss://pai-local/" + "x" * 5000},
        {"Labels": [{"Key": "a=b", "Value": ""}]},
        {"Labels": [{"Key": "a", "Value": "ü" * 65}]},
        {"Labels": [{"Key": "", "Value": "x"}]},
        {"Nonsense": 1},
    ],
    ids=repr,
)
def test_what_cannot_be_an_experiment_is_refused(service: Client, fields: dict[str, Any]) -> None:
    body = {"Name": "usable", "WorkspaceId": "1", **fields}
    assert refusal(service, "POST", "/experiments", body) == (400, "InvalidParameter")


@pytest.mark.parametrize("query", [{"Labels": "a"}, {"Options": "{"}, {"Options": '{"x":1}'}, {"OrderBy": "Size"}])
def test_a_filter_that_is_not_known_is_refused(service: Client, query: dict[str, str]) -> None:
    assert refusal(service, "GET", "/experiments", **query) == (400, "InvalidParameter")


def test_what_is_unset_may_be_null_or_empty(service: Client) -> None:
    _, experiment = created(service, ArtifactUri="", Accessibility=None, Labels=[])
    assert service.get(f"/experiments/{experiment}")["Accessibility"] == "PRIVATE"


def test_another_workspace_is_not_here(service: Client) -> None:
    body = {"Name": "elsewhere", "WorkspaceId": "777"}
    assert refusal(service, "POST", "/experiments", body) == (404, "WORKSPACE_NOT_FOUND")


def test_a_job_shows_the_name_of_its_experiment(service: Client) -> None:
    name, experiment = created(service)
    job = service.create(job_body(ExperimentConfig={"ExperimentId": experiment}))
    wanted = {"ExperimentId": experiment, "ExperimentName": name}
    assert service.get(f"/trainingjobs/{job}")["ExperimentConfig"] == wanted
    listed = service.get("/trainingjobs", TrainingJobId=job)["TrainingJobs"]
    assert [each["ExperimentConfig"] for each in listed] == [wanted]
    assert service.call("DELETE", f"/experiments/{experiment}").status_code == 200
    assert service.get(f"/trainingjobs/{job}")["ExperimentConfig"] == {"ExperimentId": experiment}


def test_experiments_outlive_the_service(start: Any) -> None:
    with start() as client:
        name, experiment = created(client)
    with start() as client:
        assert client.get(f"/experiments/{experiment}")["Name"] == name
