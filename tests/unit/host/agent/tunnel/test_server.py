"""The server by itself: when it ends, and errors of handlers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._host.agent.tunnel import socket_paths
from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.server import TunnelServer
from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server uses Linux's credentials of sockets")


def fail_before(_: Stream) -> None:
    raise FileNotFoundError(2, "no such file")


def fail_after(stream: Stream) -> None:
    stream.confirm()
    raise TunnelRefusedError("Gone", "it was here")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tunnel.sock"


@pytest.fixture
def tunnel(path: Path) -> Iterator[Tunnel]:
    server = TunnelServer(path, {"before": fail_before, "after": fail_after})
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield Tunnel(ResumableLink.connect(lambda: SocketTransport(socket_paths.connect(path, timeout_s=10))))
    server.close(TunnelClosedError("JobEnded", "the job has ended"))
    serving.join(20)
    assert not serving.is_alive()


def test_an_unused_server_ends(path: Path) -> None:
    TunnelServer(path, {}, idle_s=0.1).serve_forever()


def test_errors_of_handlers(tunnel: Tunnel) -> None:
    with pytest.raises(TunnelRefusedError) as caught:
        tunnel.open("before")
    assert caught.value.code == "InternalError"
    stream = tunnel.open("after")
    events = [content for name, content in stream.messages() if name == "event"]
    assert events == [{"error": {"code": "Gone", "message": "it was here"}}]


def test_the_reason_of_the_end_arrives(path: Path) -> None:
    server = TunnelServer(path, {})
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    tunnel = Tunnel(ResumableLink.connect(lambda: SocketTransport(socket_paths.connect(path, timeout_s=10))))
    server.close(TunnelClosedError("JobEnded", "the job has ended"))
    serving.join(20)
    with pytest.raises(TunnelClosedError) as caught:
        tunnel.accept(20)
    assert caught.value.code == "JobEnded"


def test_the_socket_is_for_its_user_only(path: Path) -> None:
    with socket_paths.listen(path), socket_paths.listen(path):
        assert path.stat().st_mode & 0o777 == 0o600
