"""A start that was cut off: the job begins once, from one filling of its folder, or not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pai_sdk._host.agent import supervising
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.supervisor_template import SupervisorTemplate
from pai_sdk.errors import PaiError
from tests.support.messages import refused
from tests.unit.host.execution.conftest import Jobs, make_request


class CutOff(BaseException):
    """The service dies here."""


@pytest.fixture
def late_supervisor(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command of a supervisor that was launched by a service that is gone, and has not come up yet."""
    found: list[str] = []

    def launch(arguments: list[str], **_: object) -> None:
        found.extend(arguments)
        raise CutOff

    with monkeypatch.context() as patched:
        patched.setattr(SupervisorTemplate, "start", lambda *_: False)
        patched.setattr(supervising.subprocess, "run", launch)
        with pytest.raises(CutOff):
            jobs.start(make_request("echo old"))
    jobs.roots.clear()  # nothing runs there unless the test says so
    return found


def come_up(command: list[str]) -> None:
    assert subprocess.run([sys.executable, *command[1:]], cwd="/", timeout=60).returncode == 0


def test_a_withdrawn_start_never_begins(jobs: Jobs, late_supervisor: list[str]) -> None:
    jobs.executor.withdraw(jobs.root("train1"))
    come_up(late_supervisor)
    assert jobs.executor.state(jobs.root("train1")).phase == "absent"
    assert jobs.run("echo new").succeeded
    come_up(late_supervisor)
    assert jobs.log() == "new\n"


def test_a_job_that_has_begun_is_not_withdrawn(jobs: Jobs, late_supervisor: list[str]) -> None:
    come_up(late_supervisor)
    jobs.executor.withdraw(jobs.root("train1"))
    assert jobs.wait().succeeded
    assert jobs.log() == "old\n"


def test_one_that_is_just_beginning_is_waited_for(jobs: Jobs, late_supervisor: list[str]) -> None:
    journal = Journal(Sandbox(jobs.root("train1")).state_dir)
    with journal.locked():
        withdrawing = threading.Thread(target=jobs.executor.withdraw, args=(jobs.root("train1"),))
        withdrawing.start()
        withdrawing.join(0.1)
        assert withdrawing.is_alive()
    withdrawing.join(60)
    assert not withdrawing.is_alive()


def test_one_that_hangs_is_told(jobs: Jobs, late_supervisor: list[str]) -> None:
    jobs.executor.start_timeout_s = 0.05
    held = Journal(Sandbox(jobs.root("train1")).state_dir).locked()
    with held, refused(PaiError):
        jobs.executor.withdraw(jobs.root("train1"))


def test_where_nothing_was_started_there_is_nothing_to_withdraw(jobs: Jobs, tmp_path: Path) -> None:
    jobs.executor.withdraw(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
