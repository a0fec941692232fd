"""Names, ranks and variables of instances with roles."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pai_sdk._host.agent.distributed import Rendezvous, rendezvous_variables
from pai_sdk._host.execution import contract
from pai_sdk._host.execution.roles import (
    has_unlike_instances,
    mount_path_problems,
    role_problems,
    start_conditions,
)
from pai_sdk._wire.pai.request import TrainingJobRequest

JOB = "dlc1xjcumbfm7aai"


def request(job_type: str = "PyTorchJob", *roles: dict[str, Any], **fields: Any) -> TrainingJobRequest:
    wire = {
        "TrainingJobName": "n",
        "ComputeResource": {"EcsSpec": "local"},
        "AlgorithmSpec": {"Image": "i", "Command": ["c"], "JobType": job_type},
        **({"Roles": [*roles]} if roles else {}),
        **fields,
    }
    return TrainingJobRequest.model_validate(wire)


def role(name: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    return {"Name": name, "Count": count, **fields}


def variables(job_type: str, *roles: dict[str, Any], job_id: str = JOB) -> list[dict[str, str]]:
    members = contract.instances(job_id, request(job_type, *roles))
    workers = tuple(f"host{rank}:{2222}" for rank in range(len(members)))
    meeting = Rendezvous("host0", 23456, workers, roles=tuple(member.role for member in members))
    return [dict(rendezvous_variables(member, meeting, job_type=job_type)) for member in members]


@pytest.mark.parametrize(
    ("job_type", "roles", "names"),
    [
        ("PyTorchJob", [role("Worker", 3)], ["master-0", "worker-0", "worker-1"]),
        ("PyTorchJob", [role("Worker", 1), role("Master")], ["master-0", "worker-0"]),
        ("PyTorchJob", [role("Evaluator"), role("Worker", 2)], ["master-0", "worker-0", "evaluator-0"]),
        ("XGBoostJob", [role("Worker", 2)], ["master-0", "worker-0"]),
        (
            "TFJob",
            [role("PS", 2), role("Evaluator"), role("Worker"), role("Chief")],
            ["chief-0", "worker-0", "ps-0", "ps-1", "evaluator-0"],
        ),
        ("MPIJob", [role("Launcher"), role("Worker", 2)], ["launcher-0", "worker-0", "worker-1"]),
        ("RayJob", [role("Worker-gpu"), role("Head")], ["head-0", "worker-gpu-0"]),
    ],
)
def test_names(job_type: str, roles: list[dict[str, Any]], names: list[str]) -> None:
    members = contract.instances(JOB, request(job_type, *roles))
    assert [member.name for member in members] == [f"{JOB}-{name}" for name in names]
    assert [member.rank for member in members] == [*range(len(names))]


def test_a_job_of_dlc_without_roles_has_their_names_too() -> None:
    compute = {"EcsSpec": "local", "EcsCount": 2}
    members = contract.instances(JOB, request("XGBoostJob", ComputeResource=compute))
    assert [member.role for member in members] == ["master", "worker"]
    members = contract.instances("train1", request("XGBoostJob", ComputeResource=compute))
    assert [member.role for member in members] == ["worker", "worker"]


def test_ranks_are_those_of_the_rendezvous() -> None:
    chief, worker, ps = variables("TFJob", role("PS"), role("Worker"), role("Chief"))
    assert [(each.get("RANK"), each.get("WORLD_SIZE")) for each in (chief, worker, ps)] == [
        ("0", "2"),
        ("1", "2"),
        (None, None),
    ]
    assert {each["MASTER_ADDR"] for each in (chief, worker, ps)} == {"host0"}


def test_tensorflow_has_all_roles() -> None:
    configs = [json.loads(each["TF_CONFIG"]) for each in variables("TFJob", role("PS"), role("Worker", 2))]
    assert configs[0]["cluster"] == {"worker": ["host0:2222", "host1:2222"], "ps": ["host2:2222"]}
    assert [config["task"] for config in configs] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
        {"type": "ps", "index": 0},
    ]
    (single,) = variables("TFJob", role("Worker"))
    assert json.loads(single["TF_CONFIG"])["cluster"] == {"worker": ["host0:2222"]}
    assert "TF_CONFIG" not in variables("PyTorchJob", role("Worker", 2))[0]


def test_who_is_awaited_and_who_can_fail_the_job() -> None:
    roles = [
        role("Worker"),
        role("PS"),
        role("Evaluator", CountsForSuccess=True),
        role("Helper", CountsForSuccess=False),
    ]
    members = {member.role: member for member in contract.instances(JOB, request("TFJob", *roles))}
    flags = {name: (member.is_awaited, member.can_fail_job) for name, member in members.items()}
    assert flags == {
        "worker": (True, True),
        "ps": (False, True),
        "evaluator": (True, True),
        "helper": (False, False),
    }


def test_the_first_worker_is_waited_for_as_the_others() -> None:
    wanted = request("PyTorchJob", role("Worker", 2), role("Tail", StartAfter=[{"Role": "worker", "MinCount": 1}]))
    members = contract.instances(JOB, wanted)
    assert [start_conditions(wanted, members, member) for member in members] == [
        [],
        [],
        [([f"{JOB}-master-0", f"{JOB}-worker-0"], 1)],
    ]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"RestartPolicy": "Always"}, "restart_policy"),
        ({"StartAfter": [{"Role": "PS", "Phase": "Succeeded"}]}, "start_after.phase"),
        ({"StartAfter": [{"Role": "PS", "MinCount": 3}]}, "start_after.min_count"),
    ],
)
def test_what_executors_cannot_do_is_refused(fields: dict[str, Any], where: str) -> None:
    problems = role_problems(request("TFJob", role("Worker", **fields), role("PS", 2)))
    assert [problem.where for problem in problems] == [f"roles['Worker'].{where}"]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ([], False),
        ([role("Worker", 2)], False),
        ([role("Worker", Command=["x"])], True),
        ([role("Worker"), role("PS")], True),
        ([role("Worker", 2), role("Chief")], False),
        ([role("Worker", Command=["c"], Image="i")], False),
        ([role("Worker", StartAfter=[{"Role": "Chief"}]), role("Chief")], True),
        ([role("Worker", CountsForSuccess=False), role("Chief")], True),
        ([role("Worker"), role("Chief", InstanceSpec={"CPU": "2"})], True),
    ],
)
def test_jobs_that_need_an_executor_for_roles(roles: list[dict[str, Any]], expected: bool) -> None:
    assert has_unlike_instances(request("TFJob", *roles)) == expected


@pytest.mark.parametrize("path", ["/etc", "/usr/lib", "/proc/1", "/dev/shm", "/ml", "/ml/input", "/lib", "/run"])
def test_mounts_that_hide_the_system_are_refused(path: str) -> None:
    wanted = request(Mounts=[{"Path": path, "Uri": "oss://b/d/"}])
    assert [problem.where for problem in mount_path_problems(wanted)] == [f"mounts[{path!r}]"]


@pytest.mark.parametrize("path", ["/mnt/data", "/data", "/srv/data", "/ml/input/data", "/opt", "/home/x"])
def test_other_mounts_are_possible(path: str) -> None:
    assert [*mount_path_problems(request(Mounts=[{"Path": path, "Uri": "oss://b/d/"}]))] == []


def test_a_job_of_dlc_knows_its_id() -> None:
    wanted = request("PyTorchJob", role("Worker"))
    (member,) = contract.instances(JOB, wanted)
    variables = contract.environment(JOB, wanted, member, input_files={}).variables
    assert (variables["DLC_JOB_ID"], variables["JOB_NAME"]) == (JOB, JOB)
    wanted = request("PyTorchJob", role("Worker"), Environments={"JOB_NAME": "mine"})
    assert contract.environment(JOB, wanted, member, input_files={}).variables["JOB_NAME"] == "mine"
