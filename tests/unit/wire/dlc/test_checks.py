"""What the cloud refuses in a job, and what a client does not send."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pai_sdk._wire.dlc.checking.problems import INVALID, BodyProblem
from pai_sdk._wire.dlc.checks import CAUTION, body_bytes, caution_problems, job_problems, update_problems
from pai_sdk.errors import InvalidInputError

URI = "oss://b.oss-cn-x-internal.aliyuncs.com/d/"
WORKER = {"Type": "Worker", "PodCount": 2, "Image": "i", "EcsSpec": "ecs.c6.large"}
OF_QUOTA = {"Type": "Worker", "PodCount": 1, "Image": "i", "ResourceConfig": {"CPU": "8", "Memory": "32Gi"}}
JOB: dict[str, Any] = {
    "DisplayName": "n",
    "JobType": "PyTorchJob",
    "JobSpecs": [WORKER],
    "UserCommand": "python train.py",
    "WorkspaceId": "1",
}
QUOTA_JOB = {**JOB, "JobSpecs": [OF_QUOTA], "ResourceId": "quota1"}


def problems(**changes: Any) -> list[str]:
    return [problem.where for problem in job_problems({**JOB, **changes})]


def of_worker(**changes: Any) -> list[str]:
    return problems(JobSpecs=[{**WORKER, **changes}])


def of_quota(**changes: Any) -> list[str]:
    return [problem.where for problem in job_problems({**QUOTA_JOB, "JobSpecs": [{**OF_QUOTA, **changes}]})]


def sources(*each: dict[str, Any], **changes: Any) -> list[str]:
    return problems(DataSources=[*each], **changes)


GOOD: list[dict[str, Any]] = [
    JOB,
    QUOTA_JOB,
    {
        **JOB,
        "JobSpecs": [{**WORKER, "PodCount": "2", "ElasticSpotSpecs": [], "LocalMountSpecs": []}],
        "CustomEnvs": [],
    },
    {**JOB, "SomethingNew": {"A": 1}},
    {
        **JOB,
        "DataSources": [{"DataSourceId": "d-1"}, {"DataSourceId": "d-2"}, {"Uri": URI, "MountPath": "/mnt/data"}],
    },
    {**JOB, "JobType": "MPIJob", "JobSpecs": [{**WORKER, "Type": "Launcher"}]},
    {**JOB, "JobSpecs": [{**WORKER, "EcsSpec": "", "ElasticSpotSpecs": [{"InstanceType": "ecs.c6.large"}]}]},
    {
        **JOB,
        "JobSpecs": [{**WORKER, "SpotSpec": {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4}}],
    },
    {**JOB, "JobSpecs": [{**OF_QUOTA, "QuotaId": "quota1"}]},
    {**JOB, "UserVpc": {"VpcId": "v", "SwitchId": "", "ExtendedCIDRs": []}},
    {**JOB, "Envs": {f"V{number}": "" for number in range(40)}, "JobMaxRunningTimeMinutes": 0},
    {
        **JOB,
        "JobType": "TFJob",
        "JobSpecs": [
            {**WORKER, "Type": "Chief", "PodCount": 1, "IsChief": True},
            {**WORKER, "Type": "PS", "RestartPolicy": "Never"},
            {**WORKER, "StartupDependencies": [{"Type": "PS", "OnPhase": "Running", "MinReplicas": "1"}]},
        ],
    },
]


@pytest.mark.parametrize("body", GOOD)
def test_good_jobs(body: dict[str, Any]) -> None:
    assert job_problems(body) == []


@pytest.mark.parametrize("field", ["DisplayName", "JobType", "JobSpecs", "UserCommand"])
@pytest.mark.parametrize("value", [None, "", []])
def test_required_fields(field: str, value: Any) -> None:
    assert field in problems(**{field: value})


def test_the_workspace_is_not_required() -> None:
    assert problems(WorkspaceId=None) == []


def test_all_problems_are_there_at_once() -> None:
    body = {"JobType": "pytorchjob", "JobSpecs": [{"PodCount": "x"}], "Priority": 10, "Accessibility": "ALL"}
    assert [problem.where for problem in job_problems(body)] == [
        "JobSpecs[0].PodCount",
        "DisplayName",
        "UserCommand",
        "JobType",
        "Priority",
        "Accessibility",
        "JobSpecs[0].Type",
        "JobSpecs[0].Image",
        "JobSpecs[0].EcsSpec",
    ]


def test_a_template_may_have_what_is_missing() -> None:
    assert job_problems({"TemplateId": "t", "JobSpecs": [{"Type": "Worker"}]}) == []
    assert [each.where for each in job_problems({"TemplateId": "t", "Priority": 0})] == ["Priority"]


def test_types_are_compared_with_case() -> None:
    (problem,) = job_problems({**JOB, "JobType": "pytorchjob"})
    assert (problem.where, problem.hint, problem.code) == ("JobType", "write PyTorchJob", INVALID)
    assert problems(JobType="BatchJob") == ["JobType"]


def test_texts_of_the_cloud() -> None:
    (problem,) = job_problems({**JOB, "JobSpecs": [{**WORKER, "EcsSpec": None}]})
    assert problem.what == "EcsSpec of JobSpec(Worker) must be present"
    same = [{"DataSourceId": "d-1", "MountPath": "/d"}, {"DataSourceId": "d-2", "MountPath": "/d/"}]
    (problem,) = job_problems({**JOB, "DataSources": same})
    assert (problem.where, problem.what) == (
        "DataSources[1].MountPath",
        "different datasource can't have the same mount path",
    )


def test_values() -> None:
    assert problems(DisplayName="a b") == ["DisplayName"]
    assert problems(Priority=0) == problems(Priority=10) == problems(Priority="x") == ["Priority"]
    assert problems(JobMaxRunningTimeMinutes=-1) == ["JobMaxRunningTimeMinutes"]
    assert problems(SuccessPolicy="All") == ["SuccessPolicy"]
    assert problems(Settings={"JobReservedPolicy": "Perhaps"}) == ["Settings.JobReservedPolicy"]
    assert problems(Envs={"A=B": "x"}) == ["Envs"]
    assert problems(CustomEnvs=[{"Value": "x"}]) == ["CustomEnvs[0].Key"]
    assert problems(UserVpc={"SwitchId": "s", "DefaultRoute": "eth2"}) == ["UserVpc.VpcId", "UserVpc.DefaultRoute"]


def test_resources() -> None:
    config = {"CPU": "8", "Memory": "32Gi"}
    assert of_worker(ResourceConfig=config) == ["JobSpecs[0]"]
    assert of_worker(EcsSpec=None, ResourceConfig=config) == ["JobSpecs[0].EcsSpec"]
    assert of_quota(ResourceConfig=None) == ["JobSpecs[0].ResourceConfig"]
    assert of_quota(ResourceConfig=None, EcsSpec="ecs.c6.large") == ["JobSpecs[0].EcsSpec"]
    assert of_quota(ResourceConfig={"CPU": 8, "GPU": 1, "Memory": "32 GiB", "SharedMemory": "16"}) == []
    assert of_quota(ResourceConfig={"CPU": "eight", "Memory": "-1Gi"}) == [
        "JobSpecs[0].ResourceConfig.CPU",
        "JobSpecs[0].ResourceConfig.Memory",
    ]


def test_roles() -> None:
    assert of_worker(Type="PS") == ["JobSpecs[0].Type"]
    assert of_worker(Type=None) == ["JobSpecs[0].Type"]
    assert of_worker(Type="worker") == []
    assert of_worker(Image="") == ["JobSpecs[0].Image"]
    assert of_worker(PodCount=-1) == ["JobSpecs[0].PodCount"]
    assert of_worker(PodCount=0) == ["JobSpecs"]
    assert of_worker(Type="Master") == ["JobSpecs[0].PodCount"]
    assert of_worker(RestartPolicy="never") == ["JobSpecs[0].RestartPolicy"]
    assert of_worker(ServiceSpec={"ServiceMode": "Per"}) == ["JobSpecs[0].ServiceSpec.ServiceMode"]
    assert of_worker(SpotSpec={"SpotStrategy": "SpotAsPriceGo"}) == ["JobSpecs[0].SpotSpec.SpotStrategy"]
    assert of_worker(SpotSpec={"SpotDiscountLimit": 40}) == [
        "JobSpecs[0].SpotSpec.SpotStrategy",
        "JobSpecs[0].SpotSpec.SpotDiscountLimit",
    ]
    both = {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4, "SpotPriceLimit": 1}
    assert of_worker(SpotSpec=both) == ["JobSpecs[0].SpotSpec"]


def test_several_roles() -> None:
    master = {**WORKER, "Type": "Master", "PodCount": 1}
    assert problems(JobSpecs=[master, WORKER]) == []
    assert problems(JobSpecs=[WORKER, {**WORKER, "Type": "worker"}]) == ["JobSpecs[1].Type"]
    chiefs = [{**master, "IsChief": True}, {**WORKER, "IsCheif": True}]
    assert problems(JobSpecs=chiefs) == ["JobSpecs[1].IsChief"]
    on_worker, on_master = {"Type": "Worker"}, {"Type": "Master"}
    waiting = [{**master, "StartupDependencies": [on_worker]}, {**WORKER, "StartupDependencies": [on_master]}]
    assert problems(JobSpecs=waiting) == ["JobSpecs[0].StartupDependencies", "JobSpecs[1].StartupDependencies"]
    assert problems(JobSpecs=[{**WORKER, "StartupDependencies": [{"Type": "PS"}]}]) == [
        "JobSpecs[0].StartupDependencies[0].Type"
    ]


def test_mounts() -> None:
    assert sources({"MountPath": "/d"}) == ["DataSources[0]"]
    assert sources({"DataSourceId": "d-1", "Uri": URI, "MountPath": "/d"}) == ["DataSources[0]"]
    assert sources({"Uri": URI}) == ["DataSources[0].MountPath"]
    assert sources({"Uri": "odps://p/tables/t", "MountPath": "/d"}) == ["DataSources[0].Uri"]
    assert sources({"Uri": URI, "MountPath": "d"}) == ["DataSources[0].MountPath"]
    assert sources({"Uri": URI, "MountPath": "/a/../b"}) == ["DataSources[0].MountPath"]
    assert sources({"Uri": URI, "MountPath": "/d", "MountAccess": "ro"}) == ["DataSources[0].MountAccess"]
    assert sources({"DataSourceId": "d-1", "Options": "x"}) == ["DataSources[0].Options"]
    assert sources({"DataSourceId": "d-1", "Options": '{"mountType":"ossfs"}'}) == []
    assert sources({"Uri": URI, "MountPath": "/d", "DataSourceVersion": "v1"}) == [
        "DataSources[0].DataSourceVersion"
    ]
    code = {"CodeSourceId": "code-1", "MountPath": "/d"}
    assert sources({"Uri": URI, "MountPath": "/d"}, CodeSource=code) == ["CodeSource.MountPath"]
    assert problems(CodeSource={"Branch": "main"}) == ["CodeSource.CodeSourceId"]


@pytest.mark.parametrize("character", ["a", "作"])
def test_the_size_counts_bytes(character: str) -> None:
    body = copy.deepcopy(JOB)
    size = len(character.encode())
    body["UserCommand"] += character * ((65_536 - body_bytes(body)) // size)
    assert body_bytes(body) > 65_530
    assert job_problems(body) == []
    body["UserCommand"] += character * 6
    assert [problem.where for problem in job_problems(body)] == ["body"]


def test_a_problem_is_that_of_an_error_too() -> None:
    error = InvalidInputError(job_problems({**JOB, "Priority": 0}))
    assert [*error.problems] == [BodyProblem("Priority", "0 is not between 1 and 9")]


def test_updates() -> None:
    assert update_problems({"Priority": 5, "Accessibility": "PUBLIC"}) == []
    assert update_problems({"JobSpecs": [{"Type": "Worker", "PodCount": 3}]}) == []
    wrong = {"Priority": 0, "Accessibility": "x", "JobSpecs": [{"PodCount": -1}], "UserCommand": {}}
    assert [problem.where for problem in update_problems({**wrong, "UserCommand": {"a": 1}})] == [
        "UserCommand",
        "Priority",
        "Accessibility",
        "JobSpecs[0].Type",
        "JobSpecs[0].PodCount",
    ]


CAUTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"WorkspaceId": None}, ["WorkspaceId"]),
    ({"Priority": 5}, ["Priority"]),
    ({"Priority": 5, "ResourceId": "quota1"}, []),
    ({"SuccessPolicy": "ChiefWorker"}, ["SuccessPolicy"]),
    ({"SuccessPolicy": "AllWorkers"}, []),
    ({"ElasticSpec": {"EnableElasticTraining": True}}, ["ElasticSpec"]),
    ({"DebuggerConfigContent": "x"}, ["DebuggerConfigContent"]),
    ({"Envs": {f"V{number}": "" for number in range(20)}}, []),
    ({"Envs": {f"V{number}": "" for number in range(20)}, "CustomEnvs": [{"Key": "V20"}]}, ["Envs"]),
    ({"Envs": {f"V{number}": "" for number in range(20)}, "CustomEnvs": [{"Key": "V1"}]}, []),
    ({"JobMaxRunningTimeMinutes": 0}, ["JobMaxRunningTimeMinutes"]),
    ({"ThirdpartyLibs": ["numpy"], "ThirdpartyLibDir": "/ml/code"}, ["ThirdpartyLibDir"]),
    ({"UserVpc": {"VpcId": "v", "SwitchId": "s"}}, ["UserVpc.ExtendedCIDRs"]),
    ({"UserVpc": {"VpcId": "v", "SwitchId": "s", "ExtendedCIDRs": ["10.0.0.0/8"]}}, []),
    ({"DataSources": [{"Uri": URI, "MountPath": "/ml/input/config/x"}]}, ["DataSources[0].MountPath"]),
    ({"DataSources": [{"Uri": URI, "MountPath": "/ml/input/data"}, {"DataSourceId": "d-1"}]}, []),
    ({"Settings": {"Tags": {"a" * 129: "v", "acs:x": "v", "Aliyun": "v", "fine": "v"}}}, ["Settings.Tags"] * 3),
    ({"Settings": {"Tags": {f"k{number}": "v" for number in range(21)}}}, ["Settings.Tags"]),
]


@pytest.mark.parametrize(("changes", "where"), CAUTIONS)
def test_what_a_client_does_not_send(changes: dict[str, Any], where: list[str]) -> None:
    found = caution_problems({**JOB, **changes})
    assert [problem.where for problem in found] == where
    assert {problem.code for problem in found} <= {CAUTION}
    job = {**JOB, **changes}
    assert job_problems({**job, "JobSpecs": [OF_QUOTA]} if "ResourceId" in job else job) == []
