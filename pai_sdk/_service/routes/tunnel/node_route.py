"""The WebSocket that nodes of a cluster open for a tunnel into one of their instances; a token admits it, once."""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import closing

from starlette.types import Receive, Scope, Send

from pai_sdk._host.execution.node_connections import NodeConnections
from pai_sdk._service.services.jobs.tunnels import FrameStream
from pai_sdk._service.wire_errors import WireError, wire_error_response

logger = logging.getLogger(__name__)

_SCHEME = "bearer"
_UNKNOWN = "This service expects no such connection."


class NodeApp:
    """Relays frames between WebSockets of nodes and the tunnels that wait for them.

    The user's rights were checked for the tunnel that waits, which ends the WebSocket with its own end.

    Args:
        connections: which are expected.
        stall_s: seconds after which a tunnel that takes no frame ends.
    """

    def __init__(self, connections: NodeConnections, stall_s: float) -> None:
        self._connections = connections
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one WebSocket."""
        await receive()  # the node's request to connect
        headers = dict(scope["headers"])
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        is_of_page = b"origin" in headers or scheme.lower() != _SCHEME
        connection = None if is_of_page else self._connections.accept(token.strip())
        if connection is None:
            error = WireError(404, "NotFound", _UNKNOWN)
            response = wire_error_response(error, request_id=str(uuid.uuid4()).upper(), host="")
            await response(scope, receive, send)
            return
        with closing(await FrameStream.of(connection)) as stream:
            await send({"type": "websocket.accept", "headers": []})
            tasks = [
                asyncio.create_task(self._relay_in(stream, receive)),
                asyncio.create_task(self._relay_out(stream, send)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception) and not isinstance(result, OSError):
                    logger.error("a connection of a node has failed", exc_info=result)

    async def _relay_in(self, stream: FrameStream, receive: Receive) -> None:
        """Passes what the node sends."""
        while True:
            message = await receive()
            frame = message.get("bytes")
            if message["type"] == "websocket.disconnect" or frame is None:
                return
            await stream.write(frame, self._stall_s)

    async def _relay_out(self, stream: FrameStream, send: Send) -> None:
        """Passes what the tunnel sends, and closes the WebSocket at its end."""
        while (frame := await stream.read()) is not None:
            await send({"type": "websocket.send", "bytes": frame})
        await send({"type": "websocket.close", "code": 1000})
