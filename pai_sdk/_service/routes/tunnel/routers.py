"""The ordinary requests of tunnels, for the description of the API and for clients without WebSockets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from pai_sdk._service.http.access import TUNNEL_PATH, TUNNEL_SESSION_PATH
from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.jobs.tunnel_sessions import MAX_MESSAGE_BYTES, TunnelSessions
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.base import Empty
from pai_sdk._wire.tunnels import MESSAGE_NUMBER

router = APIRouter(route_class=ActionRoute)

_UPGRADE = (
    "This path opens a WebSocket. If a proxy before the service has removed the header Upgrade, let it pass, or "
    "send the frames to the path's sessions."
)
_FRAMES = "application/octet-stream"
_MIN_ID_LENGTH, _MAX_ID_LENGTH = 16, 64


async def _sessions(request: Request, context: ContextOf, session_id: str = "") -> TunnelSessions:
    if context.settings.foreign is not None:
        raise WireError(404, "InvalidAction.NotFound", "This service has no tunnels.")
    if not _MIN_ID_LENGTH <= len(session_id) <= _MAX_ID_LENGTH:
        raise invalid_parameter(f"The id of a session has {_MIN_ID_LENGTH} to {_MAX_ID_LENGTH} characters.")
    sessions: TunnelSessions = request.app.state.tunnel_sessions
    return sessions


SessionsOf = Annotated[TunnelSessions, Depends(_sessions)]
NumberOf = Annotated[
    int, Query(alias=MESSAGE_NUMBER, ge=0, description="counts the messages of a direction from 0")
]


@router.get(
    TUNNEL_PATH, responses={101: {"description": "A WebSocket; each binary message is a frame of the tunnel."}}
)
def open_tunnel(context: ContextOf, job_id: str, instance: str) -> None:
    """Opens a tunnel into a running instance; `instance` may lack the id of the job, or be `first`."""
    raise WireError(426, "UpgradeRequired", _UPGRADE)


@router.post(TUNNEL_SESSION_PATH, response_model=Empty, openapi_extra={"requestBody": {"content": {_FRAMES: {}}}})
async def send_tunnel_message(
    request: Request,
    sessions: SessionsOf,
    principal: PrincipalOf,
    job_id: str,
    instance: str,
    session_id: str,
    number: NumberOf,
) -> Response:
    """Sends frames, each behind its length in 4 bytes; number 0 opens the session, which has a random id."""
    message = await request.body()
    if len(message) > MAX_MESSAGE_BYTES:
        raise WireError(413, "RequestTooLarge", f"A message has at most {MAX_MESSAGE_BYTES} bytes.")
    key = job_id, instance, session_id
    if number == 0 and await sessions.open(*key, principal):
        record_created_id(request, session_id)
    await sessions.get(*key, principal).send(number, message)
    return success(request)


@router.get(TUNNEL_SESSION_PATH, response_class=Response, responses={200: {"content": {_FRAMES: {}}}})
async def poll_tunnel(
    sessions: SessionsOf, principal: PrincipalOf, job_id: str, instance: str, session_id: str, number: NumberOf
) -> Response:
    """Waits up to 20 seconds for frames; a number confirms all messages before it."""
    session = sessions.get(job_id, instance, session_id, principal)
    return Response(await session.poll(number), media_type=_FRAMES)


@router.delete(TUNNEL_SESSION_PATH, response_model=Empty)
async def close_tunnel(
    request: Request, sessions: SessionsOf, principal: PrincipalOf, job_id: str, instance: str, session_id: str
) -> Response:
    """Closes a session."""
    sessions.get(job_id, instance, session_id, principal).end()
    return success(request)
