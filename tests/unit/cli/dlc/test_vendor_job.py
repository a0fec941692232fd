"""`pai-sdk dlc job submit`: the flags of the vendor's other command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.backend.dlc.mapping import SUBMISSION
from tests.unit.cli.dlc.conftest import Dlc
from tests.unit.client.api.scripted_server import Reply, ScriptedServer

COMMON = ("job", "submit", "--name=a", "--command=echo 1", "--image=i", "--workspace-id=1")
BODY = {
    "DisplayName": "a",
    "JobType": "PyTorchJob",
    "WorkspaceId": "1",
    "UserCommand": "echo\n1\n",
    "JobSpecs": [
        {"Type": "Worker", "PodCount": 1, "Image": "i", "EcsSpec": "ecs.c6.large", "LocalMountSpecs": []}
    ],
    "Envs": {"A": "1"},
}


def dry(dlc: Dlc, *arguments: str) -> Any:
    result = dlc(*arguments, "--dry-run")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_workers(dlc: Dlc, server: ScriptedServer) -> None:
    server.script = [Reply({"JobId": "dlc1", "RequestId": "R"})]
    words = ("--worker-count=2", "--resource-id=q", "--cpu=8", "--memory=16Gi", "--shared-memory=4Gi")
    assert dlc(*COMMON, *words, "-o", "quiet").stdout == "dlc1\n"
    assert json.loads(dlc(*COMMON, *words, "-o", "json").stdout) == {"JobId": "dlc1", "RequestId": "R"}
    assert "| dlc1" in dlc(*COMMON, *words).stdout
    body = server.asked[0].json
    assert [*body.pop("Envs")] == [SUBMISSION]
    assert body == {
        "DisplayName": "a",
        "JobType": "PyTorchJob",
        "WorkspaceId": "1",
        "ResourceId": "q",
        "UserCommand": "echo 1",
        "JobSpecs": [
            {
                "Type": "Worker",
                "PodCount": 2,
                "Image": "i",
                "ResourceConfig": {"CPU": "8", "Memory": "16Gi", "SharedMemory": "4Gi"},
            }
        ],
    }


def test_roles(dlc: Dlc) -> None:
    roles = ("--role", "Head:count=1,spec=ecs.c6.large", "--role=Worker:count=2,spec=ecs.g6.large,image=j")
    specs = dry(dlc, *COMMON, "--job-type=RayJob", *roles)["JobSpecs"]
    assert [(each["Type"], each["PodCount"], each["Image"]) for each in specs] == [
        ("Head", 1, "i"),
        ("Worker", 2, "j"),
    ]


def test_a_body_is_sent_as_it_is(dlc: Dlc, server: ScriptedServer, tmp_path: Path) -> None:
    server.script = [Reply({"JobId": "dlc1"})]
    (tmp_path / "job.json").write_text(json.dumps(BODY))
    assert dlc("job", "submit", "--body-json", f"@{tmp_path}/job.json").exit_code == 0
    assert dlc("job", "submit", "--body-json", json.dumps(BODY)).exit_code == 0
    bodies = [asked.json for asked in server.asked]
    keys = {body["Envs"].pop(SUBMISSION) for body in bodies}
    assert (bodies, len(keys)) == ([BODY, BODY], 2)


def test_overrides(dlc: Dlc) -> None:
    words = ("--override", "JobSpecs[0].PodCount=3", '--override=Settings.Tags={"a": "b"}', "--name=b")
    words += (
        "--override-string=Envs.A=2",
        "--override-unset=Envs.B",
        "--override-unset=JobSpecs.0.LocalMountSpecs",
    )
    body = dry(dlc, "job", "submit", "--body-json", json.dumps(BODY | {"Envs": {"A": "1", "B": "1"}}), *words)
    assert (body["DisplayName"], body["JobSpecs"][0]["PodCount"], [*body["Envs"]]) == ("b", 3, ["A"])
    assert body["Settings"] == {"Tags": {"a": "b"}}
    assert "LocalMountSpecs" not in body["JobSpecs"][0]


@pytest.mark.parametrize(
    "words",
    [
        ("job", "list"),
        ("job", "submit"),
        (*COMMON, "--worker_count=1"),
        (*COMMON, "--role=Worker:count=x,spec=e"),
        (*COMMON, "--role=Worker:colour=red,spec=e"),
        (*COMMON, "--role=Worker:spec=e", "--cpu=1"),
        (*COMMON, "--worker-spec=e", "-o", "yaml"),
        (*COMMON, "--worker-spec=e", "--override=JobSpecs[7].PodCount=1"),
        (*COMMON, "--worker-spec=e", "--override=PodCount"),
        ("job", "submit", "--body-json", "{"),
        ("job", "submit", "--body-json", "[]"),
        ("job", "submit", "--body-json", "@/nowhere/job.json"),
    ],
)
def test_mistakes(words: tuple[str, ...], dlc: Dlc, server: ScriptedServer) -> None:
    assert (dlc(*words).exit_code, server.asked) == (2, [])


def test_unknown_fields_are_warnings(dlc: Dlc) -> None:
    result = dlc("job", "submit", "--body-json", json.dumps(BODY | {"DisplayNme": "x"}), "--dry-run")
    assert (result.exit_code, "DisplayName" in result.stderr) == (0, True)
