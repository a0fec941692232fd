"""What these tests need: clusters. They start their own; where none can be had they say so and skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import ray_cluster as ray_clusters
from tests.cluster import slurm_cluster as slurm_clusters
from tests.cluster.ray_cluster import RayCluster
from tests.cluster.slurm_cluster import SlurmCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first of these tests may have to wait for packages to be installed and a cluster to start."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session", autouse=True)
def no_ray_token() -> Iterator[None]:
    """The clusters need no token, even if there is one in HOME."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        yield


@pytest.fixture(scope="session")
def whole_ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Three nodes with Ray, for all tests."""
    reason = ray_clusters.why_not()
    if reason:
        pytest.skip(reason)
    with RayCluster(tmp_path_factory.mktemp("ray")) as cluster:
        yield cluster


@pytest.fixture
def ray_cluster(whole_ray_cluster: RayCluster) -> RayCluster:
    """The cluster with all its nodes alive, also after a test that killed some."""
    whole_ray_cluster.repair()
    return whole_ray_cluster


@pytest.fixture(scope="session")
def whole_slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A controller and three workers with Slurm, for all tests."""
    reason = slurm_clusters.why_not()
    if reason:
        pytest.skip(reason)
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def slurm_cluster(whole_slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """The cluster with all its nodes idle, as the one that the environment names."""
    whole_slurm_cluster.repair()
    for name, value in whole_slurm_cluster.environment.items():
        monkeypatch.setenv(name, value)
    return whole_slurm_cluster
