"""The executor of docs/contributing/executors.md is complete: it is found by its entry point, and conforms."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._host.execution.base import Executor, ExecutorSetup
from pai_sdk._host.execution.registry import executor_names, open_executor
from tests.unit.host.execution.conformance import ExecutorConformance, Harness

PAGE = Path(__file__).parents[4] / "docs" / "contributing" / "executors.md"


@pytest.mark.slow
class TestExample(ExecutorConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
        page, installed = PAGE.read_text(encoding="utf-8"), tmp_path / "site-packages"
        (program,) = re.findall(r'```python title="low_priority.py"\n(.*?)```', page, re.DOTALL)
        (entry,) = re.findall(r"^low-priority = \"(.*)\"$", page, re.MULTILINE)
        facts = installed / "low_priority-1.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text("Name: low-priority\nVersion: 1\n")
        (facts / "entry_points.txt").write_text(f"[pai_sdk.executors]\nlow-priority = {entry}\n")
        (installed / "low_priority.py").write_text(program)
        monkeypatch.syspath_prepend(str(installed))

        def make(grace_s: int) -> Executor:
            executor = open_executor("low-priority", ExecutorSetup(tmp_path / "cache"))
            executor.grace_s = grace_s
            return executor

        assert executor_names() == ["process", "docker", "ray", "slurm", "low-priority"]
        harness = Harness(tmp_path, make)
        yield harness
        harness.close()

    def test_the_example_does_what_it_says(self, harness: Harness) -> None:
        root, _ = harness.run("nice")
        assert int(harness.log(root)) >= min(os.nice(0) + 10, 19)  # above the level of this process
