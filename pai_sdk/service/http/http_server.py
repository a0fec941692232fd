"""uvicorn with limits for connections, a periodic check whether to go on, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import uvicorn
from starlette.types import ASGIApp

from pai_sdk.service.http.guarded_connections import cut_the_slow, end_all_for_shutdown, guarded_protocol
from pai_sdk.service.http.tls import Certificate
from pai_sdk.service.settings import ConnectionLimits

if TYPE_CHECKING:
    from pai_sdk.service.http.api_app import Dispatcher

__all__ = ["HttpServer", "IdleWatch", "Preconditions", "Worker"]

logger = logging.getLogger(__name__)

_GRACE_S = 3  # after a stop was requested, for requests under way
_LAST_GRACE_S = 2  # for the connections that are ended after that
_KEEP_ALIVE_S = 75  # an idle connection that is closed as its client sends the next request costs that request
_LOOK_S = 1.0


class HttpServer(uvicorn.Server):
    """Serves one application until it is stopped; `pai-sdk serve` and `pai-sdk ui` use it.

    Args:
        app: what it serves.
        limits: of connections.
        on_end: called in the event loop when it stops; it releases the requests that wait for something.
        must_end: asked every second.
        certificate: for TLS; its files are looked at every second.

    Attributes:
        on_ready: called in the event loop once it listens.
    """

    on_ready: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        app: ASGIApp,
        limits: ConnectionLimits,
        on_end: Callable[[], None],
        must_end: Callable[[], Awaitable[bool]] | None = None,
        certificate: Certificate | None = None,
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
        self._on_end = on_end
        self._must_end = must_end
        self._limits = limits
        self._certificate = certificate
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and call `on_ready`."""
        await super().startup([] if self._certificate is not None else sockets)
        if self._certificate is not None:
            for listener in sockets or ():
                self.servers.append(await self._listen_with_tls(listener, self._certificate))
        self._watching = asyncio.create_task(self._watch())
        self.on_ready()

    async def _listen_with_tls(self, listener: socket.socket, certificate: Certificate) -> asyncio.Server:
        """As uvicorn does it, with a limit for the time of a handshake: such a connection is not yet counted."""
        protocol_class: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        make_protocol = partial(
            protocol_class,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            make_protocol,
            sock=listener,
            ssl=certificate.context,
            backlog=self.config.backlog,
            ssl_handshake_timeout=self._limits.head_s,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `on_end`, and end; connections are cut after a grace period."""
        self._on_end()
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
            if self._certificate is not None:
                await asyncio.to_thread(self._certificate.reload_if_changed)
            if self._must_end is not None and await self._must_end():
                self.should_exit = True


class Preconditions:
    """The preconditions of a running service: its data folder, its database, and work.

    Args:
        folder_is_gone: asked every second.
        database_loss: why the database cannot be used any more, or None; asked every second.
        idle: asked every second.

    Attributes:
        loss: why the service cannot go on, once it cannot.
    """

    def __init__(
        self, folder_is_gone: Callable[[], bool], database_loss: Callable[[], str | None], idle: IdleWatch
    ) -> None:
        self._idle = idle
        self._folder_is_gone = folder_is_gone
        self._database_loss = database_loss
        self.loss: str | None = None

    async def must_end(self) -> bool:
        """True when one is missing; `loss` says which, unless it is work."""
        if self._folder_is_gone():
            self.loss = "its data folder was deleted or moved"
        else:
            self.loss = self._database_loss()
        return self.loss is not None or self._idle.is_over()


class Worker(Protocol):
    """A part of the service that works also without requests."""

    @property
    def is_idle(self) -> bool:
        """True if it has nothing to do."""
        ...


class IdleWatch:
    """Knows how long the service has been idle: no request, no job, no enabled schedule.

    Args:
        timeout_s: how long it may be; None for ever.
        dispatcher: counts the requests.
        workers: the scheduler of jobs, and that of schedules.
    """

    def __init__(self, timeout_s: float | None, dispatcher: Dispatcher, *workers: Worker) -> None:
        self._timeout_s = timeout_s
        self._dispatcher = dispatcher
        self._workers = workers
        self._count = 0
        self._needed_at = time.monotonic()

    def is_over(self) -> bool:
        """True if the service can end by itself; to be asked now and then."""
        if self._timeout_s is None:
            return False
        now, count = time.monotonic(), self._dispatcher.requests_answered
        is_working = not all(worker.is_idle for worker in self._workers)
        if count != self._count or self._dispatcher.requests_under_way or is_working:
            self._count, self._needed_at = count, now
        is_over = now - self._needed_at >= self._timeout_s
        if is_over:
            logger.info("the service was idle for too long and stops")
        return is_over
