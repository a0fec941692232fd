"""The executor of processes does what every executor does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._host.execution.process.executor import ProcessExecutor
from tests.unit.host.execution.conformance import ExecutorConformance, Harness


class TestProcessExecutor(ExecutorConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[Harness]:
        harness = Harness(tmp_path, lambda grace_s: ProcessExecutor(tmp_path / "cache", grace_s=grace_s))
        yield harness
        harness.close()
