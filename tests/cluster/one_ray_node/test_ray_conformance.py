"""The executor of Ray clusters does what every executor does, on a cluster of one node."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.base import ExecutionState
from pai_sdk.execution.ray.executor import RayExecutor
from tests.unit.execution.conformance import ExecutorConformance, Harness

pytestmark = pytest.mark.slow


@dataclass
class RayHarness(Harness):
    """Jobs on a node that is this machine.

    The suite gives jobs signs by files and pipes in their folder. On a node that is another folder, so there are
    links to it from here while the job runs.
    """

    nodes: Path = field(kw_only=True)

    def until(self, root: Path, condition: Callable[[ExecutionState], bool]) -> ExecutionState:
        state = super().until(root, condition)
        self._link(root, is_alive=state.phase == "running")
        return state

    def _link(self, root: Path, *, is_alive: bool) -> None:
        here = Sandbox(root)
        if here.usercode.is_symlink():
            here.usercode.unlink()
            here.usercode.mkdir()
        for ml in self.nodes.glob(f"*/*/{root.name}/ml") if is_alive else ():
            here.usercode.rmdir()
            here.usercode.symlink_to(ml / "usercode")
            for path in (ml / "output" / "model").iterdir():
                if stat.S_ISFIFO(path.lstat().st_mode):
                    with suppress(FileExistsError):
                        (here.output_dir("model") / path.name).symlink_to(path)


@pytest.fixture(params=["driver", "client"])
def executor(connected: Callable[[str], RayExecutor], request: pytest.FixtureRequest) -> RayExecutor:
    return connected(request.param)


class TestRayExecutor(ExecutorConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path, executor: RayExecutor) -> Iterator[Harness]:
        made: list[RayExecutor] = []

        def make(grace_s: int) -> RayExecutor:
            made.append(RayExecutor(executor.hub, executor.options, grace_s=grace_s))
            return made[-1]

        harness = RayHarness(tmp_path, make, nodes=Path(executor.options.node_folder))
        yield harness
        harness.close()
        for one in made:
            one.close()
