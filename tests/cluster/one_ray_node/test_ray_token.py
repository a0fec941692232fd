"""A Ray cluster that demands a token, as clusters of Ray 2.60 do where there is one in HOME."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pai_sdk._host.execution.ray.executor import RayExecutor
from pai_sdk._host.execution.ray.options import RayOptions
from pai_sdk.errors import PaiError
from tests.cluster.one_ray_node.local_cluster import LocalCluster, one_node
from tests.support.waiting import until
from tests.unit.host.execution.conformance import Harness

TOKEN = 32 * "5e"


@pytest.fixture
def cluster_with_token(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """The cluster; its token is in the environment of this process."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder,
        one_node(Path(folder), cpus=2) as cluster,
    ):
        yield cluster


def connected(cluster: LocalCluster, hub: str, *, address: str = "") -> RayExecutor:
    options = RayOptions(address=address or cluster.address, node_folder=str(cluster.folder / "nodes"))
    executor = RayExecutor(cluster.folder / hub, options)
    executor.connect()
    return executor


def test_a_service_with_the_token_runs_jobs_and_one_without_is_told_what_is_missing(
    cluster_with_token: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = until(lambda: _connected_once_it_is_up(cluster_with_token), "the cluster", within_s=120)
    with closing(executor):
        harness = Harness(tmp_path, lambda grace_s: executor)
        root = harness.start("echo token: $RAY_AUTH_TOKEN.")
        assert harness.wait(root).succeeded
        assert harness.log(root) == "token: .\n"
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(PaiError, match=r"cannot be used.*RAY_AUTH_MODE=token"):
        connected(cluster_with_token, "other-hub", address=cluster_with_token.client_address)


def _connected_once_it_is_up(cluster: LocalCluster) -> RayExecutor | None:
    try:
        return connected(cluster, "hub")
    except PaiError:
        return None
