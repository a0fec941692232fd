"""Connects an instance with its service, from the node: nothing listens there. Standard library only.

    client ──▶ service ◀──WebSocket── this process ──▶ TunnelServer of the instance
                  └── request: token, addresses ──▲

A request is for one connection of one client. Both ends of the tunnel resume, so a lost connection needs no more
than another request.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pai_sdk._host.agent.tunnel import pumps
from pai_sdk._host.agent.tunnel.connecting import connect_instance
from pai_sdk._host.agent.tunnel.transports import SocketTransport
from pai_sdk._host.agent.tunnel.websocket import WebSocket
from pai_sdk.errors import TunnelRefusedError

NODE_PATH = "/api/v1/tunnels/instances"
"""The path of a service that nodes connect to."""

_ADDRESS_S = 4.0
_ALL_ADDRESSES_S = 10.0


def dial_out(request: Mapping[str, Any], state_dir: Path, instance: str) -> dict[str, str]:
    """Connects an instance with the service; returns once both are connected, and relays in threads.

    Args:
        request: `token`, `addresses` (of the service, each host and port), `fingerprint` of its certificate.
        state_dir: of the instance.
        instance: its complete name.

    Returns:
        The code and the message of a refusal; empty after success.
    """
    try:
        inner = connect_instance(state_dir, instance)
        try:
            outer = _open(request)
        except BaseException:
            inner.close()
            raise
    except TunnelRefusedError as error:
        return {"code": error.code, "message": error.message}
    except Exception as error:
        return {"code": "NotReady", "message": f"the instance cannot be reached on its node: {error}"}
    transport = SocketTransport(inner)
    try:
        pumps.start(_relay_up, outer, transport)
        pumps.start(_relay_down, outer, transport)
    except TunnelRefusedError as error:
        outer.close()
        transport.close()
        return {"code": error.code, "message": error.message}
    return {}


def _open(request: Mapping[str, Any]) -> WebSocket:
    """Opens a WebSocket to the first address of the service that responds."""
    problems = []
    deadline = time.monotonic() + _ALL_ADDRESSES_S
    for host, port in request["addresses"]:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            break
        try:
            return WebSocket.open(
                (host, port),
                NODE_PATH,
                token=request["token"],
                fingerprint=request["fingerprint"],
                timeout_s=min(_ADDRESS_S, remaining_s),
            )
        except OSError as error:
            problems.append(f"{host}:{port}: {error}")
    reasons = "; ".join(problems)
    message = f"the node {socket.gethostname()} cannot reach the service ({reasons})"
    raise TunnelRefusedError("ServiceNotReachable", message)


def _relay_up(outer: WebSocket, inner: SocketTransport) -> None:
    """Sends frames of the instance to the service."""
    with suppress(OSError):
        while True:
            outer.send(inner.receive(None))
    outer.close()
    inner.close()


def _relay_down(outer: WebSocket, inner: SocketTransport) -> None:
    """Sends frames of the service to the instance."""
    with suppress(OSError):
        while True:
            inner.send(outer.receive())
    outer.close()
    inner.close()
