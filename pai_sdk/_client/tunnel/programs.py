"""Runs a program in an instance, with the streams of this process or with bytes."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from types import FrameType
from typing import Any, Protocol

from pai_sdk._client.tunnel.opening import JobTunnel, reason_of
from pai_sdk._client.tunnel.terminal import handled, raw_terminal, terminal_parameters, terminal_size
from pai_sdk._host.agent.tunnel.frames import MAX_JSON_BYTES
from pai_sdk._host.agent.tunnel.streams import Stream, exit_code
from pai_sdk.errors import InvalidInputError, Problem, TunnelClosedError, TunnelError, TunnelRefusedError

# The exit codes of a POSIX shell.
_NO_COMMAND, _CANNOT_EXECUTE = 127, 126
_MAX_COMMAND_BYTES = MAX_JSON_BYTES - 4096  # with its terminal and variables, a request is one frame
_EXIT_CODES = {"NoSuchProgram": _NO_COMMAND, "NotExecutable": _CANNOT_EXECUTE}

_CHUNK_BYTES = 1 << 16
_MAX_INTERRUPTS = 3  # presses of Ctrl-C after which a program that ignores them is left
_CTRL_C = b"\x03"
# What a program that cannot clean up has changed: mouse, alternate screen, pasting, keypad, cursor, colours.
_RESET_MODES = b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1047l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"
_NOTICE_DELAY_S = 0.7  # shorter interruptions are not reported
_LOST = "the connection was lost; reconnecting (Ctrl-C: leave)"
_CONNECTED_AGAIN = "connected again"


class Sink(Protocol):
    """Receives the output of a program."""

    def __call__(self, data: bytes, /) -> object:
        """Writes a chunk."""
        ...


@dataclass(frozen=True)
class Streams:
    """What a program reads and writes. Without `input` and `reads_stdin`, it reads nothing."""

    stdout: Sink
    stderr: Sink
    input: bytes | None = None
    reads_stdin: bool = False
    terminal: bool = False
    has_notices: bool = True  # print a line on stderr when the connection is lost, and when there is one again


def run_program(tunnel: JobTunnel, argv: Sequence[str], streams: Streams) -> int:
    """Runs a program until it exits; returns its exit code as a shell does.

    Raises:
        PaiError: the tunnel was closed by the service, or could not be opened again.
        KeyboardInterrupt: Ctrl-C was pressed repeatedly, and the program did not exit.
    """
    if (size := len(json.dumps([*argv]))) > _MAX_COMMAND_BYTES:
        problem = f"the command has {size:,} bytes with quotes, and {_MAX_COMMAND_BYTES:,} are possible"
        raise InvalidInputError(
            [Problem("COMMAND", problem, "send long input by stdin, or copy a script into the job")]
        )
    terminal = terminal_parameters() if streams.terminal else None
    variables = {name: value for name in ("COLORTERM",) if terminal and (value := os.environ.get(name))}
    try:
        stream = tunnel.open("program", argv=[*argv], terminal=terminal, variables=variables, cwd=None)
    except TunnelClosedError as error:
        raise reason_of(error) from error
    except TunnelRefusedError as error:
        if error.code not in _EXIT_CODES:
            raise
        streams.stderr(f"pai-sdk: {error.message}\n".encode())
        return _EXIT_CODES[error.code]
    return _Session(tunnel, stream, streams).run()


class _Session:
    """One program. Threads: the caller's writes the output, `input` sends input, `control` sends signals."""

    def __init__(self, tunnel: JobTunnel, stream: Stream, streams: Streams) -> None:
        self._tunnel = tunnel
        self._stream = stream
        self._streams = streams
        # Signal handlers use this queue, because they may interrupt a thread that holds a lock of the tunnel.
        self._events: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._interrupts = 0
        self._notice = threading.Timer(0.0, _nothing)
        self._is_lost_printed = False
        self._stdin = StdinReader() if streams.reads_stdin and streams.input is None else None

    def run(self) -> int:
        threads = [
            threading.Thread(target=self._send_input, name="pai-exec-input", daemon=True),
            threading.Thread(target=self._send_events, name="pai-exec-control", daemon=True),
        ]
        for thread in threads:
            thread.start()
        if self._streams.has_notices:
            self._tunnel.on_reconnect = self._report_connection
        with ExitStack() as modes:
            if self._streams.terminal:
                modes.enter_context(raw_terminal(self._resized))
            else:
                modes.enter_context(handled(signal.SIGINT, self._interrupted))
            try:
                return self._copy_output()
            except BaseException as error:
                if self._streams.terminal:
                    with suppress(OSError, ValueError):
                        self._streams.stdout(_RESET_MODES + b"\r\n")
                if isinstance(error, TunnelClosedError):
                    raise reason_of(error) from error
                raise
            finally:
                self._notice.cancel()
                self._events.put(None)
                if self._stdin is not None:
                    self._stdin.stop()
                self._stream.close()

    def _copy_output(self) -> int:
        for kind, content in self._stream.messages():
            if isinstance(content, bytes):
                (self._streams.stderr if kind == "stderr" else self._streams.stdout)(content)
            elif kind == "exit":
                return exit_code(content)
        raise TunnelClosedError("NoExitCode", "the program ended without an exit code")

    def _report_connection(self, is_connected: bool) -> None:
        """Prints that the connection is lost, after a moment, and that there is one again."""
        self._notice.cancel()
        if not is_connected:
            self._notice = threading.Timer(_NOTICE_DELAY_S, self._print_notice, (_LOST,))
            self._notice.daemon = True
            self._notice.start()
        elif self._is_lost_printed:
            self._print_notice(_CONNECTED_AGAIN)

    def _print_notice(self, text: str) -> None:
        self._is_lost_printed = text == _LOST
        start, end = ("\r\n", "\r\n") if self._streams.terminal else ("", "\n")
        # The terminal may be gone.
        with suppress(OSError, ValueError):
            self._streams.stderr(f"{start}pai-sdk: {text}{end}".encode())

    def _send_input(self) -> None:
        # The program has exited, or does not read its input.
        with suppress(TunnelError, OSError):
            if self._streams.input is not None:
                self._stream.write(self._streams.input)
            elif self._stdin is not None:
                while data := self._stdin.read():
                    if self._streams.terminal and _CTRL_C in data and not self._tunnel.is_connected:
                        self._tunnel.abandon()
                        return
                    self._stream.write(data)
            if self._stdin is None or not self._stdin.is_stopped:
                self._stream.end()
        if self._stdin is not None:
            self._stdin.close()

    def _send_events(self) -> None:
        with suppress(TunnelError):
            while (event := self._events.get()) is not None:
                self._stream.send_event(event)

    def _resized(self) -> None:
        self._events.put({"resize": [*terminal_size()]})

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts >= _MAX_INTERRUPTS or not self._tunnel.is_connected:
            raise KeyboardInterrupt
        self._events.put({"signal": "INT"})


