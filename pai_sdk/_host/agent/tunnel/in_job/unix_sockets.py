"""Connects a stream with a Unix socket of the job, in the job's view. Standard library only."""

from __future__ import annotations

import os
import select
import socket as sockets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pai_sdk._host.agent.tunnel.children import reason, refuse, report
from pai_sdk._host.agent.tunnel.socket_paths import short_path

_CHUNK_BYTES = 64 * 1024


def socket(parameters: Mapping[str, Any]) -> int:
    """Joins stdin and stdout with a Unix socket below `/ml` or the folder for temporary files."""
    path = parameters.get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        return refuse("InvalidRequest", "the path of the socket is missing")
    # Relative paths are those below the working directory. Links are followed before the check.
    target = Path(os.path.realpath(path))
    folders = [os.environ.get("PAI_WORKING_DIR", "/ml/usercode"), "/ml", os.environ.get("TMPDIR", ""), "/tmp"]  # noqa: S108
    if not any(target.is_relative_to(os.path.realpath(folder)) for folder in folders if folder):
        return refuse("InvalidRequest", f"{path} is not in a folder of the instance")
    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        with short_path(target) as short:
            connection.connect(short)
    except FileNotFoundError as error:
        return refuse("NotFound", reason(error))
    except OSError as error:
        return refuse("ConnectionRefused", reason(error))
    report({"opened": {}})
    _join(connection)
    return 0


def _join(connection: sockets.socket) -> None:
    inputs: list[Any] = [0, connection]
    while connection in inputs:
        ready, _, _ = select.select(inputs, [], [])
        if 0 in ready:
            data = os.read(0, _CHUNK_BYTES)
            if data:
                connection.sendall(data)
            else:
                inputs.remove(0)
                with suppress(OSError):
                    connection.shutdown(sockets.SHUT_WR)
        if connection in ready:
            try:
                received = connection.recv(_CHUNK_BYTES)
            except OSError:
                received = b""
            if not received:
                return
            view = memoryview(received)
            while view:
                view = view[os.write(1, view) :]
