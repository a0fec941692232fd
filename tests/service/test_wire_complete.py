"""Every action on jobs and algorithms that PAI's wire has is there, and answers with the wire's names.

The tables are those of paistudio 2022-01-12: action, method, path, query, fields of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pai_sdk._client.api.algorithms import Algorithms
from pai_sdk._client.api.training_jobs import VERSION
from pai_sdk._client.api.transport import Transport
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk.errors import ApiError, PermissionDeniedError
from tests.service.services import Client, job_body
from tests.support.waiting import until

JOB = "/trainingjobs/{job}"
JOB_FIELDS = (
    "AlgorithmId AlgorithmName AlgorithmProvider AlgorithmSpec AlgorithmVersion ComputeResource Duration "
    "Environments ExperimentConfig GmtCreateTime GmtModifiedTime HyperParameters InputChannels Instances "
    "IsTempAlgo Labels LatestMetrics LatestProgress OutputChannels OutputModel ReasonCode "
    "ReasonMessage RoleArn Scheduler Settings Status StatusTransitions TrainingJobDescription TrainingJobId "
    "TrainingJobName TrainingJobUrl UserId UserVpc WorkspaceId"
)
ALGORITHM_FIELDS = (
    "AlgorithmDescription AlgorithmId AlgorithmName AlgorithmProvider DisplayName GmtCreateTime GmtModifiedTime "
    "TenantId UserId WorkspaceId"
)
VERSION_FIELDS = (
    "AlgorithmId AlgorithmName AlgorithmProvider AlgorithmVersion GmtCreateTime GmtModifiedTime TenantId UserId"
)


@dataclass(frozen=True)
class Action:
    """One action, and the fields its answer must have: those of the answer, or of the items of a list in it."""

    name: str
    method: str
    path: str
    fields: str = ""
    query: str = ""
    items: str = ""
    body: Any = None

    @property
    def values(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.query.split())


SPEC = json.dumps({"Image": "none", "Command": ["true"]})
READING = [
    Action("GetTrainingJob", "GET", JOB, JOB_FIELDS),
    Action(
        "ListTrainingJobs",
        "GET",
        "/trainingjobs",
        "TrainingJobId TrainingJobName Status StatusTransitions UserId WorkspaceId Labels ComputeResource",
        "AlgorithmName=digits AlgorithmProvider=local StartTime=2020-01-01T00:00Z EndTime=2999-01-01T00:00Z "
        "IsTempAlgo=false Labels={} Order=DESC PageNumber=1 PageSize=10 SortBy=GmtCreateTime Status=Running "
        "TrainingJobId={job} TrainingJobName=wire WorkspaceId=1",
        "TrainingJobs",
    ),
    Action("ListTrainingJobLogs", "GET", JOB + "/logs", "Logs TotalCount", "InstanceId={instance} PageSize=5"),
    Action("ListTrainingJobLogs, by worker", "GET", JOB + "/logs", "Logs TotalCount", "WorkerId={instance}"),
    Action("ListTrainingJobEvents", "GET", JOB + "/events", "Events TotalCount", "PageNumber=1 PageSize=5"),
    Action(
        "ListTrainingJobInstanceEvents",
        "GET",
        JOB + "/instances/{instance}/events",
        "Events TotalCount",
        "PageSize=5",
    ),
    Action(
        "ListTrainingJobMetrics",
        "GET",
        JOB + "/metrics",
        "Name Timestamp Value",
        "Name=loss Order=DESC PageNumber=1 PageSize=5",
        "Metrics",
    ),
    Action(
        "GetTrainingJobLatestMetrics",
        "GET",
        JOB + "/latestmetrics",
        "Name Timestamp Value",
        "Names=loss",
        "Metrics",
    ),
    Action(
        "ListTrainingJobInstanceMetrics",
        "GET",
        JOB + "/instancemetrics",
        "InstanceId NodeName Metrics",
        "MetricType=CpuCoreUsage TimeStep=5m InstanceId={instance} StartTime=2020-01-01T00:00Z",
        "InstanceMetrics",
    ),
    Action("GetTrainingJobErrorInfo", "GET", JOB + "/errorinfo", "ErrorInfo"),
    Action("ListTrainingJobOutputModels", "GET", JOB + "/outputmodels", "OutputModels"),
    Action("GetToken", "GET", "/tokens", "Token", "TrainingJobId={job} ExpireTime=60"),
    Action("GetAlgorithm", "GET", "/algorithms/{algorithm}", ALGORITHM_FIELDS),
    Action(
        "ListAlgorithms",
        "GET",
        "/algorithms",
        ALGORITHM_FIELDS,
        "AlgorithmId={algorithm} AlgorithmName=digits AlgorithmProvider=local PageSize=5 WorkspaceId=1",
        "Algorithms",
    ),
    Action("GetAlgorithmVersion", "GET", "/algorithms/{algorithm}/versions/v1", VERSION_FIELDS + " AlgorithmSpec"),
    Action(
        "ListAlgorithmVersions",
        "GET",
        "/algorithms/{algorithm}/versions",
        VERSION_FIELDS,
        "PageNumber=1 PageSize=5",
        "AlgorithmVersions",
    ),
]
# In this order: the last ones take away what the first ones made.
CHANGING = [
    Action("CreateAlgorithm", "POST", "/algorithms", "AlgorithmId", body={"AlgorithmName": "second"}),
    Action(
        "CreateAlgorithmVersion",
        "POST",
        "/algorithms/{algorithm}/versions/v2",
        "AlgorithmId AlgorithmVersion",
        body={"AlgorithmSpec": SPEC},
    ),
    Action(
        "UpdateAlgorithm",
        "PUT",
        "/algorithms/{algorithm}",
        "AlgorithmId",
        body={"AlgorithmDescription": "of digits"},
    ),
    Action(
        "UpdateAlgorithmVersion",
        "PUT",
        "/algorithms/{algorithm}/versions/v2",
        "AlgorithmId AlgorithmVersion",
        body={"AlgorithmSpec": SPEC},
    ),
    Action("UpdateTrainingJobLabels", "POST", JOB + "/labels", body={"Labels": [{"Key": "a", "Value": "b"}]}),
    Action("DeleteTrainingJobLabels", "DELETE", JOB + "/labels", query="Keys=a"),
    Action("StopTrainingJob", "PUT", JOB + "/stop"),
    Action("DeleteAlgorithmVersion", "DELETE", "/algorithms/{algorithm}/versions/v2"),
    Action("DeleteAlgorithm", "DELETE", "/algorithms/{algorithm}"),
]
ASKED: dict[str, Any] = {
    "TrainingJobDescription": "all there is",
    "Environments": {"A": "b"},
    "HyperParameters": [{"Name": "lr", "Value": "0.1"}],
    "Labels": [{"Key": "team", "Value": "search"}],
    "Priority": 3,
    "RoleArn": "acs:ram::1:role/training",
    "Scheduler": {"MaxRunningTimeInSeconds": 600},
    "Settings": {"EnableRDMA": False},
    "UserVpc": {"VpcId": "vpc-1", "SecurityGroupId": "sg-1"},
}
# It counts a little and sleeps: a loop without pause, in each of the workers, makes all other tests slow.
COUNTS = "while :; do i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; sleep 0.05; done"
RUNNING = {
    "Image": "none",
    "Command": ["sh", "-c", f"echo loss=0.5 done=25% left=30; {COUNTS}"],
    "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    "ProgressDefinitions": {
        "OverallProgress": {"Regex": "done=([0-9]+)%"},
        "RemainingTime": {"Regex": "left=([0-9]+)"},
    },
}


@pytest.fixture(scope="module")
def names(service: Client) -> Iterator[dict[str, str]]:
    """A registered algorithm, and a job of it that runs and has told of itself."""
    algorithm = service.call("POST", "/algorithms", body={"AlgorithmName": "digits"}).json()["AlgorithmId"]
    body = {"AlgorithmSpec": json.dumps(RUNNING)}
    assert service.call("POST", f"/algorithms/{algorithm}/versions/v1", body=body).status_code == 200
    made = service.call("POST", "/experiments", body={"Name": "digits_runs"}).json()
    experiment = {"ExperimentId": made["ExperimentId"]}
    wanted = job_body(TrainingJobName="wire", AlgorithmName="digits", ExperimentConfig=experiment, **ASKED)
    del wanted["AlgorithmSpec"]
    job = service.create(wanted)
    service.until(job, "Running")
    until(lambda: service.get(f"/trainingjobs/{job}")["LatestMetrics"])
    yield {"job": job, "instance": f"{job}-master-0", "algorithm": algorithm}
    if service.call("PUT", f"/trainingjobs/{job}/stop").status_code == 200:
        service.until(job)


def ask(client: Client, action: Action, names: dict[str, str]) -> dict[str, Any]:
    query = {name: value if value == "{}" else value.format(**names) for name, value in action.values.items()}
    answer = client.call(action.method, action.path.format(**names), body=action.body, **query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def check(action: Action, answer: dict[str, Any]) -> None:
    assert answer["RequestId"]
    wanted = set(action.fields.split())
    if not action.items:
        assert wanted <= answer.keys(), wanted - answer.keys()
        return
    assert answer[action.items], "the list is empty"
    assert wanted <= answer[action.items][0].keys(), wanted - answer[action.items][0].keys()
    if action.name.startswith("List") and "InstanceMetrics" not in action.name:
        assert isinstance(answer["TotalCount"], int)


@pytest.mark.parametrize("action", READING, ids=lambda action: action.name)
def test_what_reads(service: Client, names: dict[str, str], action: Action) -> None:
    answer = ask(service, action, names)
    check(action, answer)
    if "Logs" in action.name or "Events" in action.name:
        assert isinstance(answer["TotalCount"], str)  # as the service has it, unlike in its other lists


def test_what_was_asked_for_is_shown_as_it_was(service: Client, names: dict[str, str]) -> None:
    job = service.get(f"/trainingjobs/{names['job']}")
    assert {name: job[name] for name in ASKED} == ASKED


def test_how_far_a_job_is(service: Client, names: dict[str, str]) -> None:
    progress = until(lambda: service.get(f"/trainingjobs/{names['job']}")["LatestProgress"])
    assert {name: figure["Value"] for name, figure in progress.items()} == {
        "OverallProgress": 25,
        "RemainingTime": 30,
    }
    assert all(figure["Timestamp"].endswith("Z") for figure in progress.values())


def test_what_an_instance_uses_is_measured(service: Client, names: dict[str, str]) -> None:
    def points(metric: str, **query: str) -> list[dict[str, Any]]:
        path = f"/trainingjobs/{names['job']}/instancemetrics"
        (instance,) = service.get(path, MetricType=metric, **query)["InstanceMetrics"]
        assert instance["InstanceId"] == names["instance"]
        return list(instance["Metrics"])

    busy = until(lambda: [point["Value"] for point in points("CpuCoreUsage") if point["Value"]])
    assert all(0 < value <= 100 for value in busy)  # of all cores
    assert 0 < points("MemoryUsage")[0]["Value"] < 50
    assert points("DiskWriteRate")
    assert points("GpuCoreUsage") == points("NetworkInputRate") == []
    assert points("CpuCoreUsage", StartTime="2999-01-01T00:00Z") == []
    for query in ({"MetricType": "Nonsense"}, {"MetricType": "MemoryUsage", "TimeStep": "often"}, {}):
        answer = service.call("GET", f"/trainingjobs/{names['job']}/instancemetrics", **query)
        assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")


def test_a_token_is_for_its_job_and_its_time(service: Client, names: dict[str, str]) -> None:
    job = f"/trainingjobs/{names['job']}"
    token = service.get("/tokens", TrainingJobId=names["job"])["Token"]
    assert service.get(job, Token=token)["TrainingJobId"] == names["job"]
    for wrong in (token[:-4] + "AAAA", "x", "a.b.c", "é.é"):
        answer = service.call("GET", job, Token=wrong)
        assert (answer.status_code, answer.json()["Code"]) == (403, "InvalidToken")
    assert service.call("GET", f"/trainingjobs/{service.create(job_body())}", Token=token).status_code == 403
    assert service.call("GET", "/tokens", TrainingJobId="none").status_code == 404
    assert service.call("GET", "/tokens", ExpireTime=0).status_code == 400
    short = service.get("/tokens", ExpireTime=1)["Token"]
    until(lambda: service.call("GET", job, Token=short).status_code == 403)


def test_what_cannot_be_is_refused_in_the_wires_form(service: Client, names: dict[str, str]) -> None:
    path = f"/trainingjobs/{names['job']}/instances/{names['instance']}/webterminals"
    for answer in (
        service.call("POST", path),
        service.call("POST", path + "/action/check", body={"CheckInfo": "x"}),
    ):
        assert (answer.status_code, answer.json()["Code"]) == (400, "NotSupported")
    none = service.call("POST", f"/trainingjobs/{names['job']}/instances/none/webterminals")
    assert none.status_code == 404


def test_our_own_client_manages_algorithms(service: Client, names: dict[str, str]) -> None:
    """Those that have no test of their own elsewhere, over real HTTP."""
    key = static_credentials(service.info.access_key_id, service.info.access_key_secret)
    transport = Transport(service.info.endpoint, key, version=VERSION)
    algorithms = Algorithms(transport, "1")
    assert algorithms.find("digits", "local").algorithm_id == names["algorithm"]
    created = algorithms.create("third", description="d")
    algorithms.create_version(created, "v1", {"Image": "none", "Command": ["true"]})
    latest = algorithms.latest_version(created)
    assert latest is not None
    assert latest.algorithm_version == "v1"
    spec = algorithms.get_version(created, "v1").algorithm_spec
    assert spec is not None
    assert spec.command == ["true"]
    algorithms.delete(created)
    with pytest.raises(ApiError):
        algorithms.get(created)
    with pytest.raises(PermissionDeniedError):
        transport.call("GetTrainingJob", "GET", f"/api/v1/trainingjobs/{names['job']}", query={"Token": "x"})
    transport.close()


def test_what_changes(service: Client, names: dict[str, str]) -> None:
    for action in CHANGING:
        check(action, ask(service, action, names))
    service.until(names["job"], "Terminated")
    check(Action("DeleteTrainingJob", "DELETE", JOB), ask(service, Action("", "DELETE", JOB), names))
    assert service.call("GET", f"/trainingjobs/{names['job']}").status_code == 404


@pytest.mark.parametrize("path", ["/trainingjobs/none", "/algorithms/none", "/nonsense"])
def test_what_is_not_there_is_told_in_the_wires_form(service: Client, path: str) -> None:
    answer = service.call("GET", path)
    assert answer.status_code == 404
    assert {"RequestId", "Code", "Message", "HostId"} <= answer.json().keys()
