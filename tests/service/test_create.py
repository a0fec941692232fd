"""What CreateTrainingJob takes, and what it says to what it does not take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from pai_sdk._client.api.training_jobs import VERSION, TrainingJobs
from pai_sdk._client.api.transport import Transport
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.reasons import image_unused_message
from pai_sdk._host.execution.base import ClusterCapacity
from pai_sdk._service.services.jobs import host_resources as resources
from pai_sdk._service.services.jobs import snapshot
from pai_sdk._service.services.jobs.reading import read_body
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from tests.service.services import Client, job_body

HOSTILE = [None, 0, "x", [], [[]], {"a": "\ud800"}, {"a": "\u0000"}, {"a": 10**400}, {"\u0000": []}]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"TrainingJobName": None}, "TrainingJobName"),
        ({"TrainingJobName": "x" * 300}, "300 characters"),
        ({"Nonsense": 1}, "Nonsense"),
        (
            {"ComputeResource": {"EcsSpec": "x", "EcsCount": 17}},
            "17 instances exceed the capacity of this service, 16",
        ),
        ({"ComputeResource": {"EcsSpec": "x", "EcsCount": -1}}, "-1 instances"),
        ({"ComputeResource": {"InstanceCount": 0}}, "ComputeResource.InstanceCount: 0 instances cannot run"),
        ({"ComputeResource": {"EcsCount": 1, "InstanceCount": 2}}, "EcsCount 1 conflicts with InstanceCount 2"),
        ({"ComputeResource": {"InstanceSpec": {"Memory": "9" * 308}}}, "more memory than any machine can have"),
        ({"Labels": [{"Key": str(n), "Value": ""} for n in range(1001)]}, "Labels: has 1001 items; 1000 are"),
        ({"Environments": {str(n): "" for n in range(1001)}}, "Environments: has 1001 items"),
        ({"InputChannels": [{"a": list(range(900))}] * 30}, "more than 20000 values"),
        ({"ComputeResource": {"InstanceSpec": {"GPU": "many"}}}, "'many' is not a number of GPUs"),
        ({"ComputeResource": {"InstanceSpec": {"GPU": "9" * 400}}}, "is not a number of GPUs"),
        (
            {"CodeDir": {"LocationValue": {"Bucket": "other", "Key": "a/"}}},
            "CodeDir: there is no bucket 'other' here",
        ),
        (
            {"InputChannels": [{"Name": "a", "InputUri": "oss://other/"}]},
            "InputChannels.a: there is no bucket 'other'",
        ),
        ({"OutputChannels": [{"Name": "a", "OutputUri": "oss://other/"}]}, "OutputChannels.a: there is no bucket"),
        ({"Priority": 2**63}, "Priority: the number has more than 64 bits"),
        ({"Priority": "1_0"}, "Priority: Value error, '1_0' is not a number"),
        ({"Priority": "9" * 30}, "Priority: Value error, has more than 64 bits"),
        ({"Scheduler": {"MaxRunningTimeInMinutes": 2**40}}, "MaxRunningTimeInMinutes: 1099511627776 is more than"),
        ({"InputChannels": [{"Name": "a"}]}, "needs either an InputUri or a DatasetId"),
        ({"InputChannels": [{"Name": "../up", "InputUri": "oss://pai-local/a/"}]}, "path separator"),
        ({"OutputChannels": [{"Name": "m", "OutputUri": "oss://pai-local/a/"}] * 2}, "'m' is defined 2 times"),
        ({"HyperParameters": [{"Name": "a-b", "Value": "1"}, {"Name": "a_b", "Value": "2"}]}, "PAI_HPS_A_B"),
        ({"Environments": {"PAI_HPS": "mine"}}, "job contract"),
        ({"AlgorithmSpec": {"Command": []}}, "Command"),
        ({"Scheduler": {"MaxRunningTimeInSeconds": -1}}, "MaxRunningTimeInSeconds: -1 is less than 0"),
        ({"Scheduler": {"MaxRunningTimeInMinutes": -5}}, "MaxRunningTimeInMinutes: -5 is less than 0"),
        ({"AlgorithmSpec": {"MetricDefinitions": [{"Name": "m", "Regex": "("}]}}, "regex of 'm' cannot be read"),
        ({"AlgorithmSpec": {"MetricDefinitions": [{"Name": "m", "Regex": "loss"}]}}, "has no group"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(service: Client, change: dict[str, Any], complaint: str) -> None:
    answer = service.call("POST", "/trainingjobs", body=job_body(**change))
    assert answer.status_code == 400
    assert answer.json()["Code"] == "InvalidParameter"
    assert complaint in answer.json()["Message"]


@pytest.mark.parametrize("limit", ["nan", "Infinity", "-inf", "1e999", "1_0", -1])
def test_a_limit_that_is_no_number_is_refused(service: Client, limit: object) -> None:
    spot = {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": limit}
    body = job_body(ComputeResource={"EcsSpec": "x", "SpotSpec": spot})
    answer = service.call("POST", "/trainingjobs", body=body)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
    assert "SpotDiscountLimit" in answer.json()["Message"]
    assert service.call("GET", "/trainingjobs").status_code == 200


def test_a_stored_value_that_json_has_not_makes_no_list_fail(
    service: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier release has accepted it."""
    job_id = service.create(job_body())
    real = snapshot.job_body

    def with_nan(request: Any, state: Any, experiments: Mapping[str, str]) -> dict[str, Any]:
        is_stored = state.training_job_id == job_id
        more = {"ComputeResource": {"SpotSpec": {"SpotDiscountLimit": float("nan")}}} if is_stored else {}
        return {**real(request, state, experiments), **more}

    monkeypatch.setattr(snapshot, "job_body", with_nan)
    listed = service.get("/trainingjobs")["TrainingJobs"]
    for shown in (
        service.get(f"/trainingjobs/{job_id}"),
        *(job for job in listed if job["TrainingJobId"] == job_id),
    ):
        assert shown["ComputeResource"]["SpotSpec"]["SpotDiscountLimit"] is None


