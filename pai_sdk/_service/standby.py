"""Waits for the lease of the database: as the standby of another service, or after a killed one."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from socket import socket

from sqlalchemy.exc import DBAPIError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from pai_sdk._service.http.health import is_health_check
from pai_sdk._service.http.listening import listen_on, url_of
from pai_sdk._service.http.tls import Certificate
from pai_sdk._service.http_server import HttpServer
from pai_sdk._service.settings import ServiceSettings
from pai_sdk._service.state.lease import LASTS_S, Lease, LeaseTable, now_s
from pai_sdk._service.state.process_names import ProcessName
from pai_sdk._service.state.sql_engine import display_url, lease_engine, postgres_url, readable_start_errors
from pai_sdk._service.wire_errors import WireError, wire_error_response
from pai_sdk.errors import ServiceStartError

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.25
_HANDOVER_S = 3.0  # a service that is shutting down keeps the lease for up to this time
_KILL_S = 1.0
_RETRY_AFTER_S = 1


@dataclass(frozen=True)
class Leadership:
    """The right of this service to use its database."""

    lease: Lease | None = None  # None without PostgreSQL
    mark: str | None = None  # identity of that database
    listener: socket | None = None  # on which this service has stood by; None if it has not

    def may_act(self) -> bool:
        """Returns whether no other service can have taken over."""
        return self.lease is None or self.lease.is_valid

    def loss(self) -> str | None:
        """Returns why the lease was lost; None while it is valid."""
        return None if self.lease is None else self.lease.loss


class Standby:
    """Acquires the lease of a PostgreSQL database; `is_stopped` returns True when this service must stop."""

    def __init__(
        self, settings: ServiceSettings, is_stopped: Callable[[], bool], certificate: Certificate | None = None
    ) -> None:
        url = postgres_url(settings.database_url or "")
        self._settings = settings
        self._is_stopped = is_stopped
        self._certificate = certificate
        self._display_url = display_url(url)
        self._engine = lease_engine(url)
        self._table = LeaseTable(self._engine)
        self._leadership: Leadership | None = None

    def acquire(self, stack: ExitStack) -> Leadership:
        """Acquires the lease, waiting for the expiry of a killed service's one; released with the stack."""
        stack.callback(self._engine.dispose)
        with readable_start_errors(self._display_url):
            first, started_at = "", time.monotonic()
            while not self._try(None):
                renewed, waited_s = self._table.renewed_at(), time.monotonic() - started_at
                first = first or renewed
                # A lease that was renewed during the wait has a living owner: no need to wait for its expiry.
                if waited_s > LASTS_S + _HANDOVER_S or (renewed != first and waited_s > _HANDOVER_S):
                    raise ServiceStartError(
                        f"another service already runs on the database {self._display_url}; stop it, give each a "
                        "database, or let this one stand by: --standby"
                    )
                time.sleep(_POLL_INTERVAL_S)
        return self._require_leadership(stack)

    def wait(
        self, stack: ExitStack, *, serve: Callable[[HttpServer], None], on_standby: Callable[[str], None]
    ) -> Leadership | None:
        """Stands by until the lease is acquired; returns None if this service was stopped meanwhile."""
        stack.callback(self._engine.dispose)
        with readable_start_errors(self._display_url):
            if self._try(None):
                return self._require_leadership(stack)
        settings = self._settings
        listener = stack.enter_context(listen_on(settings.host, settings.port or 0))
        url = url_of(settings.host, listener.getsockname()[1], self._certificate, settings.names)
        # Until then, health checks and clients get a response instead of a refused connection.
        server = HttpServer(_refuse, settings.connections, on_end=lambda: None, certificate=self._certificate)
        server.on_ready = lambda: on_standby(url)
        # The caller must stop it together with this service.
        serve(server)
        waiting = threading.Thread(
            target=self._try_until_acquired, args=(listener, server), name="standby", daemon=True
        )
        # The thread stops the server once it has the lease.
        waiting.start()
        if not self._is_stopped():
            # A duplicate: the server closes its socket, and the service reuses this one.
            server.run(sockets=[listener.dup()])
        waiting.join()
        return self._require_leadership(stack) if self._leadership is not None else None

    def _try_until_acquired(self, listener: socket, server: HttpServer) -> None:
        is_well = True
        while not self._is_stopped() and not server.should_exit:
            try:
                if self._try(listener):
                    break
                is_well = True
            except DBAPIError as error:
                # Logged once per outage.
                if is_well:
                    logger.warning("the standby cannot reach its database: %s", type(error.orig).__name__)
                is_well = False
            time.sleep(_POLL_INTERVAL_S)
        server.should_exit = True

    def _try(self, listener: socket | None) -> bool:
        """Acquires the lease if it is free, and renews it from then on."""
        # Before the request: the lease's life counts from here, whatever the request takes.
        sent_at = now_s()
        acquired = self._table.acquire()
        if acquired is None:
            return False
        lease = Lease(self._table, acquired.number, sent_at=sent_at)
        # Before the predecessor is killed, which may take a second: the lease must not expire meanwhile.
        lease.start()
        self._leadership = Leadership(lease, acquired.mark, listener)
        if acquired.before is not None:
            _kill_predecessor(acquired.before)
        return True

    def _require_leadership(self, stack: ExitStack) -> Leadership:
        leadership = self._leadership
        if leadership is None or leadership.lease is None:
            raise RuntimeError("the lease was not taken")
        stack.callback(leadership.lease.close)
        return leadership


def _kill_predecessor(before: ProcessName) -> None:
    """Kills the last owner of the lease if it is still running on this machine."""
    if before.is_observable() and not before.has_exited():
        logger.warning("process %d kept the lease until it expired, and is killed", before.pid)
        before.kill(patience_s=_KILL_S)
    logger.info("took over from the service on %s, process %d", before.host, before.pid)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Responds as a standby: its health, and 503 with Retry-After to all other requests."""
    if is_health_check(scope):
        response = JSONResponse({"status": "standby"}, 503, headers={"Cache-Control": "no-store"})
    else:
        error = WireError(
            503,
            "ServiceUnavailable",
            "This service stands by for another one, which is active; send the request there.",
            retry_after_s=_RETRY_AFTER_S,
        )
        host = Request(scope).headers.get("host", "")
        response = wire_error_response(error, request_id=str(uuid.uuid4()).upper(), host=host)
    await response(scope, receive, send)
