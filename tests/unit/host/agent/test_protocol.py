"""The protocol on disk: both kinds of jobs write one format, and what cannot be read breaks no reader."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pai_sdk._host.agent import protocol
from pai_sdk._host.agent.distributed import name_instances
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionRecord, ExecutionState, InstanceState, StopRequest
from pai_sdk._host.execution.docker.shared_folder import SharedFolder

STATE = ExecutionState(
    "ended",
    started_at=1.5,
    ended_at=2.5,
    succeeded=False,
    instances=(InstanceState("j-master-0", "master", "Failed", 3), InstanceState("j-worker-0", "worker")),
    failed_instance="j-master-0",
    reason_code="NonZeroExit",
    reason_message="exit code 3: 失敗",
)


@pytest.fixture(params=[Journal, SharedFolder])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> ExecutionRecord:
    found: ExecutionRecord = request.param(tmp_path)
    return found


def test_the_first_stop_request_stays(record: ExecutionRecord) -> None:
    assert record.stop_request is None
    record.request_stop("StoppedByUser", "by Ann")
    record.request_stop("StoppedByUser", "by Bob")
    assert record.stop_request == ("StoppedByUser", "by Ann")


def test_both_kinds_of_jobs_read_each_others_stop_request(tmp_path: Path) -> None:
    Journal(tmp_path).request_stop("StoppedByUser", "by Ann")
    assert SharedFolder(tmp_path).stop_request == ("StoppedByUser", "by Ann")


def test_a_stop_request_on_a_full_disk_has_no_reason(
    record: ExecutionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish_once(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(protocol, "publish_once", publish_once)
    record.request_stop("StoppedByUser", "by Ann")
    assert record.stop_request == ("", "")
    assert StopRequest().reported[0] == "StoppedByUser"


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"reason_code": "a"}', "[" * 100_000, "\0"])
def test_whatever_is_in_it_a_stop_request_is_one(record: ExecutionRecord, text: str) -> None:
    (record.path / "stop").write_text(text)
    assert record.stop_request == ("", "")


def test_a_stop_request_is_neither_a_link_nor_a_pipe(record: ExecutionRecord) -> None:
    secret, place = record.path / "secret", record.path / "stop"
    secret.write_text('{"reason_code": "s3cret", "reason_message": ""}')
    for put in (lambda: place.symlink_to(secret), lambda: os.mkfifo(place)):
        place.unlink(missing_ok=True)
        put()
        assert record.stop_request == ("", "")


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write_state(STATE)
    assert journal.read_state() == journal.state() == STATE


@pytest.mark.parametrize("text", ["", '{"phase": "run', "[]", "{}", '{"phase": "ended", "instances": [7]}'])
def test_a_state_that_was_cut_off_is_that_of_a_job_which_was_lost(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    state = Journal(tmp_path).state()
    assert state is not None
    assert (state.phase, state.reason_code) == ("ended", "SupervisorLost")


def test_containers_report_exits_and_the_first_failure_while_they_run(tmp_path: Path) -> None:
    shared = SharedFolder(tmp_path, name_instances("j", "PyTorchJob", 3))
    assert shared.state().phase == "preparing"
    for name, text in {
        "go": "100.0",
        "j-master-0.started": "",
        "j-worker-0.started": "",
        "j-worker-0.exit": "3",
        "failed": "j-worker-0 3",
    }.items():
        (tmp_path / name).write_text(text)
    state = shared.state()
    assert (state.phase, state.started_at, state.failed_instance) == ("running", 100.0, "j-worker-0")
    assert [(one.status, one.exit_code) for one in state.instances] == [
        ("Running", None),
        ("Failed", 3),
        ("Pending", None),
    ]
    (tmp_path / "failed").write_text("another-job 3")
    assert shared.state().failed_instance is None
