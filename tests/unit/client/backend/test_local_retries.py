"""Local jobs that are started again after an interruption; here their instances are processes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend, steps
from pai_sdk._client.backend.local.jobs import LocalJob
from pai_sdk._client.submission import submit as submit_plan
from pai_sdk._host.execution.base import LaunchSpec
from pai_sdk._host.execution.process.executor import ProcessExecutor
from pai_sdk._wire.pai.job_retries import JobRetries
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import EngineNotFoundError
from tests.support.waiting import PATIENCE_S, until

FAILS_TWICE = 'echo attempt; echo x >> "$PAI_OUTPUT_MODEL/runs"; [ $(wc -l < "$PAI_OUTPUT_MODEL/runs") = 3 ]'
WAIT_S = 0.3


class LocalProcesses(ProcessExecutor):
    """Processes, asked as the engine is."""

    engine = None

    def start(self, spec: LaunchSpec, *, progress: bool = False) -> None:
        super().start(spec)

    def refresh_many(self, roots: Iterable[Path]) -> None:
        return None

    def close(self) -> None:
        return None

    def sweep(self) -> list[str]:
        return []


def backend_on(folder: Path) -> LocalBackend:
    return LocalBackend(folder, executor=LocalProcesses(cache_dir=folder / "pip"))  # type: ignore[arg-type]


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalBackend:
    monkeypatch.setattr(JobRetries, "wait_s", lambda retries, attempt: WAIT_S)
    return backend_on(tmp_path)


def submit(backend: LocalBackend, command: str, most: int = 3) -> str:
    wire: dict[str, Any] = {
        "TrainingJobName": "t",
        "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
        "AlgorithmSpec": {
            "Image": "i",
            "Command": ["sh", "-c", command],
            "OutputChannels": [{"Name": "model", "Required": False}],
        },
        "OutputChannels": [{"Name": "model", "OutputUri": f"file://{backend.data_dir}/model/"}],
        "Settings": {"Tags": JobRetries.checked(most, ["NonZeroExit"]).tags()},
    }
    return submit_plan(Plan(TrainingJobRequest.model_validate(wire)), backend, progress=False)


def until_status(backend: LocalBackend, job_id: str, status: str) -> JobRecord:
    until(lambda: backend.get(job_id).status == status, f"{status}: {backend.get(job_id)}")
    return backend.get(job_id)


def lines(backend: LocalBackend, job_id: str) -> list[str]:
    page = backend.read_log(job_id, f"{job_id}-master-0", start=0, limit=100)
    return [line for line in page.lines if line == "attempt"]


def test_a_job_goes_on_until_it_succeeds(backend: LocalBackend) -> None:
    job_id = submit(backend, FAILS_TWICE)
    record = until_status(backend, job_id, "Succeed")
    assert lines(backend, job_id) == ["attempt"] * 3
    statuses = [str(one.status) for one in record.status_transitions]
    assert statuses == ["Initializing", *["Running", "Submitted"] * 2, "Running", "Succeed"]
    assert backend.read_log(job_id, f"{job_id}-master-0", start=0, limit=100).complete


def test_while_it_waits_it_says_why_and_its_log_goes_on(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobRetries, "wait_s", staticmethod(lambda attempt: 1000.0))
    job_id = submit(backend, "echo attempt; exit 3")
    record = until_status(backend, job_id, "Submitted")
    assert (record.reason_code, "3" in str(record.reason_message)) == ("NonZeroExit", True)
    assert not backend.read_log(job_id, f"{job_id}-master-0", start=0, limit=100).complete
    assert [str(one.status) for one in record.status_transitions] == ["Initializing", "Running", "Submitted"]
    assert backend.prune() == []


def test_attempts_end_with_their_number(backend: LocalBackend) -> None:
    job_id = submit(backend, "echo attempt; exit 3", most=1)
    assert until_status(backend, job_id, "Failed").reason_code == "NonZeroExit"
    assert lines(backend, job_id) == ["attempt"] * 2


def test_a_stop_during_the_wait_is_the_end(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobRetries, "wait_s", staticmethod(lambda attempt: 1000.0))
    job_id = submit(backend, "exit 3")
    until_status(backend, job_id, "Submitted")
    backend.stop(job_id)
    record = backend.get(job_id)
    assert (record.status, record.reason_code) == ("Terminated", "StoppedByUser")
    assert backend.read_log(job_id, f"{job_id}-master-0", start=0, limit=100).complete
    assert backend.prune() == [job_id]


def test_a_stop_of_a_running_attempt_is_the_end(backend: LocalBackend) -> None:
    job_id = submit(backend, "echo attempt; exec sleep 1000")
    until_status(backend, job_id, "Running")
    backend.stop(job_id)
    assert until_status(backend, job_id, "Terminated").reason_code == "StoppedByUser"


@pytest.mark.parametrize("after", ["record_exit", "renew", "withdraw"])
def test_an_attempt_whose_beginning_was_cut_off_is_begun_by_another_process(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    class Killed(BaseException):
        pass

    owner: Any = LocalJob if after == "record_exit" else backend._executor
    with monkeypatch.context() as patch:
        whole = getattr(owner, after)

        def cut(*arguments: Any, **options: Any) -> Any:
            whole(*arguments, **options)
            raise Killed

        job_id = submit(backend, FAILS_TWICE)
        patch.setattr(owner, after, cut)
        with pytest.raises(Killed):
            until_status(backend, job_id, "Succeed")
    other = backend_on(backend.data_dir)
    assert other.get(job_id).status in ("Submitted", "Initializing", "Running")
    assert until_status(other, job_id, "Succeed").reason_code is None
    assert lines(other, job_id) == ["attempt"] * 3


def test_a_fault_at_the_beginning_is_not_the_end(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend.steps.error_pause_s = WAIT_S
    start, faults = backend._executor.start, iter([EngineNotFoundError("the engine is away")])

    def start_later(*arguments: Any, **options: Any) -> None:
        for fault in faults:
            raise fault
        start(*arguments, **options)

    job_id = submit(backend, FAILS_TWICE)
    monkeypatch.setattr(backend._executor, "start", start_later)
    until_status(backend, job_id, "Succeed")
    assert "the next attempt could not start, retrying: the engine is away" in caplog.text


def test_two_processes_begin_an_attempt_once(backend: LocalBackend) -> None:
    job_id = submit(backend, FAILS_TWICE)
    others = [backend_on(backend.data_dir) for _ in range(3)]
    deadline = time.monotonic() + PATIENCE_S
    while {each.get(job_id).status for each in (backend, *others)} != {"Succeed"}:
        assert time.monotonic() < deadline
    assert lines(backend, job_id) == ["attempt"] * 3


def test_a_clock_that_was_set_back_delays_no_attempt(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobRetries, "wait_s", staticmethod(lambda attempt: 5.0))
    job_id = submit(backend, FAILS_TWICE)
    until(lambda: len(lines(backend, job_id)) == 1)
    back_s = 24 * 3600.0
    clock = SimpleNamespace(time=lambda: time.time() - back_s, monotonic=time.monotonic)
    monkeypatch.setattr(steps, "time", clock)
    until_status(backend, job_id, "Succeed")
