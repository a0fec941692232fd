"""Pdb over a Unix socket. Shipped with jobs: standard library only, syntax of Python 3.8.

    breakpoint ──▶ waiting ──client joins──▶ joined ──continue──▶ running, the client stays ──breakpoint──▶ joined
                     │  ▲                      │  └────detach, q, Ctrl-D──▶ running, without a client
                     │  └────client is lost────┘
                     └──deadline──▶ running

No command ends the job. The process listens as long as it lives; the client that has joined last has the session.
"""

from __future__ import annotations

import os
import pdb
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

_MAX_SEND_S = 10.0  # a client that does not read for so long is lost
_MAX_LINE_BYTES = 1 << 16
DETACH = "detach\n"


class Terminal:
    """The file that is stdin and stdout of Pdb: the socket of the client that has joined.

    Args:
        path: of the socket.
        on_wait: called when the process begins to wait for a client, with the deadline by `time.time()`.
        on_join: called when a client has joined.
    """

    encoding = "utf-8"

    def __init__(self, path: Path, on_wait: Callable[[float], None], on_join: Callable[[], None]) -> None:
        self.timeout_s = 3600.0
        self.greeting: Callable[[], None] | None = None
        self._on_wait = on_wait
        self._on_join = on_join
        self._client: socket.socket | None = None
        self._received = b""
        self._listener = _listen(path)
        self._listener.setblocking(False)
        self.path = path

    def join(self) -> bool:
        """Waits for a client until the deadline; returns whether there is one."""
        self._accept(0)
        if self._client is not None and not self._is_lost():
            self._on_join()
            return True
        deadline = time.monotonic() + self.timeout_s
        self._on_wait(time.time() + self.timeout_s)
        while self._client is None:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            self._accept(remaining_s)
        self._on_join()
        return True

    def readline(self) -> str:
        """Returns the next line of a client; waits for another one when it is lost, and detaches in the end."""
        deadline = time.monotonic() + self.timeout_s
        while b"\n" not in self._received:
            if self._client is None:
                if not self.join():
                    return DETACH
                deadline = time.monotonic() + self.timeout_s
                self._greet()
                continue  # it may be lost already
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0 or len(self._received) > _MAX_LINE_BYTES:
                # The job must not wait all night for somebody who went home.
                return DETACH
            ready = _readable([self._client, self._listener], remaining_s)
            if self._listener in ready and self._accept(0):
                deadline = time.monotonic() + self.timeout_s
                self._on_join()
                self._greet()
            elif self._client in ready:
                self._receive(self._client)
        line, _, self._received = self._received.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r") + "\n"

    def write(self, text: str) -> int:
        """Sends text to the client; without one it is lost."""
        if self._client is not None:
            self._client.settimeout(_MAX_SEND_S)
            try:
                self._client.sendall(text.encode("utf-8", "backslashreplace"))
            except OSError:
                self.close_client()
        return len(text)

    def flush(self) -> None:
        """Does nothing: `write` sends at once."""

    def close_client(self) -> None:
        """Closes the connection of the client."""
        if self._client is not None:
            with suppress(OSError):
                self._client.close()
        self._client, self._received = None, b""

    def close(self) -> None:
        """Closes the connection and the socket, and removes its file."""
        self.close_client()
        self._listener.close()
        with suppress(OSError):
            self.path.unlink()

    def _accept(self, timeout_s: float) -> bool:
        """Accepts a client, if one comes in time; returns whether one did. It replaces an earlier one.

        The connection of a client that was killed may look alive for two minutes, so the newest one counts.
        """
        if not _readable([self._listener], timeout_s):
            return False
        try:
            client, _ = self._listener.accept()
        except OSError:  # it has gone in between
            return False
        self.write("\nAnother client has joined.\n")
        self.close_client()
        self._client = client
        return True

    def _greet(self) -> None:
        if self.greeting is not None:
            self.greeting()

    def _receive(self, client: socket.socket) -> None:
        """Reads what a client has sent; closes its connection at the end."""
        client.settimeout(_MAX_SEND_S)
        try:
            data = client.recv(4096)
        except OSError:
            data = b""
        self._received += data
        if not data:
            self.close_client()

    def _is_lost(self) -> bool:
        """Returns whether the client has gone while the script ran; what it has sent stays."""
        client = self._client
        if client is not None and _readable([client], 0):
            self._receive(client)
        return self._client is None


def _readable(sockets: list[socket.socket], timeout_s: float) -> list[socket.socket]:
    """Waits until one of some sockets has data, a connection or an end; returns those."""
    # `select` knows descriptors below 1,024 only, and a training may have more.
    poll = select.poll()
    for each in sockets:
        poll.register(each, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(max(0.0, timeout_s) * 1000)}
    return [each for each in sockets if each.fileno() in ready]


def _listen(path: Path) -> socket.socket:
    with suppress(OSError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A path of a socket has 107 bytes at most; that of the folder's descriptor is short.
    folder = os.open(str(path.parent), os.O_RDONLY | os.O_CLOEXEC)
    try:
        short = Path(f"/proc/self/fd/{folder}/{path.name}")
        listener.bind(str(short if short.parent.exists() else path))
        # The folder is private, too.
        path.chmod(0o600)
        listener.listen(8)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


class TerminalDebugger(pdb.Pdb):
    """Pdb whose commands never end the program."""

    # Two threads at breakpoints take turns.
    lock = threading.RLock()

    def __init__(self, terminal: Terminal) -> None:
        # The handler of SIGINT belongs to the program, and .pdbrc to another machine.
        super().__init__(stdin=terminal, stdout=terminal, nosigint=True, readrc=False)  # type: ignore[arg-type]
        self.use_rawinput = False
        self.prompt = "(Pdb) "
        self._terminal = terminal

    def interaction(self, frame: FrameType | None, *arguments: Any) -> None:
        """Reads commands until one lets the program go on."""
        with self.lock:
            terminal = self._terminal
            if not terminal.join():
                self.set_continue()
                return
            terminal.greeting = self._greet
            try:
                super().interaction(frame, *arguments)
            finally:
                terminal.greeting = None

    def _greet(self) -> None:
        """Shows a client that joins later where the program is."""
        if self.stack:
            self.print_stack_entry(self.stack[self.curindex])
        self._terminal.write(self.prompt)

    def do_continue(self, arg: str) -> bool | None:
        """c(ont(inue)): let the program run to the next breakpoint; this session stays open."""
        self.message("The program goes on; this session waits for its next breakpoint (Ctrl-C leaves it).")
        self.set_continue()
        return True

    do_c = do_cont = do_continue

    def do_detach(self, arg: str) -> bool | None:
        """detach: leave the debugger; the program goes on."""
        self.message("Detached; the program goes on.")
        self.clear_all_breaks()
        self.set_continue()
        self._terminal.close_client()
        return True

    do_quit = do_q = do_exit = do_EOF = do_detach

    def do_run(self, arg: str) -> bool | None:
        """run: not available in a job."""
        self.error("not available in a job")
        return None

    do_restart = do_interact = do_run
