"""A tunnel into one running instance of a job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from pai_sdk._client.api.transport import Transport as ApiTransport
from pai_sdk._client.tunnel.dialling import Dialler
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._host.agent.tunnel.link import ResumableLink, Transport
from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk.errors import ConnectionFailedError, PaiError, TunnelClosedError

_log = logging.getLogger(__name__)

REJOIN_S = 120.0
"""For how long a lost connection is opened again; the instance waits as long."""

_ABANDON_S = 1.0


class JobTunnel:
    """Streams to one instance: programs, ports and files. Thread-safe.

    A lost connection is opened again, and no byte is lost. Streams pause until then.

    Attributes:
        job_id: the job's id.
        instance: the full name of the instance.
        on_reconnect: called with False when the connection is lost, and with True when there is one again.
    """

    def __init__(
        self,
        dial: Callable[[], Transport],
        job_id: str,
        instance: str,
        *,
        retry: RetryPolicy | None = None,
        rejoin_s: float = REJOIN_S,
    ) -> None:
        self.job_id = job_id
        self.instance = instance
        self.on_reconnect: Callable[[bool], object] = self._log_reconnect
        self._dial = dial
        self._is_connected = threading.Event()
        self._was_connected = False
        policy = retry or RetryPolicy()
        # Later connections are retried by the link, which also waits between attempts.
        self._link = policy.call(
            lambda: ResumableLink.connect(self._dial_once, rejoin_s), is_transient=_is_transient
        )
        self._tunnel = Tunnel(self._link)

    def __enter__(self) -> JobTunnel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<JobTunnel {self.instance}{'' if self.is_connected else ' reconnecting'}>"

    @property
    def is_connected(self) -> bool:
        """Returns whether there is a connection now, as far as this process knows."""
        return self._is_connected.is_set()

    def explain_end(self, explain: Callable[[Exception], Exception]) -> None:
        """Sets what returns the reason of an end that this process has not caused."""
        self._link.explain = explain

    def open(self, kind: str, **parameters: Any) -> Stream:
        """Opens a stream.

        Raises:
            TunnelRefusedError: the instance refuses; `code` has the reason.
            TunnelClosedError: the tunnel has ended.
        """
        return self._tunnel.open(kind, **parameters)

    def accept(self, timeout_s: float | None) -> Stream:
        """Returns the next stream that the instance opens; raises TimeoutError if there is none in time."""
        return self._tunnel.accept(timeout_s)

    def check(self) -> None:
        """Raises the reason if the tunnel has ended."""
        if self._link.is_ended:
            with suppress(TimeoutError):
                self._tunnel.accept(0.0)

    def close(self) -> None:
        """Ends all programs and connections of the tunnel. May be called repeatedly."""
        self._tunnel.close()

    def abandon(self) -> None:
        """Ends the tunnel in a few seconds, even if the caller no longer reads its streams."""
        self._link.close(flush_s=_ABANDON_S)

    def _dial_once(self) -> Transport:
        if self._was_connected and self._is_connected.is_set():
            self._is_connected.clear()
            self.on_reconnect(False)
        transport = self._dial()
        if self._was_connected:
            self.on_reconnect(True)
        self._was_connected = True
        self._is_connected.set()
        return transport

    def _log_reconnect(self, is_connected: bool) -> None:
        state = "there is a connection again" if is_connected else "the connection was lost; reconnecting"
        _log.warning("%s: %s", self.instance, state)


def open_tunnel(transport: ApiTransport, job_id: str, instance: str, *, rejoin_s: float = REJOIN_S) -> JobTunnel:
    """Opens a tunnel through the service of a transport.

    Raises:
        ApiError: the service refuses.
        ConnectionFailedError: the service cannot be reached, after the retries of the policy.
        TunnelRefusedError: the instance refuses, or does not run.
    """
    dialler = Dialler(transport, job_id, instance)
    return JobTunnel(dialler.dial, job_id, instance, retry=transport.retry, rejoin_s=rejoin_s)


def reason_of(error: PaiError) -> PaiError:
    """Returns why a tunnel has ended: the error of the service where it is known."""
    cause = error.__cause__
    # Always a copy, which can be raised from `error` without a circle of causes.
    has_reason = isinstance(error, TunnelClosedError) and isinstance(cause, PaiError)
    reason: PaiError = copy(cause if has_reason else error)  # type: ignore[assignment]
    return reason


def _is_transient(error: BaseException) -> bool:
    # Without a protocol error of the peer, an OSError is a lost connection.
    if isinstance(error, ConnectionFailedError):
        return error.retryable
    return isinstance(error, OSError) or (isinstance(error, PaiError) and error.retryable)
