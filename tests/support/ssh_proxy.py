"""The ProxyCommand of tests: SSH over a `TunnelServer` on a Unix socket, for `python -m … SOCKET FOLDER`."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from pai_sdk._client.ssh.proxy import run_proxy
from pai_sdk._host.agent.tunnel.link import ResumableLink
from pai_sdk._host.agent.tunnel.streams import Tunnel
from pai_sdk._host.agent.tunnel.transports import SocketTransport


def open_tunnel(path: str) -> Tunnel:
    def dial() -> SocketTransport:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        return SocketTransport(connection)

    return Tunnel(ResumableLink.connect(dial))


if __name__ == "__main__":
    can_fork = "--spawn" not in sys.argv
    sys.exit(run_proxy(lambda: open_tunnel(sys.argv[1]), Path(sys.argv[2]), can_fork=can_fork))
