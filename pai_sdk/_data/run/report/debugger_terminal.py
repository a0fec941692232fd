"""Pdb over a Unix socket. Shipped with jobs: standard library only, syntax of Python 3.8.

    breakpoint ──▶ waiting ──client joins──▶ joined ──continue──▶ running, the client stays ──breakpoint──▶ joined
                     │  ▲                      │  └────detach, q, Ctrl-D──▶ running, without a client
                     │  └────client is lost────┘
                     └──deadline──▶ running

No command ends the job. The process listens as long as it lives; at most one client has the session.
"""

from __future__ import annotations

import os
import pdb
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
        self.path = path

    @property
    def has_client(self) -> bool:
        """Whether a client has joined, as far as this end knows."""
        return self._client is not None

    def join(self) -> bool:
        """Waits for a client until the deadline; returns whether there is one."""
        if self._client is not None and not self._is_lost():
            self._on_join()
            return True
        deadline = time.monotonic() + self.timeout_s
        self._on_wait(time.time() + self.timeout_s)
        while True:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            self._listener.settimeout(remaining_s)
            try:
                client, _ = self._listener.accept()
            except socket.timeout:  # noqa: UP041 - another class before Python 3.10
                return False
            except OSError:  # it was gone before it was accepted
                time.sleep(0.05)
                continue
            self._client, self._received = client, b""
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
                if self.greeting is not None:
                    self.greeting()
            client = self._client
            remaining_s = deadline - time.monotonic()
            if client is None:
                continue  # lost while it was greeted
            if remaining_s <= 0 or len(self._received) > _MAX_LINE_BYTES:
                # The job must not wait all night for somebody who went home.
                return DETACH
            client.settimeout(remaining_s)
            try:
                data = client.recv(4096)
            except socket.timeout:  # noqa: UP041 - another class before Python 3.10
                continue
            except OSError:
                data = b""
            if data:
                self._received += data
            else:
                self.close_client()
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

    def _is_lost(self) -> bool:
        """Returns whether the client has gone while the script ran; what it has sent stays."""
        client = self._client
        if client is None:
            return True
        client.setblocking(False)
        try:
            data = client.recv(4096)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        self._received += data
        if not data:
            self.close_client()
        return not data


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
        listener.listen(4)
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
