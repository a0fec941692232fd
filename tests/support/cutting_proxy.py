"""A proxy on loopback that passes bytes on, and resets each connection after some of them."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

__all__ = ["CuttingProxy"]

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends RST, and what was not sent is dropped
_CHUNK_BYTES = 1 << 16


class CuttingProxy:
    """Stands before a server. Use it as a context manager.

    A connection is cut once a number of bytes has passed, of both directions together, which the seed decides: in
    the middle of a frame, of a request or of the handshake. What arrived beyond that is lost.

    Args:
        target: gives `http://host:port` of the server, which may move.
        seed: the same seed chooses the same numbers.

    Attributes:
        url: where it listens.
        cuts: how many connections were cut.
        calm: whether nothing is cut; may be changed at any time.
    """

    def __init__(self, target: Callable[[], str], *, seed: int) -> None:
        self._target = target
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.cuts = 0
        self.calm = False

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        address = urlsplit(self._target())
        try:
            far = socket.create_connection((address.hostname or "", address.port or 80), 10)
        except OSError:  # the service is being started
            _reset(near)
            return
        far.settimeout(None)
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(self, near, far, self._budget())
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=connection.copy, args=(source, target), daemon=True).start()

    def _budget(self) -> int:
        with self._lock:
            if self._chance.random() < 0.1:  # within the handshake
                return self._chance.randrange(1, 3_000)
            return int(2_000 * 500 ** self._chance.random())  # up to 1 MB, most of them less

    def count_cut(self) -> None:
        with self._lock:
            self.cuts += 1


class _Connection:
    """A connection and its continuation to the server."""

    def __init__(self, proxy: CuttingProxy, near: socket.socket, far: socket.socket, budget: int) -> None:
        self._proxy = proxy
        self._ends = (near, far)
        self._budget = budget
        self._lock = threading.Lock()
        self._users = 2
        self._is_cut = False

    def copy(self, source: socket.socket, target: socket.socket) -> None:
        """Copies one direction, until the end or the cut."""
        try:
            while data := source.recv(_CHUNK_BYTES):
                permitted = self._spend(len(data))
                if permitted:
                    target.sendall(data[:permitted])
                if permitted < len(data):
                    self._cut()
                    return
            target.shutdown(socket.SHUT_WR)
        except OSError:
            self._wake()
        finally:
            with self._lock:
                self._users -= 1
                is_last = not self._users
            if is_last:
                for end in self._ends:
                    _reset(end) if self._is_cut else end.close()

    def _spend(self, count: int) -> int:
        with self._lock:
            if self._proxy.calm:
                return count
            permitted = min(count, self._budget)
            self._budget -= permitted
            return permitted

    def _cut(self) -> None:
        with self._lock:
            if self._is_cut:
                return
            self._is_cut = True
        self._proxy.count_cut()
        self._wake()

    def _wake(self) -> None:
        """Ends the call in which the other direction waits."""
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RD)


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
