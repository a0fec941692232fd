"""Roles and mounts by the job mirror and the agent of hosts, with folders of this machine as the nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, cast

import pytest

from pai_sdk._host.agent.remote.instance import HostedInstance
from pai_sdk._host.execution.base import LaunchSpec
from pai_sdk._host.execution.ray.executor import RayExecutor
from pai_sdk._host.execution.ray.options import RayOptions
from tests.unit.host.execution.conformance import ExecutorConformance, Harness

pytest.importorskip("ray")

from pai_sdk._host.execution.ray.cluster import Cluster
from pai_sdk._host.execution.ray.job_mirror import JobMirror

_PACKAGE = Path(__file__).parents[5]
# Their instances wait for files of each other.
_ON_ONE_NODE = ("test_names", "test_start_after")


class LocalRemote:
    """An instance of a node that is a folder of this machine."""

    def __init__(self, name: str, node: str) -> None:
        self.name, self.node = name, node
        self.instance: HostedInstance | None = None
        self._threads = ThreadPoolExecutor(4)

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        return self._threads.submit(getattr(self.instance, method), *arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        return self.ask(method, *arguments).result()

    def result(self, reference: Future[Any]) -> Any:
        return reference.result()


class LocalNodes:
    """Stands for the cluster: the instances of a job are on different nodes, as far as there are any."""

    def __init__(self, base: Path, count: int) -> None:
        self._base, self._count = base, count
        self._remotes: dict[str, LocalRemote] = {}

    def group(self, job_id: str, bundles: Sequence[Any]) -> None:
        return None

    def is_placed(self, group: None) -> bool:
        return True

    def instance(self, name: str) -> LocalRemote | None:
        return self._remotes.get(name)

    def ensure_actor(self, name: str, group: None, index: int, bundle: Any) -> LocalRemote:
        return self._remotes.setdefault(name, LocalRemote(name, f"node-{index % self._count}"))

    def open(self, remote: LocalRemote, job_id: str) -> dict[str, str]:
        remote.instance = HostedInstance(self._base, _PACKAGE, "service", remote.node, job_id, remote.name)
        return {"id": remote.node, "address": "127.0.0.1"}

    def send(self, remotes: Sequence[LocalRemote], part: Any, *mount: int) -> None:
        for remote in remotes:
            remote.call("receive", part, *mount)

    def ready(self, references: Sequence[Future[Any]], *, timeout_s: float) -> list[Future[Any]]:
        return list(wait(references, timeout_s, FIRST_COMPLETED).done)

    def has_node(self, node_id: str) -> bool:
        return True

    def release(self, job_id: str) -> None:
        for name in [name for name in self._remotes if name.startswith(job_id)]:
            self._remotes.pop(name).call("end")


class LocalExecutor(RayExecutor):
    """The executor, with a thread of this process for each job instead of the mirror process."""

    def __init__(self, folder: Path, nodes: LocalNodes, grace_s: float) -> None:
        super().__init__(folder / "hub", RayOptions(), grace_s=grace_s)
        self._nodes = nodes

    def connect(self) -> None:
        """Needs no connection."""

    def start(self, spec: LaunchSpec) -> None:
        super().start(spec)
        mirror = JobMirror(cast("Cluster", self._nodes), spec.sandbox.root, lambda: False)
        threading.Thread(target=mirror.run, daemon=True).start()


class TestHosts:
    """What the suite has of roles and mounts; `tests/cluster` runs all of it with Ray."""

    @pytest.fixture
    def harness(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Harness]:
        nodes = LocalNodes(tmp_path / "nodes", 1 if request.node.name in _ON_ONE_NODE else 2)
        harness = Harness(tmp_path, lambda grace_s: LocalExecutor(tmp_path, nodes, grace_s))
        yield harness
        harness.close()

    test_roles = ExecutorConformance.test_roles_have_commands_names_and_ranks_of_their_own
    test_names = ExecutorConformance.test_instances_of_roles_find_each_other_by_name
    test_start_after = ExecutorConformance.test_a_role_starts_after_another_one
    test_stop = ExecutorConformance.test_a_stop_ends_the_instances_of_all_roles
    test_evaluator = ExecutorConformance.test_the_failure_of_an_evaluator_is_one_of_the_job
    test_mounts = ExecutorConformance.test_mounts_are_at_their_paths
    test_changes_in_mounts = ExecutorConformance.test_a_mount_has_the_changes_of_all_roles
