"""Looking at a job of containers: what an instance writes between two looks counts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk.execution.distributed import name_instances
from pai_sdk.execution.docker.executor import DockerExecutor
from pai_sdk.execution.docker.runfolder import RunFolder
from pai_sdk.execution.journal import Journal


def container(name: str, status: str, code: int = 0) -> Any:
    state = {"Status": status, "ExitCode": code, "OOMKilled": False}
    return SimpleNamespace(name=name, status=status, attrs={"State": state})


@pytest.mark.parametrize("code", [0, 5])
def test_an_instance_that_ends_while_it_is_looked_at_has_told_its_end_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Above all, an early success must not be taken for a failure, which would end the others."""
    run = RunFolder(tmp_path / "run")
    run.prepare({}, [])
    run.go()
    journal = Journal(tmp_path / "state")
    journal.folder.mkdir()
    instances = [asdict(one) for one in name_instances("j", "PyTorchJob", 2)]
    journal.write_job(
        {"job_id": "j", "instances": instances, "max_running_s": None, "grace_s": 1, "memory_bytes": None}
    )

    def of(job_id: str) -> list[Any]:
        (run.path / "j-worker-0.exit").write_text(f"{code}\n")
        return [container("j-master-0", "running"), container("j-worker-0", "exited", code)]

    executor = DockerExecutor()
    monkeypatch.setattr(executor._containers, "of", of)
    assert executor.state(tmp_path).phase != "ended"
    assert run.first_failure is None
