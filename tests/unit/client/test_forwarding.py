"""Forwarded ports: what programs and the user see of errors."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from pai_sdk._client.tunnel.forwarding import ForwardedPort, PortForward
from pai_sdk._client.tunnel.opening import JobTunnel, open_tunnel
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import InvalidInputError, TunnelClosedError
from tests.support.fake_tunnel import FakeTunnelService
from tests.support.waiting import PATIENCE_S, until


def refuse(stream: Stream) -> None:
    stream.refuse("ConnectionRefused", "port 6006 of the instance: Connection refused")


def end_early(stream: Stream) -> None:
    stream.confirm({})
    stream.write(b"a part")
    stream.tunnel.close()


def read_all(connection: socket.socket) -> None:
    while connection.recv(100):
        pass


@pytest.mark.parametrize("handler", [refuse, end_early])
def test_a_connection_that_fails_is_reset(handler: object) -> None:
    errors = list[str]()
    with FakeTunnelService(connect=handler) as service:
        tunnel = open_tunnel(service.transport(), "t-1", "i")
        with PortForward(tunnel, [ForwardedPort(0, 6006)], on_error=errors.append) as forward:
            address = "127.0.0.1", forward.ports[0].local
            with socket.create_connection(address, PATIENCE_S) as connection, pytest.raises(ConnectionResetError):
                read_all(connection)
    if handler is refuse:
        until(lambda: errors, "a message")
        assert errors[0].count("6006") == 1


def test_a_port_in_use_is_named_once() -> None:
    with FakeTunnelService() as service, socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        tunnel = open_tunnel(service.transport(), "t-1", "i")
        with pytest.raises(InvalidInputError) as error:
            PortForward(tunnel, [ForwardedPort(number, 1)])
        assert str(error.value).count(str(number)) == 1


@pytest.mark.parametrize(("code", "count"), [("JobEnded", 0), ("AttemptEnded", 1)])
def test_the_end_of_a_job_is_reported_once(code: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> JobTunnel:
        raise TunnelClosedError(code, "has ended")

    errors = list[str]()
    with FakeTunnelService() as service:
        tunnel = open_tunnel(service.transport(), "t-1", "i")
        monkeypatch.setattr(tunnel, "check", fail)
        forward = PortForward(tunnel, [ForwardedPort(0, 1)], on_error=errors.append, reenter=fail)
        with closing(forward), pytest.raises(TunnelClosedError):
            forward.wait(PATIENCE_S)
    assert len(errors) == count
