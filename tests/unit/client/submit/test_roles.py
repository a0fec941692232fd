"""Roles of a job, from the parameter to the request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._client.job.field_groups import request_groups
from pai_sdk._client.submit.cloning import clone_plan
from pai_sdk._client.submit.job_file import JobFile
from pai_sdk._wire.masking import public_request
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import InvalidInputError
from pai_sdk.jobs import Role
from tests.unit.client.submit.test_submitting import FakeSession


def estimator(**parameters: Any) -> Estimator:
    usual = {"command": "python train.py", "instance_type": "ecs.c6.large", "session": FakeSession()}
    return Estimator("python:3.11", **{**usual, **parameters})


def wire_of(roles: Any, **parameters: Any) -> dict[str, Any]:
    return estimator(roles=roles, **parameters).plan().request.to_wire()


def refused_at(roles: Any, **parameters: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        estimator(roles=roles, **parameters).plan()
    return [problem.where for problem in caught.value.problems]


def test_each_attribute_of_a_role_reaches_the_request() -> None:
    wire = wire_of(
        {
            "Chief": Role(is_chief=True),
            "Worker": {
                "instance_count": 2,
                "command": "python work.py",
                "image_uri": "python:3.12",
                "instance_type": "ecs.c6.xlarge",
                "instance_spec": {"cpu": 4},
                "counts_for_success": False,
                "start_after": "Chief",
                "restart_policy": "Never",
            },
        }
    )
    chief, worker = wire["Roles"]
    assert chief == {"Name": "Chief", "Count": 1, "IsChief": True}
    assert worker == {
        "Name": "Worker",
        "Count": 2,
        "Image": "python:3.12",
        "Command": ["sh", "-c", "python work.py"],
        "EcsSpec": "ecs.c6.xlarge",
        "InstanceSpec": {"CPU": "4"},
        "RestartPolicy": "Never",
        "CountsForSuccess": False,
        "StartAfter": [{"Role": "Chief"}],
    }
    assert wire["ComputeResource"]["EcsCount"] == 3


@pytest.mark.parametrize(
    ("roles", "where"),
    [
        ({"Worker": {"count": 2}}, ["roles['Worker'].count"]),
        ({"Worker": 2}, ["roles['Worker']"]),
        ({"Worker": {"instance_count": 0}}, ["roles['Worker'].instance_count"]),
        ({"Worker": {}, "worker": {}}, ["roles"]),
        ({"Worker": {"start_after": "PS"}}, ["roles"]),
        ({"Worker": {"restart_policy": "Sometimes"}}, ["roles['Worker'].restart_policy"]),
        ({"A": Role(is_chief=True), "B": Role(is_chief=True)}, ["roles"]),
        ({}, ["roles"]),
        (["Worker"], ["roles"]),
    ],
)
def test_roles_that_cannot_be_are_refused(roles: Any, where: list[str]) -> None:
    assert refused_at(roles) == where


def test_the_number_of_instances_is_that_of_the_roles() -> None:
    assert refused_at({"Worker": Role()}, instance_count=2) == ["instance_count"]


def test_the_cost_is_that_of_all_roles() -> None:
    roles = {"Worker": Role(instance_count=2), "PS": Role(instance_type="ecs.big")}
    limits: dict[str, Any] = {"max_run_time": 3600, "prices": {"ecs.c6.large": 1.0, "ecs.big": 5.0}}
    assert estimator(roles=roles, max_cost=7, **limits).plan()
    assert refused_at(roles, max_cost=6.9, **limits) == ["max_cost"]
    assert refused_at(roles, max_cost=7, max_run_time=3600, prices={"ecs.c6.large": 1.0}) == ["max_cost"]


def test_secrets_of_commands_are_not_shown() -> None:
    command = "export API_TOKEN=abcdefgh; python train.py"
    made = estimator(roles={"Worker": Role(command=command), "PS": Role(command=["sh", "-c", command])})
    request = made.plan().request
    record = JobRecord.model_validate({**request.to_wire(), "TrainingJobId": "train1", "Status": "Succeed"})
    shown = [repr(made), str(made.plan()), repr(request), repr(record), str(request_groups(record))]
    assert [text for text in shown if "abcdefgh" in text] == []
    assert "abcdefgh" not in json.dumps(public_request(request))


def test_a_copy_of_a_job_has_its_roles() -> None:
    request = estimator(roles={"Worker": Role(instance_count=2), "Evaluator": Role()}).plan().request
    record = JobRecord.model_validate({**request.to_wire(), "TrainingJobId": "train1", "Status": "Succeed"})
    copy = clone_plan(record, labels={"copy": "1"}).request
    assert copy.roles == request.roles


def test_a_job_file_has_roles() -> None:
    roles = {"Worker": {"instance_count": 2}, "Evaluator": {"command": "python evaluate.py"}}
    values = {"image_uri": "python:3.11", "command": "python train.py", "instance_type": "ecs.a", "roles": roles}
    _, plan = JobFile(values).plan(FakeSession())
    assert [role.count for role in plan.request.roles or ()] == [2, 1]


def test_training_jobs_of_the_cloud_have_no_roles() -> None:
    keys = {"access_key_id": "LTAI-example", "access_key_secret": "a-secret"}
    with Session("cn-hangzhou", "123", oss_bucket_name="models", **keys) as session:
        roles = {"Master": Role(), "Worker": Role(instance_count=2)}
        assert refused_at(roles, session=session) == ["roles"]
        assert len(estimator(roles=roles, session=session, api="dlc").plan().body["JobSpecs"]) == 2
