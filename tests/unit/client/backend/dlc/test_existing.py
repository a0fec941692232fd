"""Bodies of CreateJob that exist, with changes."""

from __future__ import annotations

from typing import Any

import pytest

from pai_sdk._client.backend.dlc.copies import OriginalJob
from pai_sdk._client.backend.dlc.existing import ChangedBody, body_of_job, request_for
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.records import JobDetail
from pai_sdk._wire.pai.compute import ComputeResource
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import InvalidInputError

BODY: dict[str, Any] = {
    "DisplayName": "Made_by-console",
    "JobType": "TFJob",
    "WorkspaceId": "1",
    "ResourceId": "quota1",
    "Priority": 5,
    "JobMaxRunningTimeMinutes": 60,
    "UserCommand": "python /mnt/data/train.py",
    "Envs": {"A": "1", "B": "2"},
    "CustomEnvs": [{"Key": "C", "Value": "3", "Visible": "public"}],
    "DataSources": [{"DataSourceId": "d-1", "MountPath": "/mnt/data"}],
    "CodeSource": {"CodeSourceId": "code-1", "Branch": "main"},
    "UserVpc": {"VpcId": "vpc-1", "SwitchId": "vsw-1", "ExtendedCIDRs": ["10.0.0.0/8"]},
    "JobSpecs": [
        {"Type": "PS", "PodCount": 1, "Image": "tf:1", "ResourceConfig": {"CPU": "2", "Memory": "4Gi"}},
        {
            "Type": "Worker",
            "PodCount": 2,
            "Image": "tf:1",
            "ResourceConfig": {"CPU": "8", "Memory": "32Gi", "SharedMemory": "4Gi"},
            "RestartPolicy": "OnFailure",
            "FieldOfTomorrow": {"X": 1},
        },
    ],
    "Settings": {"Tags": {"team": "x"}, "JobReservedMinutes": 5, "SettingOfTomorrow": True},
    "SuccessPolicy": "AllWorkers",
}
STATE = {"JobId": "dlc1", "Status": "Succeeded", "Duration": 3, "Pods": [{"PodId": "p"}], "UserId": "7"}


def job(**state: Any) -> Any:
    vpc = {"VpcId": "vpc-1", "SwitchId": "vsw-1", "ExtendedCidrs": ["10.0.0.0/8"]}  # as GetJob spells it
    return body_of_job(received(JobDetail, {**BODY, "UserVpc": vpc, **STATE, **state}))


def changed(**changes: Any) -> dict[str, Any]:
    made = job()
    request = request_for(made)
    return ChangedBody(made, request)(request.model_copy(update=changes))


def test_without_changes_it_is_the_body_that_was_sent() -> None:
    vpc = changed().pop("UserVpc")
    assert vpc["ExtendedCIDRs"] == ["10.0.0.0/8"]
    assert {**changed(), "UserVpc": BODY["UserVpc"]} == BODY


def test_variables_are_where_they_were() -> None:
    body = changed(environments={"A": "1", "C": "4", "D": "5"})
    assert body["Envs"] == {"A": "1", "D": "5"}
    assert body["CustomEnvs"] == [{"Key": "C", "Value": "4", "Visible": "public"}]


def test_more_instances_are_more_workers() -> None:
    specs = changed(compute_resource=_count(5))["JobSpecs"]
    assert [spec["PodCount"] for spec in specs] == [1, 4]
    with pytest.raises(InvalidInputError) as caught:
        changed(compute_resource=_count(1))
    assert [problem.where for problem in caught.value.problems] == ["instance_count"]


def _count(count: int) -> ComputeResource:
    return request_for(job()).compute_resource.model_copy(update={"instance_count": count})


def test_public_instances_in_place_of_a_quota() -> None:
    resource = ComputeResource.model_validate({"EcsSpec": "ecs.c6.large", "EcsCount": 3})
    body = changed(compute_resource=resource)
    assert [spec["EcsSpec"] for spec in body["JobSpecs"]] == ["ecs.c6.large"] * 2
    assert not {"ResourceId", "Priority"} & body.keys()
    assert not [spec for spec in body["JobSpecs"] if "ResourceConfig" in spec]
    assert body["JobSpecs"][1]["FieldOfTomorrow"] == {"X": 1}


def test_a_job_that_a_request_cannot_describe_keeps_its_body() -> None:
    made = job(Settings={"Tags": {"k": "v" * 300}}, Priority=12)
    request = request_for(made)
    assert isinstance(request, TrainingJobRequest)
    body = ChangedBody(made, request)(request)
    assert (body["Settings"]["Tags"], body["Priority"]) == ({"k": "v" * 300}, 12)


def test_all_that_a_training_job_cannot_have_is_named() -> None:
    essential, others = OriginalJob.read(received(JobDetail, {**BODY, **STATE}), lambda uri: None).lost_fields()
    assert {path.partition(".")[0] for path in essential} == {"DataSources", "CodeSource", "JobSpecs[1]"}
    assert "SuccessPolicy" in others
    assert "Settings.SettingOfTomorrow" in others