def test_all_problems_are_named_at_once(service: Client) -> None:
    body = job_body(Nonsense=1, TrainingJobName=7, ComputeResource={"EcsCount": "many"})
    message = service.call("POST", "/trainingjobs", body=body).json()["Message"]
    assert all(name in message for name in ("Nonsense", "TrainingJobName", "ComputeResource.EcsCount"))


def test_a_job_without_an_algorithm_is_refused_clearly(service: Client) -> None:
    body = {"TrainingJobName": "a", "ComputeResource": {"EcsSpec": "x"}}
    answer = service.call("POST", "/trainingjobs", body=body)
    assert answer.status_code == 400
    assert "AlgorithmSpec: is missing" in answer.json()["Message"]


def test_a_submission_sent_twice_is_one_job(service: Client) -> None:
    """As after an answer that was lost: the client sends the same again."""
    body = job_body(Labels=[{"Key": SUBMISSION_LABEL, "Value": "s-1"}])
    ids = {service.call("POST", "/trainingjobs", body=body).json()["TrainingJobId"] for _ in range(3)}
    other = job_body(Labels=[{"Key": SUBMISSION_LABEL, "Value": "s-2"}])
    assert len(ids) == 1
    assert service.call("POST", "/trainingjobs", body=other).json()["TrainingJobId"] not in ids


def test_what_has_no_effect_is_named(service: Client) -> None:
    resource = {
        "EcsSpec": "x",
        "SpotSpec": {"SpotStrategy": "SpotAsPriceGo"},
        "InstanceSpec": {"GPUType": "V100", "SharedMemory": "1GiB"},
    }
    fields = {
        "ComputeResource": resource,
        "UserVpc": {"VpcId": "vpc-1", "SecurityGroupId": "sg-1"},
        "RoleArn": "acs:ram::1:role/a",
        "Settings": {"EnableRDMA": True, "Tags": {"a": "b"}},
        "InputChannels": [{"Name": "a", "InputUri": "oss://pai-local/a/", "Options": "{}"}],
    }
    made = service.call("POST", "/trainingjobs", body=job_body(**fields)).json()
    names = (
        "user_vpc_config, role_arn, spot_spec, instance_spec.gpu_type, instance_spec.shared_memory, "
        "input_channels.a.options, settings.enable_rdma"
    )
    assert made["Notices"] == [f"These have no effect on this service: {names}."]
    events = service.get(f"/trainingjobs/{made['TrainingJobId']}/events")["Events"]
    assert [event for event in events if event.endswith(made["Notices"][0])]
    assert "Notices" not in service.call("POST", "/trainingjobs", body=job_body()).json()


