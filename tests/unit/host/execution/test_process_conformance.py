"""The executor of processes does what every executor does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pai_sdk._host.agent import supervising
from pai_sdk._host.execution.process import executor as process_executor
from pai_sdk._host.execution.process.executor import ProcessExecutor
from tests.unit.host.execution.conformance import ExecutorConformance, Harness


class TestProcessExecutor(ExecutorConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[Harness]:
        harness = Harness(tmp_path, lambda grace_s: ProcessExecutor(tmp_path / "cache", grace_s=grace_s))
        yield harness
        harness.close()


class TestSupervisorsOfAnEarlierRelease(TestProcessExecutor):
    """Jobs that were started by the program of an earlier release, and are looked after by this one."""

    @pytest.fixture(autouse=True)
    def _started_by_the_former_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        start_former = partial(supervising.start_supervisor, program=supervising._FORMER_SUPERVISE)
        monkeypatch.setattr(process_executor, "start_supervisor", start_former)
