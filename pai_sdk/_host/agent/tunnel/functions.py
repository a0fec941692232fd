"""Functions that run in the job's view as processes of their own: archives, SFTP, sockets.

Standard library only.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from pai_sdk._host.agent.tunnel.programs import end_session, leader_of
from pai_sdk._host.agent.tunnel.pumps import copy_out, open_pipe, start, write_all
from pai_sdk._host.agent.tunnel.spawner import Child, Spawner
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError


class Functions:
    """Serves streams by the functions of `children.FUNCTIONS`: what they read and write are the stream's bytes."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner

    def serve(self, stream: Stream) -> None:
        """Runs the function of a stream's kind to its end."""
        woken, marker = threading.Event(), os.urandom(8).hex()
        request = {
            "function": stream.kind,
            "parameters": stream.parameters,
            "variables": {},
            "marker": marker,
            "leader": leader_of(self._spawner, stream),
        }
        stdin, stdout, events = open_pipe(), open_pipe(), os.pipe()
        lines = os.fdopen(events[0], "rb")
        stream.separate_events()
        try:
            child = self._start(request, (stdin[0], stdout[1], events[1]), woken)
            stream.confirm(_opening(lines))
        except BaseException:
            os.close(stdin[1])
            os.close(stdout[0])
            lines.close()
            raise
        try:
            threads = [start(copy_out, stdout[0], stream, "stdout"), start(_send_events, lines, stream)]
            start(_write_input, stream, stdin[1])
            start(_await_close, stream, woken)
            woken.wait()
        finally:
            end_session(self._spawner.process, child.process, marker)
        for thread in threads:
            thread.join()
        if child.outcome is not None:
            stream.end()
            stream.send_exit(child.outcome)

    def _start(self, request: dict[str, Any], descriptors: tuple[int, int, int], woken: threading.Event) -> Child:
        """Starts the process, and closes its descriptors here."""
        stdin, stdout, events = descriptors
        try:
            with Path(os.devnull).open("ab") as errors:
                return self._spawner.start(request, [stdin, stdout, errors.fileno(), events], woken.set)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _opening(lines: BinaryIO) -> dict[str, Any]:
    """Returns the result in the first line of a function."""
    line = lines.readline()
    content = json.loads(line) if line else {}
    refused = content.get("refused") or {"code": "InternalError", "message": "the instance could not serve this"}
    if "opened" not in content:
        raise TunnelRefusedError(refused["code"], refused["message"])
    result: dict[str, Any] = content["opened"]
    return result


def _send_events(lines: BinaryIO, stream: Stream) -> None:
    with lines, suppress(OSError, TunnelClosedError):
        for line in lines:
            stream.send_event(json.loads(line))


def _write_input(stream: Stream, descriptor: int) -> None:
    try:
        while (message := stream.next_message()) and message[0] != "end":
            if message[0] == "stdout":
                write_all(descriptor, message[1])
    except (OSError, TunnelClosedError):
        # The function needs no more input, or nobody is there to send any.
        pass
    finally:
        os.close(descriptor)
    with suppress(TunnelClosedError):
        while stream.next_message() is not None:
            pass


def _await_close(stream: Stream, woken: threading.Event) -> None:
    with suppress(TunnelClosedError):
        while stream.next_event() is not None:
            pass
    woken.set()
