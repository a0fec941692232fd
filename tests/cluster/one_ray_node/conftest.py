"""A Ray cluster of one node, for all tests of this folder that need one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pai_sdk._host.execution.ray.executor import RayExecutor
from pai_sdk._host.execution.ray.options import RayOptions
from pai_sdk.errors import PaiError
from tests.cluster.one_ray_node.local_cluster import LocalCluster, one_node
from tests.support.waiting import until


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
def executor(cluster: LocalCluster, short_folder: Path) -> Iterator[RayExecutor]:
    """The executor, which is connected."""
    options = RayOptions(address=cluster.address, node_folder=str(short_folder / "nodes"))
    made = RayExecutor(short_folder / "hub", options)
    until(lambda: _connects(made), "the cluster", within_s=120, pause_s=1)
    yield made
    made.close()


def _connects(executor: RayExecutor) -> bool:
    with suppress(PaiError):
        executor.connect()
        return True
    return False
