"""What the service makes of a CreateJob: the request of a training job with roles and mounts."""

from __future__ import annotations

from typing import Any

from pai_sdk._service.services.dlc.conversion import mount, training_request
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.roles import Mount
from tests.service.dlc.dlc_client import dlc_body


def converted(**fields: Any) -> TrainingJobRequest:
    """The request, which its model must accept."""
    body = dlc_body("python train.py", **fields)
    return training_request(received(NewJob, body), [])


def spec(role: str, **fields: Any) -> dict[str, Any]:
    return {"Type": role, "PodCount": 1, "Image": "i", "EcsSpec": "a", **fields}


def test_workers_alone_have_no_roles() -> None:
    request = converted(JobSpecs=[spec("worker", PodCount=3, UserCommand="mine"), spec("Master", PodCount=0)])
    assert request.roles is None
    assert request.instance_count == 3
    assert request.algorithm_spec is not None
    assert request.algorithm_spec.command[-1] == "mine"


def test_roles_keep_what_makes_them_unlike() -> None:
    config = {"CPU": "2", "GPU": "1", "Memory": "4Gi", "SharedMemory": "1Gi", "GPUType": "x"}
    wait = {"Type": "ps", "OnPhase": "Running", "MinReplicas": "1"}
    request = converted(
        JobType="TFJob",
        ResourceId="quota1",
        JobSpecs=[
            spec("PS", PodCount=2, EcsSpec=None, ResourceConfig=config),
            spec("worker", EcsSpec=None, ResourceConfig={"CPU": "1"}, StartupDependencies=[wait], Image="other"),
            spec("Evaluator", EcsSpec=None, ResourceConfig={"CPU": "1"}, ConsiderInSuccessPolicy=False),
            spec("Chief", EcsSpec=None, ResourceConfig={"CPU": "1"}, UserCommand="lead", IsCheif=True),
        ],
    )
    ps, worker, evaluator, chief = request.roles or []
    assert [role.name for role in (ps, worker, evaluator, chief)] == ["PS", "Worker", "Evaluator", "Chief"]
    assert (ps.count, ps.image, ps.command) == (2, None, None)
    assert ps.instance_spec is not None
    assert ps.instance_spec.to_wire() == config
    assert worker.image == "other"
    assert [(each.role, each.phase, each.min_count) for each in worker.start_after or ()] == [("ps", "Running", 1)]
    assert evaluator.counts_for_success is False
    assert chief.is_chief
    assert (chief.command or [])[-1] == "lead"
    assert request.instance_count == 5
    assert request.compute_resource.resource_id == "quota1"


def test_the_chief_alone_decides_if_the_policy_says_so() -> None:
    roles = [spec("chief"), spec("Worker"), spec("PS")]
    request = converted(JobType="TFJob", SuccessPolicy="ChiefWorker", JobSpecs=roles)
    assert [role.counts_for_success for role in request.roles or ()] == [True, False, False]
    without = converted(JobType="TFJob", SuccessPolicy="ChiefWorker", JobSpecs=roles[1:])
    assert [role.counts_for_success for role in without.roles or ()] == [None, None]


def test_other_fields_have_their_places() -> None:
    request = converted(
        Accessibility="PUBLIC",
        Description="about",
        Envs={"A": "1", "EMPTY": ""},
        CustomEnvs=[{"Key": "B", "Value": "2"}, {"Key": "A", "Value": "3"}],
        JobMaxRunningTimeMinutes=2,
        Priority=4,
        Settings={"Tags": {"k": "v"}},
        ThirdpartyLibs=["numpy"],
        ThirdpartyLibDir="/mnt/my libs",
    )
    assert request.environments == {"A": "3", "B": "2", "EMPTY": ""}
    assert {label.key: label.value for label in request.labels} == {"k": "v", "pai-sdk-accessibility": "PUBLIC"}
    assert (request.priority, request.training_job_description) == (4, "about")
    assert request.python_requirements == ["numpy"]
    assert request.scheduler is not None
    assert request.scheduler.max_running_time_in_seconds == 120
    assert request.algorithm_spec is not None
    text = request.algorithm_spec.command[-1]
    assert "-r '/mnt/my libs/requirements.txt' ||" in text
    assert text.endswith("\npython train.py")


def test_mounts_name_buckets_without_their_endpoints() -> None:
    fields = mount("/mnt/a", "oss://data.oss-cn-x-internal.aliyuncs.com/a/", None, None)
    assert fields == Mount(path="/mnt/a", uri="oss://data/a/", access="RO")
