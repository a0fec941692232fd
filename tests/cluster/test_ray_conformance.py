"""The executor of Ray clusters does what every executor does, on a cluster of three nodes."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import ExecutionState
from pai_sdk._host.execution.ray.executor import RayExecutor
from pai_sdk._host.execution.ray.options import RayOptions
from tests.cluster.ray_cluster import RayCluster
from tests.unit.host.execution.conformance import ExecutorConformance, Harness

# Their instances wait for files of each other in `/ml`, which those on different nodes do not share.
_ON_ONE_NODE = (
    "test_the_first_failure_is_in_the_state_before_the_end",
    "test_instances_of_roles_find_each_other_by_name",
    "test_a_role_starts_after_another_one",
    "test_the_job_does_not_wait_for_an_evaluator",
    "test_a_role_that_does_not_count_may_fail",
)


@dataclass
class RayHarness(Harness):
    """Jobs on nodes whose folders can be seen from here.

    The suite gives jobs signs by files and pipes in their folder. On a node that is another folder, so there are
    links to it from here while the job runs.

    Attributes:
        nodes: the folder of each node in which jobs run.
    """

    nodes: Sequence[Path] = field(kw_only=True)

    def until(self, root: Path, condition: Callable[[ExecutionState], bool]) -> ExecutionState:
        state = super().until(root, condition)
        # The log may have got what is waited for after the state was read.
        self._link(root, is_alive=self.executor.state(root).phase == "running")
        return state

    def _link(self, root: Path, *, is_alive: bool) -> None:
        here = Sandbox(root)
        if here.usercode.is_symlink():
            here.usercode.unlink()
            here.usercode.mkdir()
        found = [ml for node in self.nodes for ml in node.glob(f"*/*/{root.name}/ml")]
        for ml in found[:1] if is_alive else ():
            here.usercode.rmdir()
            here.usercode.symlink_to(ml / "usercode")
            for path in (ml / "output" / "model").iterdir():
                if stat.S_ISFIFO(path.lstat().st_mode):
                    with suppress(FileExistsError):
                        (here.output_dir("model") / path.name).symlink_to(path)


@pytest.fixture(scope="module")
def connected(
    tmp_path_factory: pytest.TempPathFactory, whole_ray_cluster: RayCluster
) -> Iterator[Callable[[str], RayExecutor]]:
    """Gives the executor that places instances in one way."""
    made: dict[str, RayExecutor] = {}

    def executor(placement: str) -> RayExecutor:
        if placement not in made:
            options = RayOptions(address=whole_ray_cluster.client_address, placement=placement)
            made[placement] = RayExecutor(tmp_path_factory.mktemp("hub"), options)
            made[placement].connect()
        return made[placement]

    yield executor
    for one in made.values():
        one.close()


class TestRayExecutor(ExecutorConformance):
    @pytest.fixture
    def harness(
        self,
        tmp_path: Path,
        ray_cluster: RayCluster,
        connected: Callable[[str], RayExecutor],
        request: pytest.FixtureRequest,
    ) -> Iterator[Harness]:
        executor = connected("STRICT_PACK" if request.node.name in _ON_ONE_NODE else "SPREAD")
        harness = RayHarness(
            tmp_path,
            lambda grace_s: RayExecutor(executor.hub, executor.options, grace_s=grace_s),
            nodes=[Path("/proc", str(node.pid), "root", "tmp", "pai-sdk-0") for node in ray_cluster.nodes],
        )
        yield harness
        harness.close()
