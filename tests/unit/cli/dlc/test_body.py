"""From flags of `pai-sdk dlc submit` to the body of CreateJob."""

from __future__ import annotations

from typing import Any

import pytest

from pai_sdk._wire.dlc.flags import SUBMIT_FLAGS
from pai_sdk.cli.dlc.body import new_job
from pai_sdk.cli.dlc.flags import parse
from pai_sdk.errors import Problem

QUOTA = ("--name=a", "--command=echo 1", "--workspace_id=1", "--resource_id=quota1")
WORKER = ("--workers=1", "--worker_image=r/i:1", "--worker_cpu=4", "--worker_memory=16Gi")


def converted(*words: str, job_type: str = "PyTorchJob") -> tuple[dict[str, Any], list[Problem], list[Problem]]:
    arguments = parse(words, SUBMIT_FLAGS)
    body, warnings = new_job(arguments, job_type, workspace_id=None)
    return body, arguments.problems, warnings


def body_of(*words: str, job_type: str = "PyTorchJob") -> dict[str, Any]:
    body, problems, _ = converted(*words, job_type=job_type)
    assert problems == []
    return body


def places(*words: str, job_type: str = "PyTorchJob") -> list[str]:
    return [each.where for each in converted(*words, job_type=job_type)[1]]


def test_a_job_in_a_quota() -> None:
    assert body_of(*QUOTA, *WORKER, "--worker_gpu=0", "--worker_gpu_type=A", "--worker_shared_memory=8Gi") == {
        "DisplayName": "a",
        "JobType": "PyTorchJob",
        "UserCommand": "echo 1",
        "WorkspaceId": "1",
        "ResourceId": "quota1",
        "JobSpecs": [
            {
                "Type": "Worker",
                "PodCount": 1,
                "Image": "r/i:1",
                "ResourceConfig": {
                    "CPU": "4",
                    "GPU": "0",
                    "GPUType": "A",
                    "Memory": "16Gi",
                    "SharedMemory": "8Gi",
                },
            }
        ],
    }


@pytest.mark.parametrize(
    ("flag", "path", "value"),
    [
        ("--priority=9", "Priority", 9),
        ("--envs=A=1,B=2", "Envs", {"A": "1", "B": "2"}),
        ("--tags=a=1", "Settings", {"Tags": {"a": "1"}}),
        ("--driver=550.1", "Settings", {"Driver": "550.1"}),
        ("--oversold_type=accept", "Settings", {"OversoldType": "accept"}),
        ("--job_reserved_minutes=5", "Settings", {"JobReservedMinutes": 5}),
        ("--job_reserved_policy=OnFailure", "Settings", {"JobReservedPolicy": "OnFailure"}),
        ("--aimaster_enable", "Settings", {"EnableErrorMonitoringInAIMaster": True}),
        ("--aimaster_args=--a=1 --b", "Settings", {"ErrorMonitoringArgs": "--a=1 --b"}),
        (
            "--advanced_settings=createSvcForAllWorkers=true,customPortList=6379;20000-25000",
            "Settings",
            {"AdvancedSettings": {"createSvcForAllWorkers": "true", "customPortList": "6379;20000-25000"}},
        ),
        ("--code_source=code-1234", "CodeSource", {"CodeSourceId": "code-1234"}),
        ("--thirdparty_libs=numpy>=1,<3,pandas", "ThirdpartyLibs", ["numpy>=1,<3", "pandas"]),
        ("--thirdparty_lib_dir=/mnt/a", "ThirdpartyLibDir", "/mnt/a"),
        ("--success_policy=AllWorkers", "SuccessPolicy", "AllWorkers"),
        ("--job_max_running_time_minutes=60", "JobMaxRunningTimeMinutes", 60),
        ("--job_max_running_time_minutes=0", "JobMaxRunningTimeMinutes", None),
        ("--running_timeout=61", "JobMaxRunningTimeMinutes", 2),
        ("--vpc_id=vpc-1", "UserVpc", {"VpcId": "vpc-1"}),
    ],
)
def test_fields(flag: str, path: str, value: object) -> None:
    assert body_of(*QUOTA, *WORKER, flag).get(path) == value


def test_a_vpc() -> None:
    vpc = ("--vpc_id=v", "--switch_id=s", "--security_group_id=g", "--extended_cidrs=10.0.0.0/8,11.0.0.0/8")
    assert body_of(*QUOTA, *WORKER, *vpc, "--default_route=eth1")["UserVpc"] == {
        "VpcId": "v",
        "SwitchId": "s",
        "SecurityGroupId": "g",
        "DefaultRoute": "eth1",
        "ExtendedCIDRs": ["10.0.0.0/8", "11.0.0.0/8"],
    }


def test_data_sets_and_mounts() -> None:
    uris = "cpfs://cpfs-1.cn-x/ptc-1/exp-1/::/mnt/a,oss://b.oss-cn-x-internal.aliyuncs.com/a,b/::/mnt/b"
    words = ("--data_sources=d-a1b2,d-b1b2:v1,d-c1b2:v2:/mnt/c,d-d1b2:/mnt/d", f"--data_source_uris={uris}")
    assert body_of(*QUOTA, *WORKER, *words)["DataSources"] == [
        {"DataSourceId": "d-a1b2"},
        {"DataSourceId": "d-b1b2", "DataSourceVersion": "v1"},
        {"DataSourceId": "d-c1b2", "DataSourceVersion": "v2", "MountPath": "/mnt/c"},
        {"DataSourceId": "d-d1b2", "MountPath": "/mnt/d"},
        {"Uri": "cpfs://cpfs-1.cn-x/ptc-1/exp-1/", "MountPath": "/mnt/a"},
        {"Uri": "oss://b.oss-cn-x-internal.aliyuncs.com/a,b/", "MountPath": "/mnt/b"},
    ]


