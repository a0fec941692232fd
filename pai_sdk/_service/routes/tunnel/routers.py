"""The ordinary requests of tunnels, for the description of the API and for clients without WebSockets."""

from __future__ import annotations

from fastapi import APIRouter

from pai_sdk._service.http.access import TUNNEL_PATH
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.wire_errors import WireError

router = APIRouter(route_class=ActionRoute)

_UPGRADE = (
    "This path opens a WebSocket. If a proxy before the service has removed the header Upgrade, let it pass, or "
    "send the frames to the path's sessions."
)


@router.get(
    TUNNEL_PATH, responses={101: {"description": "A WebSocket; each binary message is a frame of the tunnel."}}
)
def open_tunnel(context: ContextOf, job_id: str, instance: str) -> None:
    """Opens a tunnel into a running instance; `instance` may lack the id of the job, or be `first`."""
    raise WireError(426, "UpgradeRequired", _UPGRADE)
