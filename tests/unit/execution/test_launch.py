"""Who containers run as, without an engine: it is what the engine is asked for that counts."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk.execution.docker.container import Mounts
from pai_sdk.execution.docker.engine import Engine
from pai_sdk.execution.docker.launch import Launch
from pai_sdk.execution.docker.options import LocalOptions
from pai_sdk.execution.sandbox import Sandbox
from pai_sdk.job.request import TrainingJobRequest


class AskedFor:
    """Stands for docker-py's client; keeps what it is asked to create."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.images = SimpleNamespace(get=lambda name: SimpleNamespace(id=f"id of {name}"))
        self.containers = SimpleNamespace(create=self._create)

    def _create(self, **arguments: Any) -> Any:
        self.created.append(arguments)
        return SimpleNamespace(start=lambda: None)


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
    request = TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "test",
            "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
            "AlgorithmSpec": {"Image": "img", "Command": ["true"]},
        }
    )
    client, sandbox = AskedFor(), Sandbox(tmp_path)
    sandbox.create(request)
    engine = Engine("unix:///none", client, is_rootless=rootless)  # type: ignore[arg-type]
    Launch(engine, sandbox, "local-1", request, Mounts(), LocalOptions(user=user)).run(progress=False)
    assert [one["user"] for one in client.created] == [expected]
    assert [one["image"] for one in client.created] == ["id of img"]
