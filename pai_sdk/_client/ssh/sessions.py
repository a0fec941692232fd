"""Sessions of SSH: a shell, a command or SFTP, each of them one stream of the tunnel."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import asyncssh

from pai_sdk._client.ssh.bridge import BridgedSession, ChannelBridge, StreamTunnel
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import TunnelRefusedError

_logger = logging.getLogger(__name__)

_STDERR = asyncssh.EXTENDED_DATA_STDERR
_FAILED = 255  # of ssh itself, as opposed to the command
_NO_PROGRAM = 127
_DEFAULT_ROWS, _DEFAULT_COLUMNS = 24, 80

# sshd runs commands by the login shell of the user. A job's user has none, so bash is used where the image has it.
_BY_SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash "$@"; fi; exec sh "$@"'
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def program(command: str | None) -> list[str]:
    """Returns the argument list of a command of SSH; None for a shell."""
    return ["sh", "-c", _BY_SHELL, "sh", *([] if command is None else ["-c", command])]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a client sends, without those that no program could have."""
    pairs = environment.items()
    return {name: value for name, value in pairs if _VARIABLE.fullmatch(name) and "\0" not in value}


class JobSession(BridgedSession, asyncssh.SSHServerSession[bytes]):
    """One session of SSH. asyncssh calls its methods in the event loop; none of them blocks or raises."""

    def __init__(self, tunnel: StreamTunnel, events: ThreadPoolExecutor) -> None:
        self._tunnel = tunnel
        self._events = events  # one thread: resizes and signals keep their order
        self._terminal: dict[str, Any] | None = None
        self._is_sftp = False
        self._stream: Stream | None = None  # set by the thread of the output

    # ---- what the client requests

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """Stores the channel."""
        self._channel = chan
        self._bridge = ChannelBridge(chan, "pai-ssh session")

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Any) -> bool:
        """Records the terminal that the program gets."""
        columns, rows = term_size[:2]
        self._terminal = {
            "term": term_type,
            "rows": rows or _DEFAULT_ROWS,
            "columns": columns or _DEFAULT_COLUMNS,
        }
        return True

    def shell_requested(self) -> bool:
        """Accepts a shell."""
        return True

    def exec_requested(self, command: str) -> bool:
        """Accepts a command."""
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        """Accepts SFTP, which `scp` uses too."""
        self._is_sftp = subsystem == "sftp"
        return self._is_sftp

    def session_started(self) -> None:
        """Opens the stream in a thread; input that arrives before is queued."""
        self._bridge.start(self._run_sftp if self._is_sftp else self._run_program)

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """Passes the size of the terminal on."""
        if width and height:
            self._send({"resize": [height, width]})

    def signal_received(self, signal: str) -> None:
        """Passes a signal on."""
        self._send({"signal": signal.removeprefix("SIG")})

    def break_received(self, msec: int) -> bool:
        """Interrupts the program."""
        self._send({"signal": "INT"})
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the program of a session whose channel is closed."""
        self._bridge.close()

    def _send(self, event: dict[str, Any]) -> None:
        if self._stream is not None:
            self._events.submit(_send_event, self._stream, event)
        elif self._terminal is not None and "resize" in event:  # the program starts with the new size
            self._terminal["rows"], self._terminal["columns"] = event["resize"]

    # ---- the program, in the thread of the output

    def _run_program(self) -> None:
        argv = program(self._channel.get_command())
        sent = variables(self._channel.get_environment())
        stream = self._open("program", argv=argv, terminal=self._terminal, variables=sent, cwd=None)
        if stream is None:
            return
        try:
            self._copy_messages(stream)
        except Exception as error:  # a lost tunnel, above all
            self._fail(f"the session has ended: {error}", _FAILED)
        finally:
            stream.close()

    def _copy_messages(self, stream: Stream) -> None:
        reason = "the session has ended without an exit code"
        while message := stream.next_message():
            name, content = message
            if name == "exit":
                self._finish(content)
                return
            if name == "event":
                reason = content.get("error", {}).get("message", reason)
                continue
            is_data = name in ("stdout", "stderr")
            if is_data and not self._bridge.write(content, _STDERR if name == "stderr" else None):
                return
        self._fail(reason, _FAILED)

    def _run_sftp(self) -> None:
        stream = self._open("sftp")
        if stream is None:
            return
        try:
            while data := stream.read():
                if not self._bridge.write(data):
                    return
            self._bridge.output.add(partial(self._channel.exit, 0))
        except Exception as error:
            self._fail(f"the file transfer has ended: {error}", _FAILED)
        finally:
            stream.close()

    def _open(self, kind: str, **parameters: Any) -> Stream | None:
        try:
            stream = self._tunnel.open(kind, **parameters)
        except TunnelRefusedError as error:
            self._fail(str(error), _NO_PROGRAM if error.code == "NoSuchProgram" else _FAILED)
        except Exception as error:
            self._fail(f"the job cannot be reached: {error}", _FAILED)
        else:
            self._stream = stream
            self._bridge.use(stream)
            return stream
        return None

    def _finish(self, outcome: Mapping[str, Any]) -> None:
        number = outcome.get("signal")
        if number is None:
            self._bridge.output.add(partial(self._channel.exit, int(outcome.get("code", _FAILED))))
            return
        try:
            name = signal.Signals(number).name.removeprefix("SIG")
        except ValueError:  # a number of another system
            name = str(number)
        self._bridge.output.add(partial(self._channel.exit_with_signal, name))

    def _fail(self, message: str, code: int) -> None:
        self._bridge.write(f"pai-sdk: {message}\r\n".encode(), _STDERR)
        self._bridge.output.add(partial(self._channel.exit, code))


def _send_event(stream: Stream, event: dict[str, Any]) -> None:
    try:
        stream.send_event(event)
    except Exception:  # the program has ended
        _logger.debug("an event of an SSH session", exc_info=True)
