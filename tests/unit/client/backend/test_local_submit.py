"""A local job whose start is cut off: it is gone with all it had, or it can still be found."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._client.backend.local.files import file_uri
from pai_sdk._client.backend.local.jobs import LocalJobs
from pai_sdk._client.submission import submit
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.launch import Launch
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import EngineNotFoundError, InvalidInputError, LocalRunError
from tests.support.messages import refused

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
        Journal(Sandbox(launch.sandbox.root).state_dir).write_job({"job_id": launch.spec.job_id, "instances": []})
        raise fault

    def remove(job_id: str) -> None:
        if removal_fault:
            raise removal_fault
        removed.append(job_id)

    monkeypatch.setattr(Launch, "run", run)
    monkeypatch.setattr(backend._executor._containers, "remove", remove)
    with pytest.raises(type(fault) if not isinstance(removal_fault, KeyboardInterrupt) else KeyboardInterrupt):
        submit(Plan(TrainingJobRequest.model_validate(PLAN)), backend, progress=False)
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
    with refused(KeyboardInterrupt) as caught:
        submit(Plan(TrainingJobRequest.model_validate(PLAN)), backend, progress=False)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("place", ["a file", "a file/below", "a dead link"])
def test_an_output_that_cannot_be_a_folder_is_refused_before_anything_is_made(
    backend: LocalBackend, tmp_path: Path, place: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a file").touch()
    (outside / "a dead link").symlink_to(outside / "nowhere")
    outputs = [{"Name": "model", "OutputUri": (outside / place).as_uri()}]
    request = TrainingJobRequest.model_validate({**PLAN, "OutputChannels": outputs})
    with refused(InvalidInputError, "outputs['model']"):
        submit(Plan(request), backend, progress=False)
    assert not (backend.data_dir / "jobs").exists()


def test_an_output_that_is_not_the_users_to_write_to_is_refused(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may do anything
    outputs = [{"Name": "model", "OutputUri": (tmp_path / "new" / "model").as_uri()}]
    request = TrainingJobRequest.model_validate({**PLAN, "OutputChannels": outputs})
    with refused(InvalidInputError, "outputs['model']"):
        submit(Plan(request), backend, progress=False)


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EACCES,
        errno.EROFS,
        errno.ENOTDIR,
    ],
)
@pytest.mark.parametrize("names_a_file", [True, False])
def test_a_fault_of_the_file_system_names_the_file_and_what_to_do(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, number: int, names_a_file: bool
) -> None:
    file = str(backend.data_dir / "some file")

    def create(sandbox: Sandbox, request: TrainingJobRequest) -> None:
        raise OSError(number, os.strerror(number), *([file] if names_a_file else []))

    monkeypatch.setattr(Sandbox, "create", create)
    with refused(LocalRunError) as caught:
        submit(Plan(TrainingJobRequest.model_validate(PLAN)), backend, progress=False)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_data_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    backend = LocalBackend(tmp_path / "data", executor=DockerExecutor(lambda: SimpleNamespace()))  # type: ignore[arg-type]
    with refused(LocalRunError):
        submit(Plan(TrainingJobRequest.model_validate(PLAN)), backend, progress=False)


def test_default_outputs_are_folders_of_the_data_folder(backend: LocalBackend) -> None:
    expected = f"{backend.data_dir.as_uri()}/outputs/digits-x7k2/model/"
    assert backend.default_output("digits-x7k2", "model") == expected


def test_the_uri_of_a_folder_ends_with_a_slash() -> None:
    assert file_uri(Path("/data/my set"), folder=True) == "file:///data/my%20set/"
    assert file_uri(Path("/data/my set"), folder=False) == "file:///data/my%20set"


def test_without_a_folder_there_are_no_jobs(tmp_path: Path) -> None:
    assert LocalJobs(tmp_path / "none", DockerExecutor()).ids() == []
