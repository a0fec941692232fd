"""The WebSocket into an instance of a job: each binary message is a frame."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import closing, suppress
from dataclasses import dataclass

from starlette.types import Message, Receive, Scope, Send

from pai_sdk._service.http.access import TUNNEL_PATH, require_access
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.jobs.tunnels import FrameStream
from pai_sdk._service.wire_errors import WireError

logger = logging.getLogger(__name__)

_PATH = re.compile(r"/api/v1/trainingjobs/(?P<job_id>[^/]+)/instances/(?P<instance>[^/]*)/tunnel")
_CLOSING_S = 5.0  # for the last message to a client that does not read
_LAST_FRAMES_S = 2.0  # between the end of a job and that of its frames


@dataclass(frozen=True)
class Ending:
    """Why a tunnel was closed by the service, as the code of the WebSocket and as a sentence."""

    code: int
    reason: str


NOT_BINARY = Ending(1003, "Tunnels have binary messages only.")
STOPPING = Ending(1012, "The service stops.")
_RIGHTS_CHANGED = 4403
JOB_ENDED = Ending(4410, "The job has ended.")
NOT_REACHABLE = Ending(4503, "The instance cannot be reached at the moment.")


@dataclass(frozen=True)
class _Route:
    """The route of a request, for its audit entry, its measurements and its line in the log."""

    path: str


class TunnelApp:
    """Relays frames between WebSockets and the instances of running jobs; a `WebSocketGate` must be before it."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one WebSocket whose request was admitted."""
        context, match = self._context, _PATH.fullmatch(scope["path"])
        if match is None or context.settings.foreign is not None:
            message = f"This service has no WebSocket {scope['path'][:200]}."
            raise WireError(404, "InvalidAction.NotFound", message)
        principal: Principal = scope["state"]["principal"]
        parameters = match.groupdict()
        scope["route"], scope["path_params"] = _Route(TUNNEL_PATH), parameters
        job_id, instance = parameters["job_id"], parameters["instance"]
        await require_access(context, principal, scope["method"], TUNNEL_PATH, parameters)
        slot = context.tunnels.slot(principal.user)
        with slot, closing(await context.tunnels.connect(job_id, instance)) as stream:
            await send({"type": "websocket.accept", "headers": []})
            ending = await _Relay(context, job_id, principal, stream, receive, send).run()
            logger.debug("a tunnel to job %s ends: %s", job_id, ending)
            if ending is not None:
                with suppress(OSError, TimeoutError, asyncio.TimeoutError):
                    await asyncio.wait_for(send(_close(ending)), _CLOSING_S)


class _Relay:
    """One open tunnel. It reads a side only if the other one accepts what was read, so little is in memory."""

    def __init__(
        self,
        context: ServiceContext,
        job_id: str,
        principal: Principal,
        stream: FrameStream,
        receive: Receive,
        send: Send,
    ) -> None:
        self._tunnels = context.tunnels
        self._refusal_of = context.users.refusal
        self._job_id = job_id
        self._principal = principal
        self._stream = stream
        self._receive = receive
        self._send = send

    async def run(self) -> Ending | None:
        """Relays frames until either side ends or the tunnel may not continue; None if the client has left."""
        down = asyncio.create_task(self._relay_down())
        relays = self._watch_rights(), self._relay_up(), self._watch_job()
        tasks = [down, *map(asyncio.create_task, relays)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ending = next(task for task in (*tasks[1:], down) if task in done).result()
            if ending == JOB_ENDED and down not in done:
                await asyncio.wait([down], timeout=_LAST_FRAMES_S)
            return ending
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay_up(self) -> Ending | None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return None
            frame = message.get("bytes")
            if frame is None:
                return NOT_BINARY
            try:
                await self._stream.write(frame, self._tunnels.limits.stall_s)
            except OSError:
                return await self._ending_of_stream()

    async def _relay_down(self) -> Ending | None:
        while (frame := await self._stream.read()) is not None:
            try:
                await self._send({"type": "websocket.send", "bytes": frame})
            except OSError:
                return None
        return await self._ending_of_stream()

    async def _ending_of_stream(self) -> Ending:
        has_ended = await self._tunnels.has_ended(self._job_id)
        if self._tunnels.is_stopping:
            return STOPPING
        return JOB_ENDED if has_ended else NOT_REACHABLE

    async def _watch_rights(self) -> Ending:
        while (refusal := self._refusal_of(self._principal)) is None:
            await asyncio.sleep(self._tunnels.limits.check_rights_s)
        return Ending(_RIGHTS_CHANGED, refusal.message)

    async def _watch_job(self) -> Ending:
        await self._tunnels.until_end(self._job_id)
        return STOPPING if self._tunnels.is_stopping else JOB_ENDED


def _close(ending: Ending) -> Message:
    return {"type": "websocket.close", "code": ending.code, "reason": ending.reason}
