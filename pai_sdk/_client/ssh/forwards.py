"""Forwarded TCP connections of SSH, in both directions."""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from typing import Any

import asyncssh

from pai_sdk._client.ssh.bridge import BridgedSession, ChannelBridge, StreamTunnel, run_in_thread
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import TunnelRefusedError

_logger = logging.getLogger(__name__)

_ACCEPT_TIMEOUT_S = 5.0


class ForwardSession(BridgedSession, asyncssh.SSHTCPSession[bytes]):
    """A forwarded connection whose stream is open already."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def connection_made(self, chan: asyncssh.SSHTCPChannel[bytes]) -> None:
        """Stores the channel."""
        self._channel = chan
        self._bridge = ChannelBridge(chan, "pai-ssh forward")

    def session_started(self) -> None:
        """Starts to copy in both directions."""
        self._bridge.start(self._run)

    def _run(self) -> None:
        self._bridge.use(self._stream)
        try:
            while data := self._stream.read():
                if not self._bridge.write(data):
                    return
            # OpenSSH closes the channel when both directions have ended.
            self._bridge.output.add(self._channel.write_eof)
        except Exception:  # a reset connection or a lost tunnel
            _logger.debug("a forwarded connection", exc_info=True)
            self._bridge.output.add(self._channel.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes the connection in the job, after what the client has sent before it closed."""
        self._bridge.close(drain=exc is None)


async def connect(tunnel: StreamTunnel, host: str, port: int) -> ForwardSession:
    """Connects to a port in the job.

    Raises:
        ChannelOpenError: the job refuses; OpenSSH shows the reason.
    """
    open_stream = partial(tunnel.open, "connect", host=host, port=port)
    try:
        stream = await asyncio.wrap_future(run_in_thread(open_stream, "pai-ssh connect"))
    except TunnelRefusedError as error:
        code = asyncssh.OPEN_CONNECT_FAILED
        if error.code in ("InvalidRequest", "NotSupported"):
            code = asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
        raise asyncssh.ChannelOpenError(code, str(error)) from error
    except Exception as error:  # any other would close the whole connection
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from error
    return ForwardSession(stream)


class ReverseListener(asyncssh.SSHListener):
    """A port that the job listens on for the client (`ssh -R`)."""

    def __init__(self, stream: Stream, connection: asyncssh.SSHServerConnection, host: str, port: int) -> None:
        super().__init__()
        self._stream = stream
        self._connection = connection
        self._host = host  # as the client has written it, by which it recognizes the connections
        self._requested_port = port

    @property
    def id(self) -> Any:
        """Returns the identity that accepted streams refer to."""
        return self._stream.result.get("listener", self._stream.number)

    def get_port(self) -> int:
        """Returns the port."""
        return int(self._stream.result.get("port", self._requested_port))

    def close(self) -> None:
        """Stops listening; accepted connections remain."""
        run_in_thread(self._stream.close, "pai-ssh listener")

    async def wait_closed(self) -> None:
        """Returns at once: the close is not waited for."""

    async def forward(self, stream: Stream) -> None:
        """Opens a channel to the client for a connection that the job has accepted."""
        peer_host, peer_port = _peer(stream)
        try:
            await self._connection.create_connection(
                lambda: ForwardSession(stream),
                self._host,
                self.get_port(),
                peer_host,
                peer_port,
                encoding=None,
            )
        except Exception:  # the client refuses, as when nothing listens on its side
            _logger.debug("a connection of a reverse forward", exc_info=True)
            run_in_thread(stream.close, "pai-ssh refused")


class Acceptor:
    """Gives accepted streams to their listeners, and notices the end of the tunnel, by one thread."""

    def __init__(self, tunnel: StreamTunnel, loop: asyncio.AbstractEventLoop) -> None:
        self._tunnel = tunnel
        self._loop = loop
        self._listeners: dict[Any, ReverseListener] = {}  # touched by the event loop only
        self._is_closed = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop has weak references only
        self.failure: asyncio.Future[str] = loop.create_future()

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="pai-ssh accept", daemon=True).start()

    def close(self) -> None:
        """Ends the thread, within seconds."""
        self._is_closed.set()

    async def listen(
        self, connection: asyncssh.SSHServerConnection, host: str, port: int
    ) -> ReverseListener | None:
        """Listens on a port in the job; returns None if the job refuses."""
        open_stream = partial(self._tunnel.open, "listen", port=port)
        try:
            stream = await asyncio.wrap_future(run_in_thread(open_stream, "pai-ssh listen"))
        except Exception as error:
            _logger.info("the job cannot listen on port %d: %s", port, error)
            return None
        listener = ReverseListener(stream, connection, host, port)
        self._listeners[listener.id] = listener
        return listener

    def _run(self) -> None:
        while not self._is_closed.is_set():
            try:
                stream = self._tunnel.accept(_ACCEPT_TIMEOUT_S)
            except TimeoutError:
                continue
            except Exception as error:
                self._post(partial(self._fail, str(error) or type(error).__name__))
                return
            self._post(partial(self._forward, stream))

    def _post(self, action: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop is closed
            self._is_closed.set()

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)

    def _forward(self, stream: Stream) -> None:
        listener = self._listeners.get(stream.parameters.get("listener"))
        if listener is None:
            run_in_thread(stream.close, "pai-ssh refused")
            return
        task = self._loop.create_task(listener.forward(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _peer(stream: Stream) -> tuple[str, int]:
    """Returns the address of the client of an accepted connection."""
    host, _, port = str(stream.parameters.get("peer")).rpartition(":")
    return (host, int(port)) if host and port.isdigit() else ("127.0.0.1", 0)
