"""The executor of Ray clusters does what every executor does, on a cluster of one node."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("ray")

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.errors import PaiError
from pai_sdk.execution.base import ExecutionState
from pai_sdk.execution.ray.executor import RayExecutor
from pai_sdk.execution.ray.options import RayOptions
from tests.unit.execution.conformance import ExecutorConformance, Harness
from tests.unit.execution.ray.local_cluster import LocalCluster, one_node
from tests.waiting import until

pytestmark = pytest.mark.slow


@dataclass
class RayHarness(Harness):
    """Jobs on a node that is this machine: what the suite puts beside the code of a job reaches it there.

    The suite gives jobs signs by files and pipes in their folder, which on a node is another one.
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
        for ml in self.nodes.glob(f"*/{root.name}/ml") if is_alive else ():
            here.usercode.rmdir()
            here.usercode.symlink_to(ml / "usercode")
            for path in (ml / "output" / "model").iterdir():
                if stat.S_ISFIFO(path.lstat().st_mode):
                    with suppress(FileExistsError):
                        (here.output_dir("model") / path.name).symlink_to(path)


@pytest.fixture(scope="module")
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def cluster(short_folder: Path) -> Iterator[LocalCluster]:
    with one_node(short_folder, cpus=8) as found:
        yield found


@pytest.fixture(scope="module", params=["driver", "client"])
def executor(cluster: LocalCluster, short_folder: Path, request: pytest.FixtureRequest) -> Iterator[RayExecutor]:
    address = cluster.address if request.param == "driver" else cluster.client_address
    options = RayOptions(address=address, node_folder=str(short_folder / f"nodes-{request.param}"))
    executor = RayExecutor(short_folder / f"hub-{request.param}", options)

    def connect() -> bool:
        with suppress(PaiError):
            executor.connect()
            return True
        return False

    until(connect, "the cluster", within_s=120, pause_s=1)
    yield executor
    executor.close()


class TestRayExecutor(ExecutorConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path, executor: RayExecutor) -> Iterator[Harness]:
        made: list[RayExecutor] = []

        def make(grace_s: int) -> RayExecutor:
            hub = executor.hub
            made.append(RayExecutor(hub, executor.options, grace_s=grace_s))
            return made[-1]

        harness = RayHarness(tmp_path, make, nodes=Path(executor.options.node_folder))
        yield harness
        harness.close()
        for one in made:
            one.close()
        shutil.rmtree(tmp_path, ignore_errors=True)
