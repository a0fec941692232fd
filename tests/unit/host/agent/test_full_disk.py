"""A full disk: the job goes on, and how it ended is written down as soon as there is free space."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._host.agent import processes
from pai_sdk._host.agent.job_execution import JobExecution
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionState
from pai_sdk._host.agent.sandbox import Sandbox

JOB: dict[str, Any] = {
    "instances": [],
    "max_running_s": None,
    "memory_limit_bytes": None,
    "grace_s": 1.0,
    "image": None,
}


@pytest.fixture(autouse=True)
def no_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is none, and has children of other tests, which are not to be killed at the end of a job."""
    monkeypatch.setattr(processes, "kill_descendants", lambda: iter(()))


class FullFor(Journal):
    """Has no space for the first few states."""

    def __init__(self, folder: Path, times: int, number: int = errno.ENOSPC) -> None:
        super().__init__(folder)
        self.times, self.number = times, number

    def write_state(self, state: ExecutionState) -> None:
        self.times -= 1
        if self.times >= 0:
            raise OSError(self.number, "no")
        super().write_state(state)


def test_the_end_is_written_when_there_is_room_again(tmp_path: Path) -> None:
    journal = FullFor(tmp_path, 3)
    run = JobExecution(Sandbox(tmp_path), journal, JOB)
    run.full_disk_pause_s = 0.01
    run._finish()
    state = journal.read_state()
    assert state is not None
    assert (state.phase, state.succeeded) == ("ended", True)


def test_any_other_fault_is_not_waited_for(tmp_path: Path) -> None:
    run = JobExecution(Sandbox(tmp_path), FullFor(tmp_path, 1, errno.ENOENT), JOB)
    with pytest.raises(OSError, match="no"):
        run._finish()


@pytest.mark.parametrize(("free_bytes", "reason_code"), [(5 << 20, "DiskFull"), (1 << 30, "NonZeroExit")])
def test_an_instance_that_filled_the_disk_failed_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, reason_code: str
) -> None:
    """Also where the service has given up its reserve before the supervisor looks."""
    instance = {"name": "train1-master-0", "role": "master", "rank": 0, "index": 0}
    run = JobExecution(
        Sandbox(tmp_path), Journal(tmp_path), {**JOB, "instances": [{"instance": instance, "environments": {}}]}
    )
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free_bytes // 4096, f_frsize=4096))
    run._alive = {1: run._workers[0]}
    run._record(1, 1)
    state = Journal(tmp_path).read_state()
    assert state is not None
    assert state.reason_code == reason_code
