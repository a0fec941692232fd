"""The executor of Slurm clusters does what every executor does, on a cluster of three nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pai_sdk._host.execution.slurm.executor import SlurmExecutor
from pai_sdk._host.execution.slurm.options import SlurmOptions
from tests.cluster.slurm_cluster import SlurmCluster
from tests.unit.host.execution.conformance import ExecutorConformance, Harness


class TestSlurmExecutor(ExecutorConformance):
    @pytest.fixture
    def harness(self, slurm_cluster: SlurmCluster, request: pytest.FixtureRequest) -> Iterator[Harness]:
        folder = slurm_cluster.folder / "jobs of tests" / str(abs(hash(request.node.name)))
        made: list[SlurmExecutor] = []

        def make(grace_s: int) -> SlurmExecutor:
            jobs_dir = folder / "jobs with space"
            made.append(SlurmExecutor(jobs_dir, folder / "cache", SlurmOptions(), grace_s=grace_s))
            return made[-1]

        harness = Harness(folder, make)
        yield harness
        harness.close()
        for one in made:
            one.close()