def test_an_event_says_that_processes_use_no_image(service: Client) -> None:
    made = service.call("POST", "/trainingjobs", body=job_body()).json()
    events = service.get(f"/trainingjobs/{made['TrainingJobId']}/events")["Events"]
    image = job_body()["AlgorithmSpec"]["Image"]
    assert len([event for event in events if event.endswith(image_unused_message(image))]) == 1


def test_the_client_warns_of_what_has_no_effect(service: Client, caplog: pytest.LogCaptureFixture) -> None:
    key = static_credentials(service.info.access_key_id, service.info.access_key_secret)
    jobs = TrainingJobs(Transport(service.info.endpoint, key, version=VERSION))
    job_id = jobs.create_once(job_body(RoleArn="acs:ram::1:role/a"))
    assert f"job {job_id}: These have no effect on this service: role_arn." in caplog.messages
    assert [
        record.levelname for record in caplog.records if record.name == "pai_sdk._client.api.training_jobs"
    ] == ["WARNING"]


def test_an_experiment_that_is_not_there_is_refused(service: Client) -> None:
    body = job_body(ExperimentConfig={"ExperimentId": "exp-none"})
    answer = service.call("POST", "/trainingjobs", body=body)
    assert (answer.status_code, answer.json()["Code"]) == (404, "EXPERIMENT_NOT_FOUND")


