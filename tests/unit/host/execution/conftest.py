"""Jobs to run: requests made short, and an executor whose jobs are gone when a test is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import ExecutionState
from pai_sdk._host.execution.contract import launch_spec
from pai_sdk._host.execution.process.executor import ProcessExecutor
from pai_sdk._wire.pai.request import TrainingJobRequest
from tests.support import ml
from tests.support.wheels import write_wheel

DEADLINE_S = 100.0


def make_request(command: str | list[str] = "true", **fields: Any) -> TrainingJobRequest:
    count = fields.pop("count", 1)
    body = {
        "TrainingJobName": "demo",
        "AlgorithmSpec": {
            "Command": ["sh", "-c", command] if isinstance(command, str) else command,
            "Image": "unused",
            "JobType": fields.pop("job_type", "PyTorchJob"),
        },
        "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": count},
        **fields,
    }
    return TrainingJobRequest.model_validate(body)


@dataclass
class Jobs:
    """Runs jobs, each in a folder of its own."""

    folder: Path
    executor: ProcessExecutor
    roots: list[Path] = field(default_factory=list)

    def root(self, name: str) -> Path:
        return self.folder / "jobs with space" / name

    def start(self, request: TrainingJobRequest, *, name: str = "train1") -> Path:
        root = self.root(name)
        self.roots.append(root)
        self.executor.start(launch_spec(root, name, request))
        return root

    def run(self, command: str | list[str], *, name: str = "train1", **fields: Any) -> ExecutionState:
        self.start(make_request(command, **fields), name=name)
        return self.wait(name)

    def wait(self, name: str = "train1") -> ExecutionState:
        return self.until(lambda state: state.phase == "ended", name)

    def until(self, condition: Callable[[ExecutionState], bool], name: str = "train1") -> ExecutionState:
        deadline = time.monotonic() + DEADLINE_S
        while not condition(state := self.executor.state(self.root(name))):
            assert time.monotonic() < deadline, f"{state}\n{self.diary(name)}"
            time.sleep(0.005)
        return state

    def log(self, instance: str = "master-0", *, name: str = "train1") -> str:
        """What the instance wrote."""
        return ml.split_notice(self._whole_log(instance, name))[1]

    def notice(self, instance: str = "master-0", *, name: str = "train1") -> str:
        """What stands above that where /ml cannot be had."""
        return ml.split_notice(self._whole_log(instance, name))[0]

    def ml(self, name: str = "train1") -> str:
        """Where the variables point on this machine."""
        return "/ml" if ml.can_be_had() else str(Sandbox(self.root(name)).ml)

    def _whole_log(self, instance: str, name: str) -> str:
        file = Sandbox(self.root(name)).log_file(f"{name}-{instance}")
        return file.read_text() if file.exists() else ""

    def until_log(self, text: str, instance: str = "master-0") -> str:
        self.until(lambda state: text in self.log(instance) or state.phase == "ended")
        assert text in self.log(instance), self.diary()
        return self.log(instance)

    def diary(self, name: str = "train1") -> str:
        """All that helps to see why a test failed."""
        files = [*self.root(name).glob("logs/*.log"), *self.root(name).glob("state/*.log")]
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')}" for file in files)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path, ProcessExecutor(tmp_path / "cache", grace_s=0.4))
    yield jobs
    for root in jobs.roots:
        jobs.executor.stop(root, reason_code="StoppedByUser", reason_message="the test is over")
    for root in jobs.roots:
        jobs.wait(root.name)


@pytest.fixture(scope="session")
def tiny_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of `tiny` 1.0, so that pip needs no network."""
    folder = tmp_path_factory.mktemp("wheels")
    source = "def main():\n    print('tiny command')\n"
    write_wheel(folder, "tiny", "1.0", source, entry_points="[console_scripts]\ntiny = tiny:main\n")
    return folder
