"""Roles and mounts of a request: what each may say, and what they may not say together."""

from __future__ import annotations

from typing import Any

import pytest

from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.recorded import request_of
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.roles import Mount, Role
from pai_sdk.errors import InvalidInputError

PLAIN = {"TrainingJobName": "n", "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": 3}}
WHOLE = {
    **PLAIN,
    "Roles": [
        {"Name": "PS", "Count": 2, "RestartPolicy": "Never", "InstanceSpec": {"CPU": "4"}},
        {
            "Name": "Worker",
            "Count": 1,
            "Command": ["sh", "-c", "x"],
            "StartAfter": [{"Role": "ps", "MinCount": 1}],
        },
    ],
    "Mounts": [{"Path": "/mnt/data", "Uri": "oss://b/data/", "Access": "RW"}],
}


def test_a_request_without_them_is_as_before() -> None:
    request = TrainingJobRequest.model_validate(PLAIN)
    assert (request.roles, request.mounts, request.instance_count) == (None, None, 3)
    assert not {"Roles", "Mounts"} & {*request.to_wire()}


def test_they_are_written_and_read_back() -> None:
    request = TrainingJobRequest.model_validate(WHOLE)
    assert request.instance_count == 3
    assert request.to_wire()["Roles"] == WHOLE["Roles"]
    assert request.to_wire()["Mounts"] == WHOLE["Mounts"]


def test_a_record_gives_them_back() -> None:
    record = JobRecord.model_validate({**WHOLE, "TrainingJobId": "train1"})
    assert record.num_instances == 3
    assert request_of(record) == TrainingJobRequest.model_validate(WHOLE)


@pytest.mark.parametrize(
    ("part", "where"),
    [
        ({"name": ""}, "Role.name"),
        ({"name": "2nd"}, "Role.name"),
        ({"name": "a/b"}, "Role.name"),
        ({"name": "Worker", "count": 0}, "Role.count"),
        ({"name": "Worker", "command": []}, "Role.command"),
        ({"name": "Worker", "restart_policy": "Maybe"}, "Role.restart_policy"),
        ({"name": "Worker", "comand": ["x"]}, "Role.comand"),
    ],
)
def test_wrong_roles(part: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Role(**part)
    assert [problem.where for problem in refused.value.problems] == [where]


@pytest.mark.parametrize("path", ["", "/", "data", "/a/../b", "//", "/.", "/a\0b"])
def test_wrong_paths(path: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Mount(path=path, uri="oss://b/d/")
    assert [problem.where for problem in refused.value.problems] == ["Mount.path"]


@pytest.mark.parametrize(("path", "normal"), [("/a/", "/a"), ("//a//b/./c", "/a/b/c"), ("/a b", "/a b")])
def test_paths_are_normal(path: str, normal: str) -> None:
    assert Mount(path=path, uri="nas://1.cn-x/d/").path == normal


@pytest.mark.parametrize("uri", ["", "/data", "oss:///data", "oss:/b/d"])
def test_wrong_uris(uri: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Mount(path="/data", uri=uri)
    assert [problem.where for problem in refused.value.problems] == ["Mount.uri"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"Roles": []}, "Roles is empty"),
        ({"Roles": [{"Name": "Worker"}, {"Name": "worker"}]}, "'worker' is defined 2 times"),
        (
            {"Roles": [{"Name": "A", "IsChief": True}, {"Name": "B", "IsChief": True}]},
            "only one role can be the chief",
        ),
        ({"Roles": [{"Name": "A", "StartAfter": [{"Role": "B"}]}]}, "waits for 'b', which is not a role"),
        ({"Roles": [{"Name": "A", "StartAfter": [{"Role": "A"}]}]}, "wait for each other: a"),
        (
            {
                "Roles": [
                    {"Name": "A", "StartAfter": [{"Role": "B"}]},
                    {"Name": "B", "StartAfter": [{"Role": "A"}]},
                ]
            },
            "wait for each other: a, b",
        ),
        (
            {"Mounts": [{"Path": "/d", "Uri": "oss://b/1/"}, {"Path": "/d/", "Uri": "oss://b/2/"}]},
            "2 mounts are at /d",
        ),
    ],
)
def test_what_contradicts(part: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        TrainingJobRequest(**{**PLAIN, **part})
    assert message in str(refused.value)