def test_more_gpus_than_the_machine_has_are_refused(service: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    body = job_body(ComputeResource={"InstanceCount": 2, "InstanceSpec": {"GPU": "4"}})
    monkeypatch.setattr(resources, "_count_gpus", lambda: 7)
    answer = service.call("POST", "/trainingjobs", body=body)
    assert answer.status_code == 400
    assert "less than 8 GPUs (7 of 7 are free)" in answer.json()["Message"]
    job = TrainingJobRequest.model_validate(body)
    resources.refuse_oversized(job, resources.Capacity(slots=2, gpus=8))
    resources.refuse_oversized(job, resources.Capacity(slots=2))  # of an engine they are not known


def test_a_job_larger_than_a_cluster_that_may_grow_is_not_refused_and_holds_up_no_other() -> None:
    cluster = ClusterCapacity(cpus=8, gpus=1, memory_bytes=16 << 30, nodes=2)
    capacity = resources.Capacity(slots=16, cluster=cluster)
    too_large = resources.Need(2, cpus=20)
    assert list(capacity.lacks(too_large, [resources.Need(1, cpus=8)])) == []
    assert list(capacity.lacks(resources.Need(1, cpus=8), [too_large])) == []
    assert list(capacity.lacks(resources.Need(1, cpus=4, gpus=1), [resources.Need(1, cpus=6, gpus=1)])) == [
        "4 CPUs (2 of the cluster's 8 are free)",
        "1 GPU (0 of the cluster's 1 are free)",
    ]


def test_an_instance_that_names_no_cpus_takes_those_that_the_cluster_gives_it() -> None:
    """Counted as none, jobs would overtake the queue and wait in the cluster, in its own order."""
    unnamed = resources.need_of(TrainingJobRequest.model_validate(job_body(ComputeResource={"EcsCount": 2})))
    assert (unnamed.cpus, unnamed.on(None).cpus) == (0, 0)
    cluster = ClusterCapacity(cpus=6, gpus=0, memory_bytes=0, nodes=1, cpus_per_instance=2)
    capacity = resources.Capacity(slots=16, cluster=cluster)
    assert list(capacity.lacks(unnamed, [resources.Need(1, cpus=2)])) == []
    assert list(capacity.lacks(unnamed, [unnamed])) == ["4 CPUs (2 of the cluster's 6 are free)"]
    assert list(resources.Capacity(slots=16, cpus=1).lacks(unnamed)) == []
    named = resources.need_of(
        TrainingJobRequest.model_validate(
            job_body(ComputeResource={"EcsCount": 2, "InstanceSpec": {"CPU": "0.5"}})
        )
    )
    assert named.on(cluster).cpus == 1


def test_another_workspace_is_not_here(service: Client) -> None:
    answer = service.call("POST", "/trainingjobs", body=job_body(WorkspaceId="777"))
    assert (answer.status_code, answer.json()["Code"]) == (404, "WORKSPACE_NOT_FOUND")


UNSET = [None, {}, [], ""]
OPTIONAL_OBJECTS = ("UserVpc", "ExperimentConfig", "Scheduler", "Settings", "CodeDir", "CredentialConfig")
OPTIONAL_LISTS = ("HyperParameters", "InputChannels", "OutputChannels", "Labels", "PythonRequirements")


@pytest.mark.parametrize("unset", UNSET, ids=repr)
def test_what_is_unset_may_be_written_in_any_form(service: Client, unset: Any) -> None:
    """alipai writes `{}` for objects, Alibaba Cloud's generated clients `[]` for lists, others null or ""."""
    spec = {
        **dict.fromkeys(("CodeDir", "Customization", "ComputeResource", "ProgressDefinitions"), unset),
        **dict.fromkeys(("ResourceRequirements", "SupportedInstanceTypes", "InputChannels"), unset),
        "HyperParameters": [{"Name": "lr", "DefaultValue": "1", "Range": unset}],
    }
    resource = {"EcsSpec": "local", "EcsCount": 1, "InstanceSpec": unset, "SpotSpec": unset}
    fields = dict.fromkeys((*OPTIONAL_OBJECTS, *OPTIONAL_LISTS, "Environments"), unset)
    job = service.get(
        f"/trainingjobs/{service.create(job_body(**fields, ComputeResource=resource, AlgorithmSpec=spec))}"
    )
    assert not {*OPTIONAL_OBJECTS, "Environments"} & job.keys()
    assert job["ComputeResource"] == {"EcsSpec": "local", "EcsCount": 1}


def test_an_object_of_unset_fields_is_unset_too(service: Client) -> None:
    vpc = {"VpcId": None, "SecurityGroupId": None, "ExtendedCIDRs": []}
    assert "UserVpc" not in service.get(f"/trainingjobs/{service.create(job_body(UserVpc=vpc))}")


def test_an_empty_value_is_a_value_where_texts_are_free(service: Client) -> None:
    given = {
        "HyperParameters": [{"Name": "empty", "Value": ""}],
        "Environments": {"EMPTY": ""},
        "Settings": {"AdvancedSettings": {"keep": {}, "these": [], "too": ""}},
    }
    spec = {"HyperParameters": [{"Name": "empty"}, {"Name": "other", "DefaultValue": ""}]}
    job = service.get(f"/trainingjobs/{service.create(job_body(**given, AlgorithmSpec=spec))}")
    assert {name: job[name] for name in ("Environments", "Settings")} == {
        name: given[name] for name in ("Environments", "Settings")
    }
    assert {each["Name"]: each["Value"] for each in job["HyperParameters"]} == {"empty": "", "other": ""}


@pytest.mark.parametrize("wrong", [[{}], "x", 0, False, [None]], ids=repr)
def test_what_is_not_empty_is_not_unset(service: Client, wrong: Any) -> None:
    assert service.call("POST", "/trainingjobs", body=job_body(UserVpc=wrong)).status_code == 400


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_hostile_bodies_are_refused_not_choked_on(service: Client, value: Any) -> None:
    for path in ("/trainingjobs", "/trainingjobs/none/labels"):
        assert service.call("POST", path, body=value).status_code in (400, 404)


def test_deep_json_is_refused() -> None:
    with pytest.raises(WireError, match="not JSON"):
        read_body(b"[" * 200_000)
    with pytest.raises(WireError, match="not a JSON object"):
        read_body(json.dumps([1]).encode())
    with pytest.raises(WireError, match="not JSON"):
        read_body(b'{"SpotDiscountLimit": 1e400}')


def test_a_body_beyond_the_limit_is_refused(service: Client) -> None:
    answer = service.call("POST", "/trainingjobs", body=job_body(TrainingJobDescription="x" * (1 << 20)))
    assert (answer.status_code, answer.json()["Code"]) == (413, "RequestTooLarge")
