"""Registered algorithms on the service, and the jobs that name them."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from tests.service.services import Client, job_body
from tests.support.waiting import PATIENCE_S

SPEC: dict[str, Any] = {
    "Image": "none",
    "Command": ["sh", "-c", "echo lr=$PAI_HPS_LR args=$PAI_USER_ARGS"],
    "HyperParameters": [{"Name": "lr", "Type": "Float", "DefaultValue": "0.1", "Range": {"Maximum": "1"}}],
}


def registered(client: Client, *versions: str, spec: dict[str, Any] = SPEC) -> tuple[str, str]:
    """Name and id of a new algorithm."""
    name = f"algorithm-{uuid.uuid4().hex[:8]}"
    created = client.call("POST", "/algorithms", body={"AlgorithmName": name})
    assert created.status_code == 200, created.text
    algorithm_id = created.json()["AlgorithmId"]
    for version in versions:
        add_version(client, algorithm_id, version, spec)
    return name, algorithm_id


def add_version(client: Client, algorithm_id: str, version: str, spec: dict[str, Any]) -> None:
    body = {"AlgorithmSpec": json.dumps(spec)}
    answer = client.call("POST", f"/algorithms/{algorithm_id}/versions/{version}", body=body)
    assert answer.status_code == 200, answer.text


def by_name(name: str, **fields: Any) -> dict[str, Any]:
    body = job_body(AlgorithmName=name, **fields)
    del body["AlgorithmSpec"]
    return body


def refusal(client: Client, method: str, path: str, body: Any = None) -> tuple[int, str]:
    answer = client.call(method, path, body=body)
    assert {"RequestId", "Code", "Message"} <= answer.json().keys()
    return answer.status_code, answer.json()["Code"]


def test_an_algorithm_from_its_creation_to_its_end(service: Client) -> None:
    name, algorithm_id = registered(service, "v1", "v2")
    shown = service.get(f"/algorithms/{algorithm_id}")
    assert (shown["AlgorithmName"], shown["AlgorithmProvider"], shown["WorkspaceId"]) == (name, "local", "1")
    changed = {"AlgorithmDescription": "of digits", "DisplayName": "Digits"}
    assert service.call("PUT", f"/algorithms/{algorithm_id}", body=changed).status_code == 200
    assert changed.items() <= service.get(f"/algorithms/{algorithm_id}").items()
    listed = service.get(f"/algorithms/{algorithm_id}/versions", PageSize=1, PageNumber=2)
    assert (listed["TotalCount"], [v["AlgorithmVersion"] for v in listed["AlgorithmVersions"]]) == (2, ["v1"])
    version = service.get(f"/algorithms/{algorithm_id}/versions/v1")
    assert SPEC.items() <= version["AlgorithmSpec"].items()
    other = {"AlgorithmSpec": {**SPEC, "Image": "other"}}
    assert service.call("PUT", f"/algorithms/{algorithm_id}/versions/v1", body=other).status_code == 200
    assert service.get(f"/algorithms/{algorithm_id}/versions/v1")["AlgorithmSpec"]["Image"] == "other"
    assert service.call("DELETE", f"/algorithms/{algorithm_id}/versions/v1").status_code == 200
    assert service.get(f"/algorithms/{algorithm_id}/versions")["TotalCount"] == 1
    assert service.call("DELETE", f"/algorithms/{algorithm_id}").status_code == 200
    for path in ("", "/versions", "/versions/v2"):
        assert refusal(service, "GET", f"/algorithms/{algorithm_id}{path}") == (404, "ALGORITHM_NOT_FOUND")


def test_a_list_is_filtered_and_paged(service: Client) -> None:
    name, algorithm_id = registered(service)
    registered(service)
    for query in ({"AlgorithmName": name[:-1]}, {"AlgorithmId": algorithm_id}):
        found = service.get("/algorithms", **query)
        assert [a["AlgorithmId"] for a in found["Algorithms"]] == [algorithm_id]
    assert service.get("/algorithms", AlgorithmProvider="pai")["TotalCount"] == 0
    assert service.get("/algorithms", WorkspaceId="777")["TotalCount"] == 0
    everything = service.get("/algorithms", PageSize=1000)
    paged = [service.get("/algorithms", PageSize=1, PageNumber=n)["Algorithms"] for n in (1, 2)]
    assert [page[0] for page in paged] == everything["Algorithms"][:2]


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"Image": "x"}, "AlgorithmSpec.Command"),
        ({**SPEC, "Imgae": "x"}, "Imgae"),
        ({**SPEC, "Command": []}, "Command"),
        ({**SPEC, "InputChannels": [{"Name": "a"}, {"Name": "a"}]}, "'a' is defined 2 times"),
        ({**SPEC, "MetricDefinitions": [{"Name": "m", "Regex": "("}]}, "regex of 'm' cannot be read"),
        ({**SPEC, "ProgressDefinitions": {"OverallProgress": {"Regex": "x"}}}, "OverallProgress' has no group"),
        ("[", "not JSON"),
        ("[]", "not a JSON object"),
        (None, "AlgorithmSpec"),
        (7, "AlgorithmSpec"),
    ],
)
def test_a_spec_that_no_job_could_run_is_refused(service: Client, spec: Any, complaint: str) -> None:
    _, algorithm_id = registered(service)
    text = spec if spec is None or isinstance(spec, str) else json.dumps(spec)
    answer = service.call("POST", f"/algorithms/{algorithm_id}/versions/v1", body={"AlgorithmSpec": text})
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
    assert complaint in answer.json()["Message"]


def test_what_is_there_already_or_not_at_all_is_told(service: Client) -> None:
    name, algorithm_id = registered(service, "v1")
    version = {"AlgorithmSpec": json.dumps(SPEC)}
    for method, path, body, told in (
        ("POST", "/algorithms", {"AlgorithmName": name}, (409, "ALGORITHM_ALREADY_EXISTS")),
        ("POST", "/algorithms", {"AlgorithmName": "../x"}, (400, "InvalidParameter")),
        ("POST", "/algorithms", {"AlgorithmName": "x", "WorkspaceId": "9"}, (404, "WORKSPACE_NOT_FOUND")),
        ("POST", "/algorithms", {"Name": "x"}, (400, "InvalidParameter")),
        ("POST", f"/algorithms/{algorithm_id}/versions/v1", version, (409, "ALGORITHM_VERSION_ALREADY_EXISTS")),
        ("PUT", f"/algorithms/{algorithm_id}/versions/v9", version, (404, "ALGORITHM_VERSION_NOT_FOUND")),
        ("DELETE", f"/algorithms/{algorithm_id}/versions/v9", None, (404, "ALGORITHM_VERSION_NOT_FOUND")),
        ("POST", "/algorithms/none/versions/v1", version, (404, "ALGORITHM_NOT_FOUND")),
        ("DELETE", "/algorithms/none", None, (404, "ALGORITHM_NOT_FOUND")),
        ("POST", "/trainingjobs", by_name("none"), (404, "ALGORITHM_NOT_FOUND")),
        (
            "POST",
            "/trainingjobs",
            by_name(name, AlgorithmVersion="v9"),
            (404, "ALGORITHM_VERSION_NOT_FOUND"),
        ),
        ("POST", "/trainingjobs", by_name(name, AlgorithmProvider="pai"), (404, "ALGORITHM_NOT_FOUND")),
        ("POST", "/trainingjobs", job_body(AlgorithmName=name), (400, "InvalidParameter")),
    ):
        assert refusal(service, method, path, body) == told, (method, path)


def test_a_job_runs_the_algorithm_as_it_was_when_the_job_was_created(service: Client) -> None:
    name, algorithm_id = registered(service, "v1", "v2")
    job_id = service.create(by_name(name, AlgorithmVersion="v1"))
    service.call("DELETE", f"/algorithms/{algorithm_id}")
    job = service.until(job_id, "Succeed")
    assert (job["AlgorithmName"], job["AlgorithmVersion"], job["AlgorithmProvider"]) == (name, "v1", "local")
    assert (job["AlgorithmId"], job["IsTempAlgo"]) == (algorithm_id, False)
    assert job["AlgorithmSpec"]["Command"] == SPEC["Command"]
    assert job["HyperParameters"] == [{"Name": "lr", "Value": "0.1"}]
    assert service.log(job_id)[-1] == "lr=0.1 args=--lr 0.1"


def test_without_a_version_the_newest_is_run(service: Client) -> None:
    name, _ = registered(service, "v2", "v10", "v1")
    job = service.get(f"/trainingjobs/{service.create(by_name(name))}")
    assert job["AlgorithmVersion"] == "v1"


def test_an_algorithm_without_a_version_runs_nothing(service: Client) -> None:
    name, _ = registered(service)
    assert refusal(service, "POST", "/trainingjobs", by_name(name)) == (404, "ALGORITHM_VERSION_NOT_FOUND")


def test_jobs_are_found_by_their_algorithm(service: Client) -> None:
    name, _ = registered(service, "v1")
    job_id, other = service.create(by_name(name)), service.create(job_body())

    def ids(**query: Any) -> list[str]:
        return [
            job["TrainingJobId"] for job in service.get("/trainingjobs", PageSize=1000, **query)["TrainingJobs"]
        ]

    assert ids(AlgorithmName=name) == [job_id]
    assert ids(AlgorithmName=name, AlgorithmProvider="local", IsTempAlgo="false") == [job_id]
    assert ids(AlgorithmName=name, AlgorithmProvider="pai") == []
    assert job_id in ids(IsTempAlgo="false")
    assert other not in ids(IsTempAlgo="false")
    assert other in ids(IsTempAlgo="true")
    assert job_id not in ids(IsTempAlgo="true")


def test_a_job_that_the_algorithm_does_not_take_is_told_all_that_is_wrong(service: Client) -> None:
    spec = {
        **SPEC,
        "InputChannels": [{"Name": "train", "Required": True}],
        "SupportedInstanceTypes": ["ecs.c6.large"],
        "SupportsDistributedTraining": False,
    }
    name, _ = registered(service, "v1", spec=spec)
    body = by_name(
        name,
        HyperParameters=[{"Name": "lr", "Value": "2"}, {"Name": "rate", "Value": "1"}],
        ComputeResource={"EcsSpec": "ecs.c6", "EcsCount": 2},
    )
    message = service.call("POST", "/trainingjobs", body=body).json()["Message"]
    for complaint in (
        "2 is too large; the maximum is 1",
        "HyperParameters['rate']: the algorithm has no such hyperparameter",
        "ComputeResource.EcsSpec: the algorithm does not run on 'ecs.c6'",
        "ComputeResource.EcsCount: the algorithm runs on one instance",
        "InputChannels: 'train' is required",
    ):
        assert complaint in message
    code = {"LocationType": "oss", "LocationValue": {"Bucket": "pai-local", "Key": "x/"}}
    answer = service.call("POST", "/trainingjobs", body=by_name(name, CodeDir=code))
    assert "takes no other" in answer.json()["Message"]


def test_a_pattern_that_takes_for_ever_holds_nobody_up(service: Client) -> None:
    hostile = [{"Name": "tag", "Range": {"Pattern": r"^(a+)+$"}}]
    name, _ = registered(service, "v1", spec={**SPEC, "HyperParameters": hostile})
    service.create(by_name(name, HyperParameters=[{"Name": "tag", "Value": "a" * 5000 + "!"}]))


def test_a_form_that_holds_no_text_is_refused(service: Client) -> None:
    key = static_credentials(service.info.access_key_id, service.info.access_key_secret)
    for body in (b"AlgorithmName=%ff", b"AlgorithmName=\xff", b"AlgorithmName=a%00b", b"%", b""):
        answer = service.session.post(
            f"{service.info.endpoint}/api/v1/algorithms",
            data=body,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            auth=Acs3Auth(key, "CreateAlgorithm", "2022-01-12"),
            timeout=PATIENCE_S,
        )
        assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")


def test_algorithms_outlive_the_service(start: Any) -> None:
    with start() as client:
        name, algorithm_id = registered(client, "v1")
    with start() as client:
        assert client.get(f"/algorithms/{algorithm_id}")["AlgorithmName"] == name
        client.until(client.create(by_name(name)), "Succeed")