@pytest.mark.parametrize(
    ("memory", "sent"), [("24", "24Gi"), ("1.5", "1.5Gi"), ("24Gi", "24Gi"), ("512Mi", "512Mi")]
)
def test_a_size_without_a_unit_is_in_gi(memory: str, sent: str) -> None:
    words = ("--workers=1", "--worker_image=i", f"--worker_memory={memory}", f"--worker_shared_memory={memory}")
    assert body_of(*QUOTA, *words)["JobSpecs"][0]["ResourceConfig"] == {"Memory": sent, "SharedMemory": sent}


def test_a_private_image_has_its_user_in_each_role() -> None:
    words = (
        "--image_repo_username=u",
        "--image_repo_password=p",
        "--masters=1",
        "--master_image=i",
        "--master_cpu=1",
    )
    specs = body_of(*QUOTA, *WORKER, *words)["JobSpecs"]
    assert [each["Type"] for each in specs] == ["Master", "Worker"]
    assert [each["ImageConfig"] for each in specs] == [{"Username": "u", "Password": "p"}] * 2


def test_roles_without_pods_are_left_out() -> None:
    words = ("--masters=1", "--master_image=i", "--master_cpu=1", "--workers=0", "--worker_image=i")
    assert [each["Type"] for each in body_of(*QUOTA, *words)["JobSpecs"]] == ["Master"]
    public = ("--name=a", "--command=c", "--workers=2", "--worker_image=i", "--worker_spec=ecs.c6.large")
    specs = body_of(*public, "--chief=false", "--chief_image=i", job_type="TFJob")["JobSpecs"]
    assert [(each["Type"], each["PodCount"], each["EcsSpec"]) for each in specs] == [("Worker", 2, "ecs.c6.large")]


def test_roles_of_tensorflow_and_ray() -> None:
    roles = {"chief": "chief=true", "worker": "workers=2", "ps": "ps=1", "evaluator": "evaluators=1"}
    words = [
        word for role, count in roles.items() for word in (f"--{count}", f"--{role}_image=i", f"--{role}_cpu=1")
    ]
    specs = body_of(*QUOTA, *words, job_type="TFJob")["JobSpecs"]
    counts = [(each["Type"], each["PodCount"]) for each in specs]
    assert counts == [("Chief", 1), ("PS", 1), ("Worker", 2), ("Evaluator", 1)]
    ray = body_of(*QUOTA, *WORKER, "--heads=1", "--head_image=i", "--head_cpu=1", job_type="RayJob")["JobSpecs"]
    assert [each["Type"] for each in ray] == ["Head", "Worker"]


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (QUOTA, ["--workers"]),
        ((*WORKER, "--resource_id=q"), ["--name", "--command"]),
        ((*QUOTA, "--workers=1", "--worker_cpu=1"), ["--worker_image"]),
        (("--name=a", "--command=c", *WORKER), ["--worker_spec"]),
        ((*QUOTA, *WORKER, "--worker_spec=ecs.c6.large"), ["--workers"]),
        ((*QUOTA, *WORKER, "--worker_memory=much"), ["--worker_memory"]),
        ((*QUOTA, *WORKER, "--priority=10"), ["--priority"]),
        ((*QUOTA, *WORKER, "--priority=high"), ["--priority"]),
        ((*QUOTA, *WORKER, "--ps=1", "--ps_image=i"), ["--ps", "--ps_image"]),
        ((*QUOTA, *WORKER, "--data_source_uris=oss://b/a"), ["--data_source_uris"]),
        ((*QUOTA, *WORKER, "--data_source_uris=ftp://b/a::/mnt/a"), ["--data_source_uris"]),
        ((*QUOTA, *WORKER, "--data_sources=d-a1b2:/mnt/a,d-b1b2:/mnt/a"), ["--data_sources"]),
        ((*QUOTA, *WORKER, "--data_sources=d-a1b2:v1:mnt/a"), ["--data_sources"]),
        ((*QUOTA, *WORKER, "--name=a b"), ["--name"]),
        ((*QUOTA, *WORKER, "--switch_id=s"), ["--vpc_id"]),
        ((*QUOTA, *WORKER, "--success_policy=Some"), ["--success_policy"]),
        ((*QUOTA, *WORKER, "--job_reserved_policy=Some"), ["--job_reserved_policy"]),
        ((*QUOTA, *WORKER, "-e", "A=1"), ["-e"]),
        ((*QUOTA, *WORKER, "--enable_priority_preemption=true"), ["--enable_priority_preemption"]),
    ],
)
def test_mistakes_name_flags(words: tuple[str, ...], where: list[str]) -> None:
    assert places(*words) == where


def test_what_has_no_effect_is_a_warning() -> None:
    public = ("--name=a", "--command=c", "--workers=1", "--worker_image=i", "--worker_spec=ecs.c6.large")
    assert [each.where for each in converted(*public, "--priority=3")[2]] == ["--priority", "--workspace_id"]
