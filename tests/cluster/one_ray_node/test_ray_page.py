"""The examples of the page about Ray clusters, on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pai_sdk._host.execution.ray.executor import RayExecutor
from tests.cluster.one_ray_node.local_cluster import LocalCluster
from tests.docs.conftest import fresh_place, run_page

__all__ = ["fresh_place", "run_page"]

PAGE = Path(__file__).parents[3] / "docs" / "ray.md"


def test_the_examples_of_the_page_work(
    cluster: LocalCluster,
    executor: RayExecutor,  # the cluster responds
    run_page: Callable[[Path], tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    status, said = run_page(PAGE)
    assert status == 0, said
