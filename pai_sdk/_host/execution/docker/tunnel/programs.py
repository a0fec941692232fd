"""A program in the container of an instance, run by the engine, with all that the engine does not do for it.

The engine has no call that ends a program: when its client goes, the program stays. So each has a mark among its
variables, and all processes of its session or with its mark are signalled: from this machine if its processes
are visible here and may be signalled, otherwise by a second program in the container.
"""

from __future__ import annotations

import importlib.resources
import os
import re
import secrets
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pai_sdk._host.agent.tunnel.job_view import MARKER
from pai_sdk._host.execution.docker.tunnel.exec_stream import ExecStream
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer

# The engine detaches the terminal when these keys are typed. Its default, Ctrl-P Ctrl-Q, is used by shells and
# editors, and it cannot be disabled, so this is a sequence that is never typed by accident.
_DETACH_KEYS = ",".join(["ctrl-@", "ctrl-^", "ctrl-_", "ctrl-]"] * 4)
_END_OF_INPUT = b"\x04"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGNALS = ("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP", "TSTP", "WINCH")
_HANG_UP_S = 2.0
_KILL_S = 5.0
_POLL_S = 0.05
_START_TIMEOUT_S = 10.0
_MAX_EXIT_POLL_S = 1.0
_INSPECTION_INTERVAL_S = 5.0
_LOST = 137  # the exit code of a program whose container is gone: it was killed with it


@dataclass(frozen=True)
class Terminal:
    """The terminal of the user: its kind, and its size in characters."""

    term: str
    rows: int
    columns: int


@dataclass(frozen=True)
class ProgramSpec:
    """A program to run: its arguments, additional variables, folder (None: the job's), and terminal, if any."""

    argv: Sequence[str]
    terminal: Terminal | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None


class ContainerProgram:
    """A running program; one thread reads its output, one writes its input. The engine is closed by its owner."""

    def __init__(self, container: InstanceContainer, spec: ProgramSpec) -> None:
        self._container = container
        self._api = container.engine.client.api
        self._spec = spec
        self._mark = _mark_prefix(container) + secrets.token_hex(16)
        self._at_line_start = True
        self._leader = 0
        self._next_inspection = 0.0
        self._exec_id = self._create()
        settings: dict[str, Any] = {"Tty": spec.terminal is not None}
        if spec.terminal:
            # From API 1.42 on; older engines ignore it, and `enter.sh` waits for the size.
            settings["ConsoleSize"] = [spec.terminal.rows, spec.terminal.columns]
        self._stream = ExecStream.start(container.engine, self._exec_id, settings)
        if spec.terminal:
            self.resize(spec.terminal.rows, spec.terminal.columns)

    def _create(self) -> str:
        terminal = self._spec.terminal
        variables = {**self._spec.variables, **({"TERM": terminal.term} if terminal and terminal.term else {})}
        lines = [f"export {name}={shlex.quote(text)}" for name, text in variables.items() if _is_variable(name)]
        environment = {
            MARKER: self._mark,
            "PAI_SDK_TUNNEL_SET": "\n".join(lines),
            "PAI_SDK_TUNNEL_FOLDER": self._spec.folder or "",
        }
        created = self._api.exec_create(
            self._container.id,
            ["/bin/sh", "-c", script("enter.sh"), self._container.instance, *self._spec.argv],
            stdin=True,
            tty=terminal is not None,
            environment=environment,
            detach_keys=_DETACH_KEYS if terminal else None,
        )
        return str(created["Id"])

    def output(self) -> Iterator[tuple[int, bytes]]:
        """Yields the output as it arrives, with its source.

        Ends a second after the program too: its children in the background may have the output open for long.
        """
        return self._stream.output(self._has_exited)

    def write(self, data: memoryview) -> None:
        """Writes to the input; raises `OSError` if the program has ended, or was disconnected."""
        if data:
            self._stream.write(data)
            self._at_line_start = data[-1] in b"\n\r\x04"

    def end_input(self) -> None:
        """Ends the input; the output continues."""
        if self._spec.terminal is None:
            self._stream.end_input()
            return
        # To close a half of the connection would end the output at once, and leave the program. In the middle of a
        # line the first key only sends the line.
        with suppress(OSError):
            self._stream.write(_END_OF_INPUT if self._at_line_start else _END_OF_INPUT * 2)

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the terminal; the program gets SIGWINCH if it differs."""
        if self._spec.terminal is None:
            return
        # It may have ended.
        with suppress(Exception):
            self._api.exec_resize(self._exec_id, height=rows, width=columns)

    def signal(self, name: str) -> None:
        """Sends a signal, such as `INT`, to all processes of the program."""
        if name.removeprefix("SIG") in _SIGNALS:
            self._processes().send(name.removeprefix("SIG"))

    def exit_code(self) -> int | None:
        """Returns the exit code as a shell does; None while the program runs."""
        code = self._inspect().get("ExitCode", _LOST)
        return None if code is None else int(code)

    def _has_exited(self) -> bool:
        now = time.monotonic()
        if self._leader and self._container.process is not None and Path(f"/proc/{self._leader}").exists():
            return False
        # Not visible here: ask the engine, but not each second.
        if self._leader and self._container.process is None and now < self._next_inspection:
            return False
        self._next_inspection = now + _INSPECTION_INTERVAL_S
        state = self._inspect()
        self._leader = int(state.get("Pid") or 0)
        return not state.get("Running")

    def wait(self, closed: threading.Event) -> int:
        """Waits for the exit, or until the stream is closed by the client; returns the exit code."""
        pause_s = _POLL_S / 10
        while (code := self.exit_code()) is None:
            if closed.wait(pause_s):
                return _LOST
            pause_s = min(2 * pause_s, _MAX_EXIT_POLL_S)
        return code

    def disconnect(self) -> None:
        """Ends a waiting `output` or `write`; the program continues until `end`."""
        self._stream.disconnect()

    def end(self) -> None:
        """Ends all processes of the program: SIGHUP, two seconds, SIGKILL."""
        processes = self._processes()
        if not processes.send("HUP"):
            return
        # A stopped program receives it only when it continues.
        processes.send("CONT")
        started_at = time.monotonic()
        # Repeated: a process may start another one between the listing and the signal.
        while processes.send("0" if (waited_s := time.monotonic() - started_at) < _HANG_UP_S else "KILL"):
            if waited_s > _HANG_UP_S + _KILL_S:
                return
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Closes the connection, which no other thread may use any more."""
        self._stream.close()

    def _processes(self) -> ProgramProcesses:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            state = self._inspect()
            # For a moment after the start it has no process yet.
            if state.get("Pid") or not state.get("Running") or time.monotonic() > deadline:
                return ProgramProcesses(self._container, int(state.get("Pid") or 0), self._mark)
            time.sleep(_POLL_S)

    def _inspect(self) -> dict[str, Any]:
        """Returns the engine's record of the program; empty if its container is gone."""
        from docker.errors import NotFound

        try:
            return dict(self._api.exec_inspect(self._exec_id))
        except NotFound:
            return {}