def _nothing() -> None:
    pass


class StdinReader:
    """Reads the standard input of this process until `stop`, and takes nothing from it after that."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._wake_read, self._wake_write = os.pipe()

    def read(self) -> bytes:
        """Returns the next bytes; b"" at the end or after `stop`."""
        try:
            descriptor = sys.stdin.fileno()
        except (AttributeError, OSError, ValueError):  # there is none, as in a notebook
            return b""
        # A read that waits could not be stopped. Windows has no select for it; there the thread is a daemon.
        if sys.platform != "win32":
            ready, _, _ = select.select([descriptor, self._wake_read], [], [])
            if self._wake_read in ready:
                return b""
        return b"" if self.is_stopped else os.read(descriptor, _CHUNK_BYTES)

    def stop(self) -> None:
        """Ends a `read` that waits. May be called once."""
        self.is_stopped = True
        os.close(self._wake_write)

    def close(self) -> None:
        """Closes the pipe, after the last `read`."""
        os.close(self._wake_read)


def sink_of(stream: Any) -> Callable[[bytes], None]:
    """Returns a function that writes bytes to a stream of text; to its buffer if it has one."""
    if stream is None:  # this process was started without it: `>&-`
        return lambda _data: None
    buffer = getattr(stream, "buffer", None)

    def write(data: bytes) -> None:
        if buffer is None:  # the output of a cell of a notebook
            stream.write(data.decode("utf-8", errors="replace"))
        else:
            buffer.write(data)
        stream.flush()

    return write
