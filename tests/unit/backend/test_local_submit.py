"""A local job whose start is cut off: it is gone with all it had, or it can still be found."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk.backend.base import Plan
from pai_sdk.backend.local import LocalBackend
from pai_sdk.errors import EngineNotFoundError, LocalRunError
from pai_sdk.execution.docker.executor import DockerExecutor
from pai_sdk.execution.docker.launch import Launch
from pai_sdk.execution.journal import Journal
from pai_sdk.execution.sandbox import Sandbox
from pai_sdk.job.request import TrainingJobRequest

PLAN = {
    "TrainingJobName": "t",
    "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
    "AlgorithmSpec": {"Image": "i", "Command": ["true"]},
}


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path, executor=DockerExecutor(lambda: SimpleNamespace()))  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), LocalRunError("the engine refused")])
@pytest.mark.parametrize("removal_fault", [None, EngineNotFoundError("it is gone"), KeyboardInterrupt()])
def test_a_start_that_is_cut_off(
    backend: LocalBackend,
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
    removal_fault: BaseException | None,
) -> None:
    removed: list[str] = []

    def run(launch: Launch, **_: Any) -> None:
        Journal(Sandbox(launch.sandbox.root).state_dir).write_job({"job_id": launch.job_id, "instances": []})
        raise fault

    def remove(job_id: str) -> None:
        if removal_fault:
            raise removal_fault
        removed.append(job_id)

    monkeypatch.setattr(Launch, "run", run)
    monkeypatch.setattr(backend._executor._containers, "remove", remove)
    with pytest.raises(type(fault) if not isinstance(removal_fault, KeyboardInterrupt) else KeyboardInterrupt):
        backend.submit(Plan(TrainingJobRequest.model_validate(PLAN)), progress=False)
    left = [path.name for path in (backend.data_dir / "jobs").iterdir()]
    if removal_fault is None:
        assert (left, len(removed)) == ([], 1)
    else:
        assert len(left) == 1, "containers that may be there cannot be found any more"
        assert Journal(Sandbox(backend.data_dir / "jobs" / left[0]).state_dir).read_job() is not None


def test_an_interrupted_start_says_what_became_of_the_job(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(launch: Launch, **_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Launch, "run", run)
    with pytest.raises(KeyboardInterrupt, match=r"local-\w+ was given up before it began") as caught:
        backend.submit(Plan(TrainingJobRequest.model_validate(PLAN)), progress=False)
    assert caught.value.__suppress_context__
