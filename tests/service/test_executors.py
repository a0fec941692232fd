"""The choice of what runs the jobs, and starts that take long; no engine is needed here."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import ExecutionState, ExecutorSetup, InstanceState, LaunchSpec
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.process.executor import ProcessExecutor
from pai_sdk._host.execution.registry import open_executor
from pai_sdk.errors import EngineNotFoundError, InvalidInputError
from tests.service.fakes import ScriptedExecutor
from tests.service.services import job_body
from tests.support.waiting import PATIENCE_S


def test_the_name_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    setup = ExecutorSetup(tmp_path / "cache")
    assert isinstance(open_executor("process", setup), ProcessExecutor)
    with pytest.raises(EngineNotFoundError, match=r"none\.sock.*no such socket"):
        open_executor("docker", setup)
    with pytest.raises(InvalidInputError, match=r"unknown value 'dokcer' \(one of process, docker"):
        open_executor("dokcer", setup)


def test_a_service_of_processes_loads_no_client_of_an_engine(tmp_path: Path) -> None:
    """It took a tenth of the start."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "import pai_sdk._service.server\n"
        "from pai_sdk._host.execution.base import ExecutorSetup\n"
        "from pai_sdk._host.execution.registry import open_executor\n"
        "open_executor('process', ExecutorSetup(Path(sys.argv[1])))\n"
        "print(sorted({'docker', 'requests', 'oss2', 'pai_sdk._host.execution.docker'} & {*sys.modules}))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_service_without_its_engine_does_not_start(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineNotFoundError), start("docker"):
        pass
    with start():  # and what it has touched is free again
        pass


def test_the_sizes_of_a_log_are_noted_with_their_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = Sandbox(tmp_path)
    sandbox.logs_dir.mkdir()
    sandbox.state_dir.mkdir()
    state = ExecutionState("running", instances=(InstanceState("job-master-0", "master"),))
    Journal(sandbox.state_dir).write_job({"job_id": "job", "instances": []})
    monkeypatch.setattr(DockerExecutor, "_state_of", lambda self, job: state)
    executor = DockerExecutor(records_log_sizes=True)
    for text in ("one\n", "", "two\n"):
        with sandbox.log_file("job-master-0").open("a") as log:
            log.write(text)
        executor.state(tmp_path)
    noted = [line.split()[1] for line in sandbox.times_file("job-master-0").read_text().splitlines()]
    assert noted == ["4", "8"]


class SlowToStart(ScriptedExecutor):
    """Waits in `start`, as for an image, until it is told to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.is_starting, self.is_told = threading.Event(), threading.Event()

    def start(self, spec: LaunchSpec) -> None:
        self.is_starting.set()
        assert self.is_told.wait(PATIENCE_S)
        super().start(spec)
        super().stop(
            spec.sandbox.root, reason_code="StoppedByUser", reason_message="The job was stopped by its user."
        )

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        self.is_told.set()


def test_a_start_that_takes_long_is_told_of_the_stop(start: Callable[..., Any]) -> None:
    executor = SlowToStart()
    with start(executor) as client:
        job_id = client.create(job_body())
        assert executor.is_starting.wait(PATIENCE_S)
        assert client.get(f"/trainingjobs/{job_id}")["Status"] == "Initializing"
        assert client.call("PUT", f"/trainingjobs/{job_id}/stop").status_code == 200
        assert client.until(job_id)["Status"] == "Terminated"
