"""Registered models on the service: names, versions, specs and labels, as the wire has them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.service.services import Client
from tests.service.test_algorithms import refusal

SPEC: dict[str, Any] = {"AlgorithmName": "digits", "HyperParameters": [{"Name": "lr", "Value": "0.1"}]}
FILES = "oss://pai-local/models/digits/"


def registered(client: Client, *versions: dict[str, Any], **fields: Any) -> tuple[str, str]:
    """Name and id of a new model."""
    name = f"model-{uuid.uuid4().hex[:8]}"
    created = client.call("POST", "/models", body={"ModelName": name, **fields})
    assert created.status_code == 200, created.text
    model_id = created.json()["ModelId"]
    for version in versions:
        add_version(client, model_id, **version)
    return name, model_id


def add_version(client: Client, model_id: str, **fields: Any) -> str:
    answer = client.call("POST", f"/models/{model_id}/versions", body={"Uri": FILES, **fields})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["VersionName"])


def names(listed: dict[str, Any]) -> list[str]:
    return [model["ModelName"] for model in listed["Models"]]


def test_a_model_from_its_creation_to_its_end(service: Client) -> None:
    labels = [{"Key": "team", "Value": "search"}]
    name, model_id = registered(
        service,
        {"VersionName": "v1", "TrainingSpec": SPEC, "Labels": labels, "FrameworkType": "PyTorch"},
        Task="classification",
        Labels=labels,
        ExtraInfo={"from": "test"},
    )
    shown = service.get(f"/models/{model_id}")
    assert (shown["ModelName"], shown["WorkspaceId"], shown["Task"]) == (name, "1", "classification")
    assert (shown["Labels"], shown["ExtraInfo"]) == (labels, {"from": "test"})
    assert shown["LatestVersion"]["TrainingSpec"] == SPEC
    version = service.get(f"/models/{model_id}/versions/v1")
    assert (version["Uri"], version["TrainingSpec"], version["Labels"]) == (FILES, SPEC, labels)
    assert version["FrameworkType"] == "PyTorch"
    changed = {"ModelDescription": "of digits", "Task": "regression"}
    assert service.call("PUT", f"/models/{model_id}", body=changed).status_code == 200
    assert changed.items() <= service.get(f"/models/{model_id}").items()
    other = {"TrainingSpec": {"AlgorithmName": "other"}, "ApprovalStatus": "Approved"}
    assert service.call("PUT", f"/models/{model_id}/versions/v1", body=other).status_code == 200
    version = service.get(f"/models/{model_id}/versions/v1")
    assert {**other, "Uri": FILES}.items() <= version.items()
    assert service.call("DELETE", f"/models/{model_id}/versions/v1").status_code == 200
    assert service.get(f"/models/{model_id}/versions")["TotalCount"] == 0
    assert "LatestVersion" not in service.get(f"/models/{model_id}")
    assert service.call("DELETE", f"/models/{model_id}").status_code == 200
    for path in ("", "/versions", "/versions/v1"):
        assert refusal(service, "GET", f"/models/{model_id}{path}") == (404, "MODEL_NOT_FOUND")


def test_versions_count_when_they_are_not_named(service: Client) -> None:
    _, model_id = registered(service)
    assert [add_version(service, model_id) for _ in range(2)] == ["0.1.0", "0.2.0"]
    assert add_version(service, model_id, VersionName="1.9.4") == "1.9.4"
    assert add_version(service, model_id, VersionName="final") == "final"
    assert add_version(service, model_id) == "1.10.0"
    assert add_version(service, model_id) == "1.11.0"  # by number: as text, 1.9.4 is the highest
    listed = service.get(f"/models/{model_id}/versions", PageSize=2, PageNumber=2)
    assert (listed["TotalCount"], [v["VersionName"] for v in listed["Versions"]]) == (6, ["final", "1.9.4"])
    found = service.get(f"/models/{model_id}/versions", VersionName="final")
    assert [v["VersionName"] for v in found["Versions"]] == ["final"]


def test_a_list_is_filtered_and_paged(service: Client) -> None:
    name, _ = registered(service, {"VersionName": "a"}, {"VersionName": "b"}, Domain="vision")
    longer = f"{name}-large"
    service.call("POST", "/models", body={"ModelName": longer, "Labels": [{"Key": "k.a", "Value": "it's"}]})
    assert names(service.get("/models", ModelName=name)) == [longer, name]
    assert names(service.get("/models", ModelName=name, Order="ASC", PageSize=1)) == [name]
    exact = service.get("/models", ModelName=f'"{name}"')
    assert (names(exact), exact["TotalCount"]) == ([name], 1)
    assert exact["Models"][0]["LatestVersion"]["VersionName"] == "b"
    assert names(service.get("/models", ModelName=name, Domain="vision")) == [name]
    assert names(service.get("/models", Label="k.a=it's", ModelName=name)) == [longer]
    assert names(service.get("/models", Label="k.a=no", ModelName=name)) == []
    assert service.get("/models", WorkspaceId="777")["TotalCount"] == 0
    assert service.get("/models", Provider="pai")["TotalCount"] == 0


def test_labels_are_added_replaced_and_deleted(service: Client) -> None:
    _, model_id = registered(service, {"VersionName": "v1"})
    for path in (f"/models/{model_id}", f"/models/{model_id}/versions/v1"):
        for labels in ({"a": "1", "b": "2"}, {"a": "3"}):
            body = {"Labels": [{"Key": key, "Value": value} for key, value in labels.items()]}
            assert service.call("POST", f"{path}/labels", body=body).status_code == 200
        assert service.call("DELETE", f"{path}/labels", LabelKeys="b,none").status_code == 200
        assert service.get(path)["Labels"] == [{"Key": "a", "Value": "3"}]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"ModelName": "a/b"}, 400),
        ({"ModelName": "x" * 128}, 400),
        ({"ModelName": "ok", "Unknown": 1}, 400),
        ({"ModelName": "ok", "Labels": [{"Key": 'a"b', "Value": ""}]}, 400),
        ({"ModelName": "ok", "WorkspaceId": "777"}, 404),
    ],
)
def test_what_is_not_usable_is_refused(service: Client, body: dict[str, Any], status: int) -> None:
    assert refusal(service, "POST", "/models", body)[0] == status


def test_names_are_unique(service: Client) -> None:
    name, model_id = registered(service, {"VersionName": "v1"})
    assert refusal(service, "POST", "/models", {"ModelName": name}) == (409, "MODEL_ALREADY_EXISTS")
    again = {"Uri": FILES, "VersionName": "v1"}
    conflict = (409, "MODEL_VERSION_ALREADY_EXISTS")
    assert refusal(service, "POST", f"/models/{model_id}/versions", again) == conflict
    assert refusal(service, "POST", f"/models/{model_id}/versions", {"VersionName": "v2"})[0] == 400
    assert refusal(service, "GET", f"/models/{model_id}/versions/v9") == (404, "MODEL_VERSION_NOT_FOUND")
