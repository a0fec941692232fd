"""Tunnels into jobs whose tasks an earlier release has started: they take no requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionState, InstanceState
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.slurm.gang_folder import GangFolder, HostPorts
from pai_sdk._host.agent.tunnel.on_demand import SOCKET
from pai_sdk._host.execution.node_connections import Expected, ServiceAddress
from pai_sdk._host.execution.slurm.executor import SlurmExecutor
from pai_sdk._host.execution.slurm.options import SlurmOptions
from pai_sdk.errors import TunnelRefusedError

NAME = "j-master-0"


def time_out(*_: object) -> None:
    raise TimeoutError("its node has not connected in time")


def test_a_task_without_tunnels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Expected, "wait", time_out)
    job = Sandbox(tmp_path / "j")
    gang = GangFolder(job.shared_dir)
    for folder in (job.state_dir, job.shared_dir, job.logs_dir, job.ml):
        folder.mkdir(parents=True)
    state = ExecutionState("running", instances=(InstanceState(NAME, "master"),))
    sandbox = gang.make_sandbox(NAME, job)
    for folder in (job.state_dir, sandbox.state_dir):
        Journal(folder).write_state(state)
    gang.write_ports(HostPorts("node1", "127.0.0.1", 1, {0: 2}))
    executor = SlurmExecutor(tmp_path, tmp_path / "cache", SlurmOptions())
    executor._nodes.service = ServiceAddress("127.0.0.1", 1)
    with pytest.raises(TunnelRefusedError) as refused:
        executor.connect_tunnel(job.root, NAME)
    assert refused.value.code == "NotSupported"
    # One of this release, whose node is slow.
    (sandbox.state_dir / SOCKET).touch()
    with pytest.raises(TimeoutError):
        executor.connect_tunnel(job.root, NAME)
    executor.close()
