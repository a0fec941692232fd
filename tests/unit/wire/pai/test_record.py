"""What a service may leave out of its answer about a job, or say in other words: it is a job all the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord, MetricPoint, from_time
from pai_sdk._wire.pai.recorded import recorded_fields, request_of
from tests.support.fake_backend import FakeBackend

WHOLE: dict[str, Any] = {
    "TrainingJobId": "train1",
    "TrainingJobName": "digits",
    "TrainingJobUrl": "https://console.example.com/train1",
    "TrainingJobDescription": "why",
    "WorkspaceId": "7",
    "UserId": "1",
    "Status": "Running",
    "ReasonCode": "TrainingJobRunning",
    "ReasonMessage": "it runs",
    "GmtCreateTime": "2026-01-01T00:00:00Z",
    "GmtModifiedTime": "2026-01-01T00:00:10Z",
    "Duration": 10,
    "IsTempAlgo": True,
    "AlgorithmId": "algo-1",
    "AlgorithmName": "digits",
    "AlgorithmVersion": "v1",
    "AlgorithmProvider": "me",
    "AlgorithmSpec": {"Image": "img", "Command": ["true"], "HyperParameters": [{"Name": "lr", "Range": {}}]},
    "ComputeResource": {
        "EcsSpec": "ecs.x",
        "EcsCount": 1,
        "ResourceId": "q",
        "InstanceCount": 1,
        "InstanceSpec": {"CPU": "8", "GPU": "1", "GPUType": "V100", "Memory": "32Gi", "SharedMemory": "8Gi"},
    },
    "HyperParameters": [{"Name": "lr", "Value": "0.1"}],
    "Labels": [{"Key": "team", "Value": "vision"}],
    "InputChannels": [{"Name": "train", "InputUri": "oss://b/in/", "DatasetId": "d", "VersionName": "v1"}],
    "OutputChannels": [{"Name": "model", "OutputUri": "oss://b/out/", "DatasetId": "d"}],
    "OutputModel": {"OutputChannelName": "model", "Uri": "oss://b/out/"},
    "LatestMetrics": [{"Name": "loss", "Timestamp": "2026-01-01T00:00:05Z", "Value": 0.5}],
    "LatestProgress": {"OverallProgress": {"Timestamp": "2026-01-01T00:00:05Z", "Value": 0.5}},
    "Instances": [{"Name": "train1-master-0", "Role": "master", "Status": "Running"}],
    "StatusTransitions": [{"Status": "Creating", "StartTime": "a", "EndTime": "b", "ReasonCode": "c"}],
    "Scheduler": {"MaxRunningTimeInSeconds": 60},
    "Settings": {"EnableRDMA": True, "Tags": {}},
    "UserVpc": {"VpcId": "v", "SecurityGroupId": "s", "ExtendedCIDRs": ["10.0.0.0/8"]},
    "ExperimentConfig": {"ExperimentId": "e"},
    "Environments": {"A": "b"},
    "PythonRequirements": ["numpy"],
    "Priority": 1,
    "RoleArn": "acs:ram::1:role/r",
    "RequestId": "r-1",
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field at every depth; items of lists too."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*path, key)
        yield from places(below, (*path, key))


def changed(path: tuple[Any, ...], **to: Any) -> dict[str, Any]:
    """The whole answer with something else there, or nothing."""
    answer = copy.deepcopy(WHOLE)
    at = answer
    for key in path[:-1]:
        at = at[key]
    if "value" in to:
        at[path[-1]] = to["value"]
    else:
        del at[path[-1]]
    return answer


FIELDS = [path for path in places(WHOLE) if path != ("TrainingJobId",) and isinstance(path[-1], str)]


def shown(answer: dict[str, Any]) -> TrainingJob:
    """A job that answers so, looked at from all sides."""
    backend = FakeBackend()
    backend.get = lambda job_id, **more: JobRecord.model_validate(answer)  # type: ignore[method-assign]
    job = TrainingJob("train1", backend)
    assert isinstance(job.labels, dict)
    assert isinstance(job.outputs, dict)
    assert isinstance(job.record.instance_names, list)
    assert job.id in repr(job)
    assert job.name in job._repr_html_()
    return job


def test_a_whole_answer_is_read_whole() -> None:
    job = shown(WHOLE)
    assert (job.status, job.labels, job.outputs) == ("Running", {"team": "vision"}, {"model": "oss://b/out/"})
    assert job.record.model_dump(by_alias=True, exclude_none=True) == WHOLE


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: ".".join(map(str, path)))
def test_any_field_may_be_missing_or_null(path: tuple[Any, ...]) -> None:
    shown(changed(path))
    shown(changed(path, value=None))


def test_what_is_left_out_is_empty_and_each_has_its_own() -> None:
    first, second = (JobRecord(training_job_id=job_id) for job_id in ("a", "b"))
    lists = [name for name, field in JobRecord.model_fields.items() if "list" in str(field.annotation)]
    assert "instances" in lists
    for name in lists:
        assert getattr(first, name) in ([], None), name
        assert getattr(first, name) is None or getattr(first, name) is not getattr(second, name), name


RAN = {"Status": "Running", "EndTime": "2026-01-01"}


@pytest.mark.parametrize(
    ("status", "transitions", "has_ended"),
    [
        ("Evicted", [RAN, {"Status": "Evicted", "EndTime": "2026-01-01"}], True),
        ("Evicted", [RAN, {"Status": "Evicted", "EndTime": ""}], False),
        ("Evicted", [RAN], False),
        ("Evicted", None, False),
        ("", [{"Status": "", "EndTime": "2026-01-01"}], False),
        ("Running", [RAN], False),
    ],
)
def test_an_end_is_seen_by_its_time_where_the_status_is_not_known(
    status: str, transitions: Any, has_ended: bool
) -> None:
    record = JobRecord.model_validate({"TrainingJobId": "t", "Status": status, "StatusTransitions": transitions})
    assert record.status == status
    for seen in (record.status, pickle.loads(pickle.dumps(record)).status, record.model_copy().status):
        assert (seen.is_terminal, seen.is_failure, seen.is_success) == (has_ended, has_ended, False)


def test_a_record_has_the_fields_of_its_request() -> None:
    record = JobRecord(training_job_id="train1", training_job_name="digits")
    assert recorded_fields(record) == {"TrainingJobName": "digits"}


def test_fields_that_a_service_adds_are_not_in_the_request() -> None:
    compute = {"EcsSpec": "ecs.c6.large", "InstanceCost": 1}
    fields = {"TrainingJobId": "train1", "TrainingJobName": "digits", "ComputeResource": compute}
    assert request_of(JobRecord.model_validate(fields)).compute_resource.ecs_spec == "ecs.c6.large"


def test_points_can_start_at_a_time() -> None:
    points = [MetricPoint(timestamp=f"2026-01-01T00:00:0{second}Z", value=second) for second in (1, 2)]
    assert [point.value for point in from_time(points, "2026-01-01T00:00:02Z")] == [2.0]