def end_orphans(container: InstanceContainer) -> None:
    """Ends all programs of this user's tunnels; called when the process that has started them was killed."""
    processes = ProgramProcesses(container, 0, _mark_prefix(container))
    for name in ("HUP", "CONT"):
        processes.send(name)
    deadline = time.monotonic() + _HANG_UP_S + _KILL_S
    while processes.send("0") and time.monotonic() < deadline:
        if time.monotonic() > deadline - _KILL_S:
            processes.send("KILL")
        time.sleep(_POLL_S)


@dataclass(frozen=True)
class ProgramProcesses:
    """The processes of a program.

    Attributes:
        leader: the id of the first one on the engine's machine, 0 if unknown.
        mark: the mark of the program, or its beginning.
    """

    container: InstanceContainer
    leader: int
    mark: str

    def send(self, name: str) -> bool:
        """Sends a signal, or `0` for none, to all of them; returns whether there is any."""
        number = 0 if name == "0" else int(getattr(signal, f"SIG{name}"))
        count = 0
        for process in self._visible():
            with suppress(OSError):  # it has exited, or belongs to another user
                os.kill(process, number)
                count += 1
        return count > 0 or (not self.container.is_open_to_root and self._send_by_container(name))

    def _visible(self) -> Iterator[int]:
        """Yields the processes that are visible here."""
        if self.container.process is None:
            return
        variable = f"\0{MARKER}={self.mark}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            # It has exited, or belongs to another user.
            with suppress(OSError, IndexError):
                # "pid (any name) state parent group session": the name may have spaces and parentheses.
                fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                has_mark = variable in b"\0" + (process / "environ").read_bytes()
                in_session = self.leader and int(fields[3]) == self.leader
                if fields[0] != b"Z" and (
                    has_mark or (in_session and self.container.has_process(int(process.name)))
                ):
                    yield int(process.name)

    def _send_by_container(self, name: str) -> bool:
        """Sends it by a program in the container, which sees processes that are not visible here."""
        api = self.container.engine.client.api
        argv = [
            "/bin/sh",
            "-c",
            script("signal.sh"),
            "sh",
            name,
            str(self._session_in_container()),
            f"{MARKER}={self.mark}",
        ]
        with suppress(Exception):  # the container is gone, with all its processes
            created = api.exec_create(self.container.id, argv, stdin=False)
            api.exec_start(created["Id"])
            return bool(api.exec_inspect(created["Id"])["ExitCode"] == 0)
        return False

    def _session_in_container(self) -> int:
        """Returns the id of the session as the container sees it; 0 if unknown."""
        with suppress(OSError, ValueError, IndexError):
            if self.container.process is not None:
                for line in Path(f"/proc/{self.leader}/status").read_text().splitlines():
                    if line.startswith("NSpid:"):
                        return int(line.split()[-1])
        return 0


@cache
def script(name: str) -> str:
    """Returns a shell script of this package."""
    return (importlib.resources.files("pai_sdk._host.execution.docker.tunnel") / name).read_text("utf-8")


def _mark_prefix(container: InstanceContainer) -> str:
    """Returns how the marks of all programs begin that this user has started in the instance."""
    return f"{container.instance}/{os.geteuid()}/"


def _is_variable(name: str) -> bool:
    return bool(_VARIABLE.fullmatch(name))
