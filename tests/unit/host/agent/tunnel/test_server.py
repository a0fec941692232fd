"""The server by itself: when it ends, and errors of handlers."""

from __future__ import annotations

import fcntl
import os
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._host.agent.tunnel import pumps, socket_paths
from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.server import TunnelServer
from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError
from tests.support.waiting import PATIENCE_S

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
    yield Tunnel(ResumableLink.connect(lambda: SocketTransport(socket_paths.connect(path, timeout_s=PATIENCE_S))))
    server.close(TunnelClosedError("JobEnded", "the job has ended"))
    serving.join(PATIENCE_S)
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


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Lets the start of one thread fail, as at the limit of threads; returns the name after that."""
    failed, start = list[str](), threading.Thread.start

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name == name and not failed:
            failed.append(name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    return failed


def opened(path: Path) -> Tunnel:
    return Tunnel(ResumableLink.connect(lambda: SocketTransport(socket_paths.connect(path, timeout_s=PATIENCE_S))))


@pytest.mark.parametrize("name", ["_serve_tunnel", "tunnel-writer"])
def test_a_session_without_a_thread_is_refused(
    tunnel: Tunnel, path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fail_once(monkeypatch, name)
    with pytest.raises(TunnelRefusedError) as refused:
        opened(path)
    assert refused.value.code == "TooManyThreads"
    with opened(path) as other:
        assert other.open("after").is_open


def test_a_connection_without_a_thread_is_opened_again(
    tunnel: Tunnel, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = fail_once(monkeypatch, "_serve")
    with opened(path) as other:
        assert other.open("after").is_open
    assert failed


def test_a_stream_without_a_thread_is_refused(tunnel: Tunnel, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_once(monkeypatch, "_serve_stream")
    with pytest.raises(TunnelRefusedError) as refused:
        tunnel.open("after")
    assert refused.value.code == "TooManyThreads"
    assert tunnel.open("after").is_open


def test_descriptors_beyond_those_of_select() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 2000:
        pytest.skip("this process may have few files only")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, most))
    try:
        reader, writer = os.pipe()
        high = fcntl.fcntl(reader, fcntl.F_DUPFD, 1100)
        os.set_blocking(high, False)
        timer = threading.Timer(0.1, os.write, (writer, b"late"))
        timer.start()
        assert pumps.read(high) == b"late"
        timer.join()
        for descriptor in (reader, writer, high):
            os.close(descriptor)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_reason_of_the_end_arrives(path: Path) -> None:
    server = TunnelServer(path, {})
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    tunnel = Tunnel(
        ResumableLink.connect(lambda: SocketTransport(socket_paths.connect(path, timeout_s=PATIENCE_S)))
    )
    server.close(TunnelClosedError("JobEnded", "the job has ended"))
    serving.join(PATIENCE_S)
    with pytest.raises(TunnelClosedError) as caught:
        tunnel.accept(PATIENCE_S)
    assert caught.value.code == "JobEnded"


def test_the_socket_is_for_its_user_only(path: Path) -> None:
    with socket_paths.listen(path), socket_paths.listen(path):
        assert path.stat().st_mode & 0o777 == 0o600
