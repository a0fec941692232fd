"""An instance on a node of a Ray cluster, with only the modules that nodes get, connects to the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._host.agent.remote.instance import HostedInstance
from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.streams import Tunnel
from pai_sdk._host.execution.node_connections import NodeConnections
from pai_sdk._service import server
from tests.service.fakes import ScriptedExecutor
from tests.service.services import running_service
from tests.support.waiting import PATIENCE_S, until
from tests.unit.host.agent.remote.test_remote_instance import begin, instance, package

__all__ = ["instance", "package"]


def test_a_program_runs_in_it(instance: HostedInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = NodeConnections()
    monkeypatch.setattr(server, "NodeConnections", lambda: nodes)
    with running_service(tmp_path / "data", ScriptedExecutor()):
        begin(instance, tmp_path, "sleep 1000")
        until(lambda: '"Running"' in instance.state())

        def dial() -> SocketTransport:
            with nodes.expect("127.0.0.1") as expected:
                assert instance.dial_tunnel(expected.request) == {}
                return SocketTransport(expected.wait(lambda: None))

        with Tunnel(ResumableLink.connect(dial)) as tunnel:
            stream = tunnel.open("program", argv=["sh", "-c", "echo $RANK; exit 3"])
            assert stream.read() == b"0\n"
            assert stream.wait_exit(PATIENCE_S) == 3
            tunnel.open("debuggers").close()
        refused = instance.dial_tunnel({"token": "x", "addresses": [["127.0.0.1", 1]], "fingerprint": ""})
        assert refused["code"] == "ServiceNotReachable"
