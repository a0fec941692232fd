"""Programs in a job's instance, with pipes or a terminal. Standard library only."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pai_sdk._host.agent.processes import descendants
from pai_sdk._host.agent.tunnel.job_view import MARKER
from pai_sdk._host.agent.tunnel.pumps import copy_out, open_pipe, start, wait_ready, write_all
from pai_sdk._host.agent.tunnel.spawner import Child, Spawner
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError

HANGUP_S = 2.0
"""Seconds between SIGHUP and SIGKILL when a session ends."""

_POLL_S = 0.02
_END_OF_INPUT = b"\x04"  # Ctrl-D
_MAX_SIZE = 10_000  # rows or columns
_SIGNALS = {number.name[3:]: number for number in signal.Signals}


class Programs:
    """Serves streams of the kind `program`."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner

    def serve(self, stream: Stream) -> None:
        """Runs the program of a stream to its end."""
        request = _checked(stream.parameters)
        marker = os.urandom(8).hex()
        request |= {"marker": marker, "leader": leader_of(self._spawner, stream)}
        woken = threading.Event()
        terminal = request["terminal"]
        if terminal:
            program: _Program = _Terminal(self._spawner, request, woken)
        else:
            program = _Piped(self._spawner, request, woken)
        stream.separate_events()
        stream.confirm({"pid": program.child.process})
        try:
            threads = program.start_output(stream)
            start(_control, stream, program, woken)
            start(_write_input, stream, program)
            woken.wait()
        finally:
            # It has exited, the client has left, or there is no thread for it.
            end_session(self._spawner.process, program.child.process, marker)
        for thread in threads:
            thread.join()
        program.close()
        if program.child.outcome is not None:
            stream.end()
            stream.send_exit(program.child.outcome)


class _Program:
    """A running program, its input, and its outputs by channel. One thread writes, any thread may close."""

    def __init__(self, child: Child, stdin: int, outputs: Mapping[str, int]) -> None:
        self.child = child
        self._lock = threading.Lock()
        self._stdin = stdin
        self._is_writing = self._is_closed = False
        self._outputs = outputs

    def start_output(self, stream: Stream) -> list[threading.Thread]:
        """Starts to send the outputs."""
        return [start(copy_out, descriptor, stream, name) for name, descriptor in self._outputs.items()]

    def write(self, data: memoryview) -> None:
        """Writes to the program's standard input."""
        with self._lock:
            self._is_writing = True
        try:
            write_all(self._stdin, data)
        finally:
            with self._lock:
                self._is_writing = False
                if self._is_closed:
                    self._close()

    def end_input(self) -> None:
        """Closes the program's standard input."""
        self.close()

    def close(self) -> None:
        """Closes the input, after a write that is under way: another file could get its descriptor."""
        with self._lock:
            self._is_closed = True
            if not self._is_writing:
                self._close()

    def _close(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
        self._stdin = -1

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the terminal, if there is one."""

    def signal(self, number: int) -> None:
        """Sends a signal to the program's group."""
        if self.child.outcome is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.process, number)


class _Piped(_Program):
    """A program with pipes."""

    def __init__(self, spawner: Spawner, request: Mapping[str, Any], woken: threading.Event) -> None:
        stdin, stdout, stderr = open_pipe(), open_pipe(), open_pipe()
        try:
            child = spawner.start(request, [stdin[0], stdout[1], stderr[1]], woken.set)
        except BaseException:
            for descriptor in (stdin[1], stdout[0], stderr[0]):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (stdin[0], stdout[1], stderr[1]):
                os.close(descriptor)
        super().__init__(child, stdin[1], {"stdout": stdout[0], "stderr": stderr[0]})


class _Terminal(_Program):
    """A program with a terminal of its own."""

    def __init__(self, spawner: Spawner, request: Mapping[str, Any], woken: threading.Event) -> None:
        controller, terminal = os.openpty()
        # A write that waits for a program to read is not woken by the end of that program.
        os.set_blocking(controller, False)
        self._is_at_line_start = True
        try:
            # Before the program starts: many read it once.
            _set_size(controller, request["terminal"]["rows"], request["terminal"]["columns"])
            child = spawner.start(request, [terminal], woken.set)
            # Of its own, since the reader closes the other one.
            stdin = os.dup(controller)
        except BaseException:
            os.close(controller)
            raise
        finally:
            os.close(terminal)
        super().__init__(child, stdin, {"stdout": controller})

    def write(self, data: memoryview) -> None:
        """Writes to the terminal."""
        self._type(data)
        if data:
            self._is_at_line_start = data[-1] in b"\r\n"

    def _type(self, data: memoryview) -> None:
        while data:
            with self._lock:
                # Closed: its number may be that of another file.
                if self._stdin < 0:
                    return
                try:
                    data = data[os.write(self._stdin, data) :]
                except BlockingIOError:
                    is_full = True
                else:
                    is_full = False
                descriptor = self._stdin
            if is_full:
                # With a short deadline, for a descriptor that is closed meanwhile.
                with suppress(OSError, ValueError):
                    wait_ready(descriptor, select.POLLOUT, _POLL_S)

    def end_input(self) -> None:
        """Types the end of input: within a line, the first one only ends the line."""
        self._type(memoryview(_END_OF_INPUT * (1 if self._is_at_line_start else 2)))

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the terminal; the kernel tells the programs."""
        with self._lock:
            if self._stdin >= 0:
                _set_size(self._stdin, rows, columns)

    def signal(self, number: int) -> None:
        """Sends a signal to the group in the foreground."""
        with self._lock:
            group = os.tcgetpgrp(self._stdin) if self._stdin >= 0 else 0
        if group > 0 and self.child.outcome is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)


def leader_of(spawner: Spawner, stream: Stream) -> int:
    """Returns the first process of a stream's instance."""
    leader = spawner.view.leader(stream.tunnel.instance)
    if not leader:
        raise TunnelRefusedError(
            "InstanceNotRunning", "the instance has no process: it has not started or has ended"
        )
    return leader


