"""The process below which all programs of a tunnel run. It has one thread, so that it may fork at any time.

    supervisor ──▶ spawner ──▶ server, with threads (`server`)
                      │  ▲───requests, descriptors───┘
                      └──▶ programs and functions in the job's view (`children`)

The spawner adopts what programs leave behind. It ends with its server, and all its descendants with it. If it is
killed, the server and the programs are killed too.

Standard library only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pai_sdk._host.agent.processes import adopt_orphans, die_with_parent, kill_descendants
from pai_sdk._host.agent.tunnel import children
from pai_sdk._host.agent.tunnel.job_view import InstanceView
from pai_sdk.errors import TunnelRefusedError

_MAX_REQUEST_BYTES = 160 * 1024
_MAX_DESCRIPTORS = 4
_START_S = 30.0


class Child:
    """A process that the spawner has started.

    Attributes:
        process: its id, which is also that of its session.
        outcome: `{"code": …}` or `{"signal": …}` once it has ended.
    """

    def __init__(self, on_exit: Callable[[], None]) -> None:
        self.process = 0
        self.outcome: dict[str, int] | None = None
        self._on_exit = on_exit
        self._started = threading.Event()

    def wait_started(self) -> None:
        """Waits for the process id."""
        if not self._started.wait(_START_S) or not self.process:
            raise TunnelRefusedError("NotStarted", "no process could be started in the instance")

    def on_start(self, process: int) -> None:
        """Receives the process id; 0 if there is no process."""
        self.process = process
        self._started.set()

    def on_exit(self, outcome: dict[str, int]) -> None:
        """Receives how the process has ended."""
        self.outcome = outcome
        self._started.set()
        self._on_exit()


class Spawner:
    """The spawner, as the threads of its server use it. `_lock` guards the children and the order of requests."""

    def __init__(self, requests: socket.socket, process: int, view: InstanceView) -> None:
        self.process = process
        self.view = view
        self._requests = requests
        self._lock = threading.Lock()
        self._children: dict[int, Child] = {}
        self._last = 0
        threading.Thread(target=self._read, name="spawner-replies", daemon=True).start()

    def start(
        self, request: Mapping[str, Any], descriptors: Sequence[int], on_exit: Callable[[], None] = lambda: None
    ) -> Child:
        """Starts a process and returns when it has its id; the caller closes the descriptors.

        Raises:
            TunnelRefusedError: it could not be started.
        """
        child = Child(on_exit)
        with self._lock:
            self._last += 1
            self._children[self._last] = child
            message = json.dumps({**request, "id": self._last}).encode()
            try:
                socket.send_fds(self._requests, [message], descriptors)
            except OSError as error:
                del self._children[self._last]
                raise TunnelRefusedError("NotStarted", f"no process could be started: {error}") from error
        child.wait_started()
        return child

    def _read(self) -> None:
        while True:
            try:
                reply = self._requests.recv(4096)
            except OSError:
                reply = b""
            if not reply:
                # Without the spawner this process is about to be killed.
                return
            content = json.loads(reply)
            with self._lock:
                child = self._children.get(content["id"])
                if child is not None and "outcome" in content:
                    del self._children[content["id"]]
            if child is None:
                continue
            if "outcome" in content:
                child.on_exit(content["outcome"])
            else:
                child.on_start(content["process"])


def run(view: InstanceView, serve: Callable[[Spawner], None]) -> int:
    """Acts as the spawner until `serve`, which is called in a process with threads, returns."""
    adopt_orphans()
    spawner_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (spawner_end, server_end):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MAX_REQUEST_BYTES)
    wake_reader, wake_writer = os.pipe()
    for descriptor in (wake_reader, wake_writer):
        os.set_blocking(descriptor, False)
    process = os.getpid()
    server = os.fork()
    if server == 0:
        code = 1
        try:
            die_with_parent()
            spawner_end.close()
            serve(Spawner(server_end, process, view))
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(code)
    server_end.close()
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # The server says goodbye; when it has exited, so does this process.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: _signal(server, signal.SIGTERM))
    try:
        _Loop(spawner_end, wake_reader, server).run()
    finally:
        for _ in kill_descendants():
            pass
    return 0


class _Loop:
    """Forks a process for each request, and reports how each has ended."""

    def __init__(self, requests: socket.socket, wake: int, server: int) -> None:
        self._requests = requests
        self._wake = wake
        self._server = server
        self._ids: dict[int, int] = {}  # by process

    def run(self) -> None:
        """Returns when the server has exited."""
        while True:
            waiting: list[Any] = [self._requests, self._wake]
            ready, _, _ = select.select(waiting, [], [])
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            if self._requests in ready and not self._fork():
                return
            if self._reap():
                return

    def _fork(self) -> bool:
        """Starts the process of a request; returns False if there will be no other request."""
        message, descriptors, _, _ = socket.recv_fds(self._requests, _MAX_REQUEST_BYTES, _MAX_DESCRIPTORS)
        if not message:
            return False
        request = json.loads(message)
        process, parent = 0, os.getpid()
        # A signal for the new process must not run the handlers of this one there: it is blocked until the new
        # process has reset them.
        signal.pthread_sigmask(signal.SIG_BLOCK, children.RESET_SIGNALS)
        # Without memory for a fork there is no process.
        with suppress(OSError):
            process = os.fork()
            if process == 0:
                children.run(request, descriptors, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, children.RESET_SIGNALS)
        for descriptor in descriptors:
            os.close(descriptor)
        if process:
            self._ids[process] = request["id"]
        self._reply({"id": request["id"], "process": process})
        return True

    def _reap(self) -> bool:
        """Reports the children that have exited; returns whether the server is one of them."""
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if process == 0:
                return False
            if process == self._server:
                return True
            # Orphans that this process has adopted have none.
            number = self._ids.pop(process, None)
            if number is not None:
                code = os.waitstatus_to_exitcode(status)
                self._reply({"id": number, "outcome": {"signal": -code} if code < 0 else {"code": code}})

    def _reply(self, content: Mapping[str, Any]) -> None:
        # A server that has just been killed gets no reply.
        with suppress(OSError):
            self._requests.send(json.dumps(content).encode())


def _signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)
