"""Connects with the tunnels of a job whose supervisor runs on this machine. Standard library only."""

from __future__ import annotations

import socket
from pathlib import Path

from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.tunnel import frames, socket_paths
from pai_sdk._host.agent.tunnel.on_demand import SOCKET
from pai_sdk._host.agent.tunnel.transports import with_length
from pai_sdk.errors import TunnelRefusedError

NO_TUNNELS = "the job was started by a release of pai_sdk without tunnels; start it again to enter it"

_CONNECT_S = 10.0


def connect_instance(state_dir: Path, instance: str) -> socket.socket:
    """Returns a connection on which a client can greet the server of an instance's tunnels.

    Raises:
        TunnelRefusedError: the job does not run, or its supervisor has no tunnels.
    """
    state = Journal(state_dir).state()
    if state is None or state.phase == "ended":
        raise TunnelRefusedError("JobNotRunning", "the job does not run, so it cannot be entered")
    try:
        connection = socket_paths.connect(state_dir / SOCKET, timeout_s=_CONNECT_S)
        connection.sendall(with_length(frames.with_json(frames.SELECT, {"instance": instance})))
    except FileNotFoundError as error:
        if state.phase == "preparing":
            raise TunnelRefusedError(
                "InstanceNotRunning", "the job is about to start; try again in a moment"
            ) from error
        raise TunnelRefusedError("NotSupported", NO_TUNNELS) from error
    except ConnectionRefusedError as error:
        raise TunnelRefusedError("JobNotRunning", "the job ends just now, so it cannot be entered") from error
    return connection
