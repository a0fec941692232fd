"""uvicorn with a watch over idle times, slow clients, and the service's preconditions."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable

import uvicorn

from pai_sdk.service.http.api_app import Dispatcher
from pai_sdk.service.http.guarded_connections import cut_the_slow, end_all_for_shutdown, guarded_protocol
from pai_sdk.service.jobs.changes import Changes
from pai_sdk.service.jobs.scheduler import Scheduler
from pai_sdk.service.settings import ConnectionLimits

__all__ = ["HttpServer", "IdleWatch", "Preconditions"]

logger = logging.getLogger(__name__)

_GRACE_S = 3  # after a stop was requested, for requests under way
_LAST_GRACE_S = 2  # for the connections that are ended after that
_KEEP_ALIVE_S = 75  # an idle connection that is closed as its client sends the next request costs that request
_LOOK_S = 1.0
_ASK_DATABASE_S = 10.0


class Preconditions:
    """What a running service needs: its data folder and its database.

    Args:
        folder_is_gone: asked every second.
        database_is_lost: asked now and then, in a thread.
    """

    def __init__(self, folder_is_gone: Callable[[], bool], database_is_lost: Callable[[], bool]) -> None:
        self._folder_is_gone = folder_is_gone
        self._database_is_lost = database_is_lost
        self._ask_at = time.monotonic() + _ASK_DATABASE_S

    async def loss(self) -> str | None:
        """Why the service cannot go on, or None."""
        if self._folder_is_gone():
            return "its data folder was deleted or moved"
        if time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + _ASK_DATABASE_S
            if await asyncio.to_thread(self._database_is_lost):
                return "another service has taken its database"
        return None


class IdleWatch:
    """Knows how long the service has been idle: no request, no job."""

    def __init__(self, timeout_s: float | None, dispatcher: Dispatcher, scheduler: Scheduler) -> None:
        self._timeout_s = timeout_s
        self._dispatcher = dispatcher
        self._scheduler = scheduler
        self._answered = 0
        self._needed_at = time.monotonic()

    def is_over(self) -> bool:
        """Whether the service can end by itself; to be asked now and then."""
        if self._timeout_s is None:
            return False
        now, answered = time.monotonic(), self._dispatcher.requests_answered
        if answered != self._answered or self._dispatcher.requests_under_way or not self._scheduler.is_idle:
            self._answered, self._needed_at = answered, now
        return now - self._needed_at >= self._timeout_s


class HttpServer(uvicorn.Server):
    """uvicorn, which also ends long polls at shutdown, and ends when the service is idle for too long.

    Attributes:
        loss: why it had to end, if it had to.
    """

    def __init__(
        self,
        app: Dispatcher,
        changes: Changes,
        idle: IdleWatch,
        preconditions: Preconditions,
        limits: ConnectionLimits,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=guarded_protocol(limits),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S + _LAST_GRACE_S,
            )
        )
        self._changes = changes
        self._idle = idle
        self._preconditions = preconditions
        self._on_ready = on_ready
        self._watching: asyncio.Task[None] | None = None
        self.loss: str | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, attach to the loop, and call `on_ready`."""
        await super().startup(sockets)
        self._changes.attach(asyncio.get_running_loop())
        self._watching = asyncio.create_task(self._watch())
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._changes.release()
        if self._watching is not None:
            self._watching.cancel()
        ending = asyncio.create_task(self._end_after_grace())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end_after_grace(self) -> None:
        await asyncio.sleep(_GRACE_S)
        end_all_for_shutdown(self.server_state.connections)

    async def _watch(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(_LOOK_S)
            cut_the_slow(self.server_state.connections)
            self.loss = await self._preconditions.loss()
            if self._idle.is_over():
                logger.info("the service was idle for long enough; it ends")
            if self.loss is not None or self._idle.is_over():
                self.should_exit = True
