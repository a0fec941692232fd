"""The ports where the instances of a job meet on one machine."""

from __future__ import annotations

import socket

import pytest

from pai_sdk._host.agent.distributed import free_ports


def test_the_system_gives_none_of_them_to_somebody_else() -> None:
    ports = free_ports(17)
    assert len(set(ports)) == 17
    assert max(ports) < 32_768  # where Linux begins


def test_a_port_that_is_taken_is_none_of_them() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="1 ports are needed, and 0 are free"):
            free_ports(1, ports_range=range(port, port + 1))
