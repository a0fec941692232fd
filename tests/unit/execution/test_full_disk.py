"""A full disk: the job goes on, and how it ended is written down as soon as there is room."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from pai_sdk.execution import jobrun
from pai_sdk.execution.jobrun import JobRun
from pai_sdk.execution.journal import Journal
from pai_sdk.execution.sandbox import Sandbox

JOB: dict[str, Any] = {"instances": [], "max_running_s": None, "memory_limit_bytes": None, "grace_s": 1.0}


class FullFor(Journal):
    """Has no room for the first few states."""

    def __init__(self, folder: Path, times: int, number: int = errno.ENOSPC) -> None:
        super().__init__(folder)
        self.times, self.number = times, number

    def write_state(self, state: dict[str, Any]) -> None:
        self.times -= 1
        if self.times >= 0:
            raise OSError(self.number, "no")
        super().write_state(state)


def test_the_end_is_written_when_there_is_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobrun, "_PAUSE_ON_FULL_DISK_S", 0.01)
    journal = FullFor(tmp_path, 3)
    run = JobRun(Sandbox(tmp_path), journal, JOB)
    run._finish()
    state = journal.read_state()
    assert state is not None
    assert (state["phase"], state["succeeded"]) == ("ended", True)


def test_any_other_fault_is_not_waited_for(tmp_path: Path) -> None:
    run = JobRun(Sandbox(tmp_path), FullFor(tmp_path, 1, errno.ENOENT), JOB)
    with pytest.raises(OSError, match="no"):
        run._finish()
