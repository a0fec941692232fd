"""Two ends of a tunnel in one process, over socket pairs that can be cut."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.sessions import Sessions
from pai_sdk._host.agent.tunnel.streams import Tunnel
from tests.support.waiting import PATIENCE_S


class Pair:
    """A server with sessions, and clients that dial it through socket pairs."""

    def __init__(self, *, rejoin_s: float = 30.0) -> None:
        self.tunnels: list[Tunnel] = []
        self.errors: list[Exception] = []
        self.arrived = threading.Semaphore(0)
        self.sessions = Sessions(self._start, rejoin_s=rejoin_s)
        self.rejoin_s = rejoin_s
        self.transports: list[SocketTransport] = []
        self.is_down = False

    def _start(self, link: ResumableLink, instance: str) -> None:
        def on_end(error: Exception) -> None:
            self.errors.append(error)
            self.sessions.remove(link, error)

        self.tunnels.append(Tunnel(link, is_server=True, instance=instance, on_end=on_end))
        self.arrived.release()

    def connection(self) -> socket.socket:
        if self.is_down:
            raise ConnectionRefusedError("down")
        ours, other = socket.socketpair()
        threading.Thread(target=self.sessions.serve, args=(SocketTransport(other),), daemon=True).start()
        return ours

    def dial(self) -> SocketTransport:
        transport = SocketTransport(self.connection())
        self.transports.append(transport)
        return transport

    def client(self, dial: Callable[[], SocketTransport] | None = None) -> Tunnel:
        tunnel = Tunnel(ResumableLink.connect(dial or self.dial, rejoin_s=self.rejoin_s))
        assert self.arrived.acquire(timeout=PATIENCE_S)
        return tunnel

    def cut(self) -> None:
        """Cuts the newest connection."""
        if self.transports:
            self.transports.pop().close()


class CuttingTransport(SocketTransport):
    """Cuts itself after some frames, sometimes within one."""

    def __init__(self, connection: socket.socket, chance: random.Random, mean: int) -> None:
        super().__init__(connection)
        self._raw, self._chance = connection, chance
        self._remaining = chance.randrange(1, 2 * mean)

    def send_many(self, frames) -> None:
        for frame in frames:
            self._spend()
            super().send_many((frame,))

    def receive(self, timeout_s: float | None) -> bytes:
        self._spend()
        return super().receive(timeout_s)

    def _spend(self) -> None:
        self._remaining -= 1
        if self._remaining <= 0:
            if self._chance.random() < 0.5:
                # A part of a frame is the last that arrives.
                with suppress(OSError):
                    self._raw.send(b"\0\0\1")
            self.close()
            raise ConnectionResetError("cut")
