"""uvicorn with limits for connections, a periodic check of preconditions, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Protocol

import uvicorn
from starlette.types import ASGIApp

from pai_sdk._service.http.guarded_connections import (
    close_all_for_shutdown,
    close_slow_connections,
    guarded_protocol,
)
from pai_sdk._service.http.guarded_websockets import (
    MAX_MESSAGE_BYTES,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    guarded_websocket,
)
from pai_sdk._service.http.tls import Certificate
from pai_sdk._service.settings import ConnectionLimits

if TYPE_CHECKING:
    from pai_sdk._service.routes.api_app import Dispatcher

logger = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75  # closing an idle connection while its client sends the next request costs that request


class HttpServer(uvicorn.Server):
    """Serves one application until it is stopped; `pai-sdk serve` and `pai-sdk ui` use it.

    Args:
        app: the application.
        limits: of connections.
        on_end: called in the event loop when it stops; it must release requests that wait, such as long polls.
        must_end: called every second.
        certificate: for TLS; its files are checked every second.
        has_websockets: whether the application serves WebSockets; otherwise such requests are ordinary ones.
    """

    # Called in the event loop once it listens.
    on_ready: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        app: ASGIApp,
        limits: ConnectionLimits,
        on_end: Callable[[], None],
        must_end: Callable[[], Awaitable[bool]] | None = None,
        certificate: Certificate | None = None,
        *,
        has_websockets: bool = False,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=guarded_protocol(limits),
                ws=guarded_websocket(limits) if has_websockets else "none",
                ws_max_size=MAX_MESSAGE_BYTES,
                ws_per_message_deflate=False,
                ws_ping_interval=PING_INTERVAL_S,
                ws_ping_timeout=PING_TIMEOUT_S,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=ceil(limits.grace_s + limits.last_grace_s),
            )
        )
        self._on_end = on_end
        self._must_end = must_end
        self._limits = limits
        self._certificate = certificate
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts, and calls `on_ready`."""
        # With TLS, uvicorn itself listens on nothing: it has no option for the time limit of a handshake.
        await super().startup([] if self._certificate is not None else sockets)
        if self._certificate is not None:
            for listener in sockets or ():
                self.servers.append(await self._listen_with_tls(listener, self._certificate))
        self._watching = asyncio.create_task(self._watch())
        self.on_ready()

    async def _listen_with_tls(self, listener: socket.socket, certificate: Certificate) -> asyncio.Server:
        """Listens as uvicorn does, with a limit for the time of a TLS handshake."""
        # During its handshake, a connection is not in `connections` yet, so no other limit applies to it.
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
        """Calls `on_end`, and stops; connections are closed after a grace period."""
        # First: requests that wait, such as long polls, would otherwise use up the grace period.
        self._on_end()
        if self._watching is not None:
            self._watching.cancel()
        ending = asyncio.create_task(self._end_after_grace())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end_after_grace(self) -> None:
        await asyncio.sleep(self._limits.grace_s)
        close_all_for_shutdown(self.server_state.connections)

    async def _watch(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(self._limits.check_interval_s)
            close_slow_connections(self.server_state.connections)
            # In a thread, because it reads files.
            if self._certificate is not None:
                await asyncio.to_thread(self._certificate.reload_if_changed)
            if self._must_end is not None and await self._must_end():
                self.should_exit = True


class Preconditions:
    """The preconditions of a running service, checked every second: its data folder, its database, and work."""

    def __init__(
        self, folder_is_gone: Callable[[], bool], database_loss: Callable[[], str | None], idle: IdleWatch
    ) -> None:
        self._idle = idle
        self._folder_is_gone = folder_is_gone
        self._database_loss = database_loss
        self.loss: str | None = None  # why the service cannot continue

    async def must_end(self) -> bool:
        """Returns True when one is missing. `loss` is the reason, unless the service was idle."""
        if self._folder_is_gone():
            self.loss = "its data folder was deleted or moved"
        else:
            self.loss = self._database_loss()
        return self.loss is not None or self._idle.is_expired()


class Worker(Protocol):
    """A part of the service that also works without requests."""

    @property
    def is_idle(self) -> bool:
        """Whether it has no work."""
        ...


class IdleWatch:
    """Measures how long the service has been idle: no request, no job, no enabled schedule."""

    def __init__(self, timeout_s: float | None, dispatcher: Dispatcher, *workers: Worker) -> None:
        self._timeout_s = timeout_s
        self._dispatcher = dispatcher
        self._workers = workers  # the scheduler of jobs, and that of schedules
        self._count = 0
        self._last_used_at = time.monotonic()

    def is_expired(self) -> bool:
        """Returns whether the service was idle for the timeout; each call also detects use since the last one."""
        if self._timeout_s is None:
            return False
        now, count = time.monotonic(), self._dispatcher.requests_answered
        is_working = not all(worker.is_idle for worker in self._workers)
        if count != self._count or self._dispatcher.requests_under_way or is_working:
            self._count, self._last_used_at = count, now
        is_expired = now - self._last_used_at >= self._timeout_s
        if is_expired:
            logger.info("the service was idle for too long and stops")
        return is_expired
