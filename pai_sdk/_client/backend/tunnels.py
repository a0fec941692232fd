"""Tunnels through a service, for backends."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from pai_sdk._client.api.transport import Transport
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.tunnel.opening import JobTunnel


def open_tunnel(transport: Transport, job_id: str, instance: str) -> JobTunnel:
    """Opens a tunnel through the service of a transport."""
    # For weight: loads the library of WebSockets, which submissions do without.
    tunnel: JobTunnel = resolve_name("pai_sdk._client.tunnel.opening:open_tunnel")(transport, job_id, instance)
    return tunnel


def not_entered(endpoint: str) -> InvalidInputError:
    """Returns the error for a job of Alibaba Cloud."""
    problem = f"{endpoint} offers no tunnels into running jobs"
    return InvalidInputError([Problem("JOB", problem, "PAI's console opens terminals for its jobs")])
