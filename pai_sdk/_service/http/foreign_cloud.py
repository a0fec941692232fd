"""A test mode: creates are delayed or delivered twice, as on a foreign cloud."""

from __future__ import annotations

import asyncio
import random
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pai_sdk._service.settings import ForeignCloud

_CREATES = (("POST", "/api/v1/trainingjobs"), ("POST", "/api/v1/jobs"))  # the second one is of DLC


class AsForeignCloud:
    """Wraps the gate of the API; delays or repeats creates, as a gateway or a slow service would."""

    def __init__(self, app: ASGIApp, foreign: ForeignCloud) -> None:
        self._app = app
        self._foreign = foreign

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if (scope["method"], scope["path"]) not in _CREATES:
            await self._app(scope, receive, send)
            return
        body = await _read_body(receive)
        is_late = random.random() < self._foreign.late  # noqa: S311 - chance, not secrets
        if is_late:
            await asyncio.sleep(self._foreign.create_late_s)
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        times = 2 if random.random() < self._foreign.doubled else 1  # noqa: S311
        for _ in range(times):
            messages.clear()
            await self._app(_copy(scope), _replay(body), keep)
        if is_late:
            await asyncio.sleep(self._foreign.response_delay_s)
        for message in messages:
            await send(message)


async def _read_body(receive: Receive) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


def _replay(body: bytes) -> Receive:
    async def replay() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _copy(scope: Scope) -> MutableMapping[str, Any]:
    return {**scope, "state": dict(scope.get("state", {}))}  # each delivery has a state of its own
