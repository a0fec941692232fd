"""A Ray cluster of one node, for all tests of this folder that need one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pai_sdk.errors import PaiError
from pai_sdk.execution.ray.executor import RayExecutor
from pai_sdk.execution.ray.options import RayOptions
from tests.cluster.one_ray_node.local_cluster import LocalCluster, one_node
from tests.waiting import until


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A folder with a short path: Ray puts sockets into it."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def cluster(short_folder: Path) -> Iterator[LocalCluster]:
    pytest.importorskip("ray")
    with one_node(short_folder, cpus=8) as found:
        yield found


@pytest.fixture(scope="session")
def connected(cluster: LocalCluster, short_folder: Path) -> Iterator[Callable[[str], RayExecutor]]:
    """Gives the executor that is connected in one way: `driver` or `client`."""
    made: dict[str, RayExecutor] = {}

    def executor(way: str) -> RayExecutor:
        if way not in made:
            address = {"driver": cluster.address, "client": cluster.client_address}[way]
            options = RayOptions(address=address, node_folder=str(short_folder / f"nodes-{way}"))
            made[way] = RayExecutor(short_folder / f"hub-{way}", options)
            until(lambda: _connects(made[way]), "the cluster", within_s=120, pause_s=1)
        return made[way]

    yield executor
    for one in made.values():
        one.close()


def _connects(executor: RayExecutor) -> bool:
    with suppress(PaiError):
        executor.connect()
        return True
    return False
