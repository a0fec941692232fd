"""Who containers run as and what is installed in them, without an engine: what it is asked for counts."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker import APIClient
from docker.errors import APIError
from requests import ConnectionError

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.contract import launch_spec
from pai_sdk._host.execution.docker.engine import Engine
from pai_sdk._host.execution.docker.launch import Launch
from pai_sdk._host.execution.docker.options import LocalOptions
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import LocalRunError
from tests.support.messages import refused


class AskedFor:
    """Stands for docker-py's client; keeps what it is asked to create."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.images = SimpleNamespace(get=lambda name: SimpleNamespace(id=f"id of {name}"))
        self.api = APIClient("unix:///none", version="1.41")
        self.api.create_container_from_config = self._create
        self.api.start = lambda container: None

    def _create(self, config: dict[str, Any], name: str, *_: object) -> dict[str, str]:
        self.created.append({**config, "Name": name})
        return {"Id": name}


def a_request(**fields: Any) -> TrainingJobRequest:
    return TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "test",
            "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
            "AlgorithmSpec": {"Image": "img", "Command": ["true"]},
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("rootless", "user", "expected"),
    [
        (False, None, f"{os.getuid()}:{os.getgid()}"),
        (False, "root", "0:0"),
        (True, None, "0:0"),  # there root is the caller
        (True, "root", "0:0"),
    ],
)
def test_who_a_container_runs_as(tmp_path: Path, rootless: bool, user: str | None, expected: str) -> None:
    request = a_request()
    client, sandbox = AskedFor(), Sandbox(tmp_path)
    sandbox.create(request)
    engine = Engine("unix:///none", client, is_rootless=rootless)  # type: ignore[arg-type]
    Launch(engine, launch_spec(tmp_path, "local-1", request), LocalOptions(user=user)).run(progress=False)
    assert [one["User"] for one in client.created] == [expected]
    assert [one["Image"] for one in client.created] == ["id of img"]


def test_the_engine_is_told_the_grace_period_and_all_else_that_a_container_is_asked_for(tmp_path: Path) -> None:
    request = a_request(ComputeResource={"EcsSpec": "local", "EcsCount": 1, "InstanceSpec": {"Memory": "1GiB"}})
    client, sandbox = AskedFor(), Sandbox(tmp_path)
    sandbox.create(request)
    engine = Engine("unix:///none", client, has_selinux=True)  # type: ignore[arg-type]
    options = LocalOptions(grace_s=40, network="mine")
    Launch(engine, launch_spec(tmp_path, "local-1", request), options).run(progress=False)
    [created] = client.created
    assert (created["Name"], created["StopSignal"], created["StopTimeout"]) == ("local-1-master-0", "SIGTERM", 45)
    host = created["HostConfig"]
    assert (host["NetworkMode"], host["Memory"], host["SecurityOpt"]) == ("mine", 1 << 30, ["label=disable"])
    assert "/ml" in [mount["Target"] for mount in host["Mounts"]]


@pytest.mark.parametrize("listed", [["tinydb==4.8", "rich>=13"], None])
@pytest.mark.parametrize("in_code", [True, False])
def test_requirements_come_from_the_parameter_and_from_the_code(
    tmp_path: Path, listed: list[str] | None, in_code: bool
) -> None:
    request, sandbox = a_request(PythonRequirements=listed), Sandbox(tmp_path)
    sandbox.create(request)
    if in_code:
        (sandbox.usercode / "requirements.txt").write_text("numpy\n")
    Launch(Engine("unix:///none", AskedFor()), launch_spec(tmp_path, "local-1", request)).run(progress=False)  # type: ignore[arg-type]
    installed = sandbox.root / "shared" / "requirements.txt"
    lines = installed.read_text().splitlines() if installed.exists() else []
    assert lines == [*(listed or ()), *(["-r /ml/usercode/requirements.txt"] if in_code else [])]


def test_what_the_engine_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise APIError("400", explanation="Minimum memory limit allowed is 6MB")

    client, sandbox = AskedFor(), Sandbox(tmp_path)
    client.api.create_container_from_config = refuse
    sandbox.create(a_request())
    with refused(LocalRunError):
        Launch(Engine("unix:///none", client), launch_spec(tmp_path, "local-1", a_request())).run(progress=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", ["it was asked for the image 'img'", "it started the job's containers"])
def test_an_engine_that_hangs_up_is_named(tmp_path: Path, moment: str) -> None:
    def hang_up(*_: object, **__: object) -> None:
        raise ConnectionError("Connection aborted.")

    client, sandbox = AskedFor(), Sandbox(tmp_path)
    if "image" in moment:
        client.images = SimpleNamespace(get=hang_up)
    else:
        client.api.create_container_from_config = hang_up
    sandbox.create(a_request())
    engine = Engine("unix:///none", client)  # type: ignore[arg-type]
    with refused(LocalRunError):
        Launch(engine, launch_spec(tmp_path, "local-1", a_request())).run(progress=False)


def test_what_may_be_secret_is_for_its_owner_only(tmp_path: Path) -> None:
    """Whatever the umask: variables, and the password of an index URL."""
    before = os.umask(0)
    try:
        SharedFolder(tmp_path).prepare({"a.env": "TOKEN=x"}, ["--index-url=https://me:x@index.example.com"])
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir() if path.is_file()}
    assert set(modes) >= {"a.env", "requirements.txt"}
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "requirements.txt").read_text() == "--index-url=https://me:x@index.example.com\n"
