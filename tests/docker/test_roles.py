"""Roles and mounts in containers, beyond what the conformance suite has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.options import LocalOptions
from tests.docker.conftest import remove_all
from tests.docker.engine import BASE_IMAGE, Engine
from tests.unit.host.execution.conformance import Harness, role


@pytest.mark.parametrize("options", [{"network": "host"}, {"user": "root"}], ids=str)
def test_names_and_mounts_with_options(docker_host: Engine, tmp_path: Path, options: dict[str, Any]) -> None:
    executor = DockerExecutor(options=LocalOptions(**options))
    harness = Harness(tmp_path, lambda grace_s: executor, BASE_IMAGE)
    root = tmp_path / "local-roles"
    Sandbox(root).mount_dir(0).mkdir(parents=True)
    finds = "import os, socket; socket.gethostbyname(os.environ['PAI_TRAINING_JOB_ID'] + '-master-0')"
    waits = "until [ -e done ]; do sleep 0.05; done"
    roles = [
        role("Master", waits),
        role("Worker", f'python3 -c "{finds}" && echo new >/mnt/data/new && touch done'),
    ]
    mounts = [{"Path": "/mnt/data", "Uri": "oss://bucket/data/", "Access": "RW"}]
    try:
        harness.start_again(root, "exit 3", Roles=roles, Mounts=mounts)
        state = harness.wait(root)
        assert state.succeeded, harness.logs(root)
        assert (Sandbox(root).mount_dir(0) / "new").read_text() == "new\n"
    finally:
        remove_all(docker_host, root.name)
        executor.close()
