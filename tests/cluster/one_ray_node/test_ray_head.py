"""The head of a Ray cluster is restarted while a service on the same machine runs a job with Ray's own driver."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pai_sdk._host.execution.ray.executor import RayExecutor
from pai_sdk._host.execution.ray.options import RayOptions
from tests.cluster.one_ray_node.local_cluster import one_node
from tests.support.waiting import until
from tests.unit.host.execution.conformance import Harness

pytestmark = pytest.mark.slow


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: Ray puts sockets into it."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def test_the_head_is_restarted_and_its_jobs_end_as_lost(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with one_node(folder, cpus=2) as cluster:
        executor = RayExecutor(
            folder / "hub", RayOptions(address=cluster.address, node_folder=str(folder / "nodes"))
        )
        executor.connect()
        harness = Harness(tmp_path, lambda grace_s: executor)
        root = harness.start("echo up; exec sleep 1000")
        harness.until_log(root, "up")
    with one_node(folder, cpus=2, address=cluster.address), closing(executor):
        state = harness.wait(root)
        assert (state.succeeded, state.reason_code) == (False, "NodeLost")
        assert harness.log(root) == "up\n"
        after = harness.start("echo back")
        assert harness.wait(after).succeeded
        assert harness.log(after) == "back\n"
        until(lambda: not any((executor.hub / "active").iterdir()), "the end of the mirror's work")
