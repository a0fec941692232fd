"""Starts the server of a job's tunnels with the first connection, so that a job which nobody enters has no cost.

The supervisor listens, and accepts nothing: the server gets the socket and all connections that wait on it. It may
exit at any time, and is started again with the next connection. Standard library only.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from pai_sdk._host.agent import processes
from pai_sdk._host.agent.tunnel import socket_paths
from pai_sdk._host.agent.tunnel.job_view import MARKER

SOCKET = "tunnel.sock"
"""The socket of a job's tunnels, in the folder of its state."""

_PACKAGE_PARENT = Path(__file__).parents[4]
# A program of its own: a job may run for long after another release was installed, of which some modules would be
# loaded otherwise.
_SERVE = (
    "import sys; from pathlib import Path; sys.path.append(sys.argv[1]); "
    "from pai_sdk._host.agent.tunnel.serving import main; "
    "sys.exit(main(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))"
)
_RESTART_PAUSE_S = 1.0
_MAX_GOODBYE_S = 0.5


class OnDemandServer:
    """The server of one job's tunnels.

    Attributes:
        process: the process below which the server and all of its programs are; 0 while there is none.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._next_start = 0.0
        self.process = 0
        self._listener: socket.socket | None = None
        # Without it the job runs, and cannot be entered.
        with suppress(OSError):
            self._listener = socket_paths.listen(state_dir / SOCKET)

    @property
    def descriptors(self) -> list[int]:
        """Returns what becomes readable with a connection for which `start` must be called."""
        # While the server runs it accepts them.
        can_start = self._listener is not None and not self.process and time.monotonic() >= self._next_start
        return [self._listener.fileno()] if self._listener is not None and can_start else []

    def start(self) -> None:
        """Starts the server."""
        if self._listener is None or self.process:
            return
        listener, supervisor = self._listener.fileno(), os.getpid()

        def become() -> int:
            os.set_inheritable(listener, True)
            numbers = [str(listener), str(supervisor)]
            arguments = [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _SERVE,
                str(_PACKAGE_PARENT),
                str(self._state_dir),
                *numbers,
            ]
            os.chdir("/")
            os.execv(sys.executable, arguments)  # noqa: S606 - no shell

        self._next_start = time.monotonic() + _RESTART_PAUSE_S
        # Without memory for a fork, it is tried again.
        with suppress(OSError):
            self.process = processes.spawn_call(become, log=2)

    def record_exit(self, child: int) -> None:
        """Notes that a child of the supervisor has exited."""
        if child == self.process:
            self.process = 0
            self._kill_remaining()

    @property
    def processes(self) -> list[int]:
        """Returns the processes of the server, and those that were started through tunnels."""
        return [self.process, *processes.descendants(self.process)] if self.process else []

    def kill(self) -> None:
        """Kills the programs that were started through tunnels, and the server."""
        for process in reversed(self.processes):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)

    @staticmethod
    def _kill_remaining() -> None:
        """Kills what a killed server has left behind: children of its programs, now below the supervisor."""
        marker = f"{MARKER}=".encode()
        for process in processes.descendants(os.getpid()):
            with suppress(OSError):
                variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                if any(variable.startswith(marker) for variable in variables):
                    os.kill(process, signal.SIGKILL)

    def close(self) -> None:
        """Ends the server, which tells its clients that the job has ended; waits half a second at most."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            with suppress(OSError):
                (self._state_dir / SOCKET).unlink()
        if not self.process:
            return
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGTERM)
        deadline = time.monotonic() + _MAX_GOODBYE_S
        with suppress(ChildProcessError):
            # Not reaped here, so that its id stays its own.
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            while time.monotonic() < deadline and not os.waitid(os.P_PID, self.process, options):
                time.sleep(0.01)
