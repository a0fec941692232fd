"""On which nodes of a cluster the instances of a job run, as executors read it from the job's folder."""

from __future__ import annotations

import json
from pathlib import Path

from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionState, InstanceState
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.slurm.gang_folder import GangFolder, HostPorts
from pai_sdk._host.execution.ray.executor import RayExecutor
from pai_sdk._host.execution.slurm.executor import SlurmExecutor

_NAMES = ("job-master-0", "job-worker-0", "job-worker-1")


def _job(root: Path) -> Sandbox:
    sandbox = Sandbox(root.resolve())
    sandbox.state_dir.mkdir(parents=True)
    instances = tuple(InstanceState(name, "Worker") for name in _NAMES)
    Journal(sandbox.state_dir).write_state(ExecutionState("running", instances=instances))
    return sandbox


def test_slurm_hosts_that_have_published_their_address(tmp_path: Path) -> None:
    executor = object.__new__(SlurmExecutor)
    assert executor.nodes(tmp_path) == {}
    sandbox = _job(tmp_path)
    assert executor.nodes(tmp_path) == {}
    gang = GangFolder(sandbox.shared_dir)
    gang.path.mkdir(parents=True)
    gang.write_ports(HostPorts("node1", "10.0.0.1", 5000, {0: 5001, 1: 5002}))
    assert executor.nodes(tmp_path) == {"job-master-0": "node1", "job-worker-0": "node1"}


def test_ray_nodes_by_their_addresses(tmp_path: Path) -> None:
    executor = object.__new__(RayExecutor)
    assert executor.nodes(tmp_path) == {}
    sandbox = _job(tmp_path)
    assert executor.nodes(tmp_path) == {}
    nodes = [{"id": str(rank), "address": f"10.0.0.{rank}"} for rank in range(3)]
    (sandbox.state_dir / "ray.json").write_text(json.dumps({"nodes": nodes}))
    assert executor.nodes(tmp_path) == dict(zip(_NAMES, ("10.0.0.0", "10.0.0.1", "10.0.0.2"), strict=True))
