"""Local jobs belong to no process: they outlive their submitter, and any process finds them again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submission import submit as submit_plan
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.execution.docker.container import LABEL_FOLDER, LABEL_JOB, LABEL_OWNER, owner
from pai_sdk._host.execution.docker.engine import Engine
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import ConflictError, JobFailed, JobStopped, NotFoundError
from tests.docker.conftest import lines_of
from tests.docker.engine import BASE_IMAGE
from tests.support.killing import killed
from tests.support.waiting import PATIENCE_S, until

_SUBMIT = """
import json, os, sys, time
from pathlib import Path
from pai_sdk._client.submission import submit
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._wire.pai.request import TrainingJobRequest
backend = LocalBackend(Path(sys.argv[1]))
request = TrainingJobRequest.model_validate({
    "TrainingJobName": "orphan",
    "ComputeResource": {"EcsSpec": "local", "EcsCount": 2},
    "AlgorithmSpec": {"Image": "pai-sdk-test:base", "Command": ["sh", "-c", sys.argv[2]]},
})
print("ready", flush=True)
print(submit(Plan(request), backend, progress=False), flush=True)
time.sleep(1000)
"""


def _submitter(backend: LocalBackend, command: str) -> subprocess.Popen[str]:
    """A process that is about to submit: Python itself needs a while to start."""
    program = [sys.executable, "-c", _SUBMIT, str(backend.data_dir), command]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_job_outlives_the_kill_of_its_submitter(backend, another):
    with _submitter(backend, "sleep 2; echo alive $RANK") as process:
        job_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    job = TrainingJob(job_id, another()).wait(timeout=PATIENCE_S, show_logs=False)
    assert sorted(lines_of(job)) == ["alive 0", "alive 1"]


def test_a_submitter_killed_at_any_moment_leaves_nothing_that_cannot_be_found(backend, engine):
    for delay_s in (0.0, 0.05, 0.15, 0.3, 0.5, 0.7, 1.0):
        with _submitter(backend, "sleep 1000") as process:
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
    for record in list(backend.list()):
        job = TrainingJob(record.training_job_id, backend)
        job.stop()
        with pytest.raises(Exception, match=r"stopped|was stopped|ended before all containers"):
            job.wait(timeout=PATIENCE_S, show_logs=False)
    with engine.client() as client:

        def has_nothing_left() -> bool:
            """Of ours; the engine may still have been making what the last of them had asked for."""
            backend.prune()
            networks = client.networks.list(filters={"label": LABEL_JOB})
            return not client.containers.list(all=True, ignore_removed=True) and not networks

        until(has_nothing_left)
    assert list(backend.list()) == []


@pytest.mark.parametrize(
    "kill_in",
    [
        (Journal, "write_job", -1),
        (Engine, "start_container", -1),
        (SharedFolder, "go", 1),
        (SharedFolder, "go", -1),
    ],
    ids=lambda kill_in: f"{kill_in[1]}{kill_in[2]}",
)
def test_all_processes_see_the_same_end_of_a_job_whose_submitter_was_killed(backend, another, kill_in):
    request = TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "orphan",
            "ComputeResource": {"EcsSpec": "local", "EcsCount": 2},
            "AlgorithmSpec": {"Image": BASE_IMAGE, "Command": ["echo", "up"]},
        }
    )
    assert killed(kill_in, lambda: submit_plan(Plan(request), LocalBackend(backend.data_dir), progress=False))
    others = [another() for _ in range(3)]
    (job_id,) = [record.training_job_id for record in others[0].list()]

    def end(other: LocalBackend) -> tuple[str, str | None]:
        until(lambda: other.get(job_id).status.is_terminal)
        return str(other.get(job_id).status), other.get(job_id).reason_code

    with ThreadPoolExecutor(3) as threads:
        ends = list(threads.map(end, others))
    # From `go` on, the containers need no other process.
    assert (
        ends == [("Succeed", None) if kill_in[2] < 0 and kill_in[1] == "go" else ("Failed", "SupervisorLost")] * 3
    )
    assert others[1].prune() == [job_id]


def test_another_process_stops_it(submit, another):
    job = submit("echo up; sleep 1000")
    other = TrainingJob(job.id, another())
    next(iter(other.logs(follow=True)))
    other.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)


def test_many_see_the_end_at_once(submit, another):
    job = submit("sleep 1; echo end", count=2)
    others = [TrainingJob(job.id, another()) for _ in range(4)]
    assert [lines_of(other.wait(timeout=PATIENCE_S, show_logs=False), 0) for other in others] == [["end"]] * 4


def test_a_job_is_deleted_only_after_its_end(submit, backend):
    job = submit("echo up; sleep 1000")
    with pytest.raises(ConflictError, match="stop it first"):
        job.delete()
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    job.delete()
    with pytest.raises(NotFoundError, match=job.id):
        backend.get(job.id)


def test_prune_takes_what_ended_and_what_lost_its_folder(submit, backend, engine, tmp_path):
    ended = submit("true").wait(timeout=PATIENCE_S, show_logs=False)
    runs = submit("echo up; sleep 1000")
    next(iter(runs.logs(follow=True)))
    with engine.client() as client:
        labels = {LABEL_JOB: "local-gone", LABEL_FOLDER: str(tmp_path / "gone"), LABEL_OWNER: owner()}
        client.containers.create("pai-sdk-test:base", ["sleep", "100"], labels=labels).start()
        assert sorted(backend.prune()) == sorted([ended.id, "local-gone"])
        assert [one.name for one in client.containers.list(all=True)] == [f"{runs.id}-master-0"]
    assert [record.training_job_id for record in backend.list()] == [runs.id]


def test_a_failed_job_can_be_described_later(submit, another):
    job = submit("echo why >&2; exit 5")
    with pytest.raises(JobFailed):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    later = another()
    info = later.error_info(job.id)
    assert info is not None
    assert info.code == "NonZeroExit"
    assert '"ExitCode": 5' in (info.additional_info or "")
    assert [record.status for record in later.list(status="Failed")] == ["Failed"]