def end_session(ancestor: int, leader: int, marker: str) -> None:
    """Ends all processes of a session, and those that have left it: SIGHUP, and SIGKILL after `HANGUP_S`."""
    deadline = time.monotonic() + HANGUP_S
    hung_up: set[int] = set()
    while remaining := set(_processes_of(ancestor, leader, marker)):
        is_late = time.monotonic() > deadline
        for process in remaining if is_late else remaining - hung_up:
            for number in (signal.SIGKILL,) if is_late else (signal.SIGHUP, signal.SIGCONT):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
        hung_up |= remaining
        if time.monotonic() > deadline + HANGUP_S:
            # They hang in the kernel.
            return
        time.sleep(_POLL_S)


def _processes_of(ancestor: int, leader: int, marker: str) -> Iterator[int]:
    """Yields the processes of a session, and those with its marker, that are no zombies."""
    variable = f"{MARKER}={marker}".encode()
    for process in descendants(ancestor):
        with suppress(OSError, IndexError):
            # "pid (any name) state ppid group session …"
            fields = (Path("/proc") / str(process) / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] in (b"Z", b"X"):
                continue
            # The leader itself may have been forked just now, and be in the session of its parent.
            if process == leader or int(fields[3]) == leader or variable in _environment(process):
                yield process


def _environment(process: int) -> list[bytes]:
    return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")


def _write_input(stream: Stream, program: _Program) -> None:
    """Copies the stream to the program's input; the end of the stream is reported by `_control`."""
    try:
        while (message := stream.next_message()) and message[0] != "end":
            if message[0] == "stdout":
                program.write(message[1])
        if message is not None:
            program.end_input()
    except TunnelClosedError:
        return
    except OSError:
        # The program has closed its input, or ended. What still arrives is discarded.
        with suppress(TunnelClosedError):
            while stream.next_message() is not None:
                pass


def _control(stream: Stream, program: _Program, woken: threading.Event) -> None:
    """Handles the events of the client; wakes the session when the client has left."""
    try:
        while (event := stream.next_event()) is not None:
            size, name = event.get("resize"), event.get("signal")
            if isinstance(size, list) and _is_size(size):
                program.resize(*size)
            if isinstance(name, str) and name.removeprefix("SIG") in _SIGNALS:
                program.signal(_SIGNALS[name.removeprefix("SIG")])
    except (TunnelClosedError, OSError):
        pass
    woken.set()


def _checked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters of a program.

    Raises:
        TunnelRefusedError: they are not valid.
    """
    argv, variables = parameters.get("argv") or [], parameters.get("variables") or {}
    terminal, folder = parameters.get("terminal"), parameters.get("cwd")
    if not (
        isinstance(argv, list)
        and all(isinstance(argument, str) and "\0" not in argument for argument in argv)
        and isinstance(variables, dict)
        and all(_is_variable(name, value) for name, value in variables.items())
        and (folder is None or (isinstance(folder, str) and "\0" not in folder))
        and (terminal is None or isinstance(terminal, dict))
    ):
        raise TunnelRefusedError("InvalidRequest", "argv, variables, cwd or terminal of the program are malformed")
    if terminal is not None:
        size = [terminal.get("rows", 24), terminal.get("columns", 80)]
        if not _is_size(size):
            raise TunnelRefusedError("InvalidRequest", "the terminal has no valid size")
        terminal = {"term": terminal.get("term"), "rows": size[0], "columns": size[1]}
    return {"argv": argv, "variables": variables, "cwd": folder, "terminal": terminal}


def _is_variable(name: object, value: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(value, str)
        and bool(name)
        and "=" not in name
        and "\0" not in name + value
    )


def _is_size(size: object) -> bool:
    return (
        isinstance(size, list)
        and len(size) == 2
        and all(type(number) is int and 0 <= number <= _MAX_SIZE for number in size)
    )


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
