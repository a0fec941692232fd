"""Starts supervisors as forks of one process, the template (`template_process`). Standard library only."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from pai_sdk._host.agent.template_process import main; sys.exit(main())"
)
_MAX_REQUEST_BYTES = 8 * 1024  # the command line of a supervisor: its program and two paths
_MAX_START_S = 10.0


class SupervisorTemplate:
    """The template of one executor. It is started with the first supervisor, and again after it was killed.

    `_lock` guards `_requests`. It is held while the template starts and while a request is sent, not during the
    wait for the reply: supervisors start at the same time.
    """

    def __init__(self, package: Path) -> None:
        self._package = package
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._is_possible = sys.platform == "linux"

    def start(self, arguments: Sequence[str], log: int) -> bool:
        """Starts a supervisor with this command line; returns False if it may not have started."""
        request = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
        if not self._is_possible or len(request) > _MAX_REQUEST_BYTES:
            return False
        reply, sent_reply = socket.socketpair()
        with reply:
            try:
                with sent_reply, self._lock:
                    if self._requests is None:
                        self._requests = self._start_template()
                    socket.send_fds(self._requests, [request], [log, sent_reply.fileno()])
                reply.settimeout(_MAX_START_S)
                # Nothing if the template was killed, or the supervisor failed.
                return bool(reply.recv(1))
            except (OSError, subprocess.SubprocessError):
                # Killed, or without a response: the next supervisor gets another template.
                self.close()
                return False

    def close(self) -> None:
        """Ends the template; supervisors continue."""
        with self._lock:
            requests, self._requests = self._requests, None
        if requests is not None:
            requests.close()

    def __del__(self) -> None:
        self.close()

    def _start_template(self) -> socket.socket:
        requests, received = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with received:
                # The last argument is room for the command lines of its forks.
                room = " " * _MAX_REQUEST_BYTES
                done = subprocess.run(
                    [sys.executable, "-I", "-S", "-c", _PROGRAM, str(self._package), room],
                    stdin=received.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={},
                    start_new_session=True,
                    timeout=_MAX_START_S,
                    check=False,
                )
            # The system does not show processes where their command lines are.
            self._is_possible = done.returncode == 0
            done.check_returncode()
        except BaseException:
            requests.close()
            raise
        return requests
