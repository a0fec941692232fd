"""Local jobs whose process is killed at one of their steps: the next process finds what it has recorded."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.backend.local import LocalBackend, jobs, staging, steps
from pai_sdk._client.backend.local.jobs import LocalJob
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.execution.output_uploader import OutputUploader
from pai_sdk.errors import NotFoundError
from tests.support.killing import killed
from tests.support.waiting import until
from tests.unit.client.backend.test_local_retries import backend_on, lines, submit, until_status

COMMAND = 'echo attempt; echo 1 > "$PAI_OUTPUT_MODEL/weights"'
# Function, and whether the process is killed after it instead of before it.
SUBMISSION = [
    (jobs, "_write", 1),  # a folder without its files
    (jobs, "_write", 2),  # without its request
    (staging.LocalStaging, "fill", 1),
    (staging.LocalStaging, "fill", -1),
    (steps, "launch_spec", -1),
    (Journal, "write_job", 1),
    (Journal, "write_job", -1),
    (steps.LocalSteps, "_ensure_uploading", 1),
]


def end_of(backend: LocalBackend, job_id: str) -> tuple[str, str | None]:
    until(lambda: backend.get(job_id).status.is_terminal)
    record = backend.get(job_id)
    return str(record.status), record.reason_code


@pytest.mark.parametrize("kill_in", SUBMISSION, ids=lambda each: f"{each[1]}{each[2]}")
def test_a_submitter_that_is_killed_leaves_a_job_that_ends(tmp_path: Path, kill_in: tuple[Any, str, int]) -> None:
    assert killed(kill_in, lambda: submit(backend_on(tmp_path), COMMAND))
    processes = [backend_on(tmp_path) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        listed = list(threads.map(lambda each: [record.training_job_id for record in each.list()], processes))
        assert listed[0] == listed[1] == listed[2]
        for job_id in listed[0]:
            ends = list(threads.map(end_of, processes, [job_id] * 3))
            has_started = bool(lines(processes[0], job_id))
            assert ends == [("Succeed", None) if has_started else ("Failed", "SupervisorLost")] * 3
            assert processes[1].prune() == [job_id]
    # A folder that has no request may become a job; it is removed later.
    for folder in (tmp_path / "jobs").iterdir():
        os.utime(folder, (0, 0))
    processes[2].prune()
    assert list((tmp_path / "jobs").iterdir()) == []


SAVING = [
    (OutputUploader, "upload", 1),
    (OutputUploader, "upload", -1),
    (LocalJob, "report", 1),
    (jobs, "_write", 1),
    (LocalJob, "report", -1),
]


@pytest.mark.parametrize("kill_in", SAVING, ids=lambda each: f"{each[1]}{each[2]}")
def test_outputs_are_saved_before_any_process_reports_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_in: tuple[Any, str, int]
) -> None:
    stored = tmp_path / "bucket" / "weights"
    monkeypatch.setattr(steps, "open_store", lambda uri, client: LocalStore(tmp_path / "bucket"))
    monkeypatch.setattr(LocalBackend, "oss", lambda *_: None)
    submitter = backend_on(tmp_path)
    monkeypatch.setattr(LocalJob, "oss_outputs", {"model": "oss://bucket/model/"})
    job_id = submit(submitter, COMMAND)
    until(lambda: submitter._jobs.get(job_id).state().phase == "ended")
    processes = [backend_on(tmp_path) for _ in range(4)]
    assert killed(kill_in, lambda: processes[0].get(job_id))
    # A list does not wait for an upload; as long as none is recorded, the job has not ended for it.
    (record,) = processes[1].list()
    assert record.status == ("Succeed" if kill_in == SAVING[-1] else "Running")

    def poll(process: LocalBackend) -> None:
        assert process.get(job_id).status == "Succeed"
        assert stored.read_text() == "1\n"

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(poll, processes[1:]))
    assert processes[1].prune() == [job_id]


@pytest.mark.parametrize("reads", ["a log", "a state"])
def test_a_reader_whose_job_is_removed_keeps_no_file_open(tmp_path: Path, reads: str) -> None:
    reader = backend_on(tmp_path)
    job_id = submit(reader, "echo attempt; exec sleep 1000")
    until_status(reader, job_id, "Running")
    reader.read_log(job_id, f"{job_id}-master-0", start=0, limit=1)
    reader._executor.remove(tmp_path / "jobs" / job_id)  # by another process
    read: dict[str, Callable[[], object]] = {
        "a log": lambda: reader.read_log(job_id, f"{job_id}-master-0", start=1, limit=1),
        "a state": lambda: reader.get(job_id),
    }
    with pytest.raises(NotFoundError):
        read[reads]()
    assert not [path for path in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if job_id in path]
