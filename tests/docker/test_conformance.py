"""The executor of containers does what every executor does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import Executor
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.options import LocalOptions
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from tests.docker.conftest import remove_all
from tests.docker.engine import BASE_IMAGE, Engine
from tests.unit.host.execution.conformance import ExecutorConformance, Harness


class TestDockerExecutor(ExecutorConformance):
    @pytest.fixture
    def harness(self, docker_host: Engine, tmp_path: Path) -> Iterator[Harness]:
        with ExitStack() as stack:

            def make(grace_s: int) -> Executor:
                executor = DockerExecutor(options=LocalOptions(grace_s=grace_s))
                stack.callback(executor.close)
                return executor

            harness = Harness(tmp_path, make, BASE_IMAGE, lambda root: SharedFolder(Sandbox(root).shared_dir))
            yield harness
            for root in harness.roots:
                remove_all(docker_host, root.name)
