"""Connections to the host process of a job, which is started by the first of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.tunnel import frames, socket_paths
from pai_sdk._host.agent.tunnel.transports import with_length
from pai_sdk.errors import TunnelRefusedError

_MODULE = "pai_sdk._host.execution.docker.tunnel.host_process"
_START_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 10.0
_POLL_S = 0.05
_MAX_LOG_CHARACTERS = 2000
# What Python, docker-py and py-spy need. The process outlives its starter, so it gets no more of its variables.
_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "TZ", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH")
_PREFIXES = ("PYTHON", "LC_", "COVERAGE")


def connect(sandbox: Sandbox, engine_url: str, instance: str) -> socket.socket:
    """Returns a connection to the host process of a job, for frames of a tunnel into one instance.

    Raises:
        TunnelRefusedError: it does not start; `code` is `NotReady`.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        # There is no process, or it has just ended.
        with suppress(OSError):
            connection = socket_paths.connect(socket_file(sandbox), timeout_s=_CONNECT_TIMEOUT_S)
            break
        # It returns when the process listens, or if another one does.
        _start(sandbox, engine_url, deadline - time.monotonic())
        if time.monotonic() > deadline:
            raise TunnelRefusedError("NotReady", f"the tunnel of {sandbox.root.name} does not start in time")
        time.sleep(_POLL_S)
    try:
        connection.sendall(with_length(frames.with_json(frames.SELECT, {"instance": instance})))
    except OSError as error:
        connection.close()
        raise TunnelRefusedError("NotReady", f"the tunnel of {sandbox.root.name} has ended") from error
    return connection


def socket_file(sandbox: Sandbox) -> Path:
    """Returns the socket of this user's host process; only this user and root can connect to it."""
    return sandbox.state_dir / f"tunnel-{os.geteuid()}.sock"


def lock_file(sandbox: Sandbox) -> Path:
    """Returns the file that this user's host process locks while it runs."""
    return sandbox.state_dir / f"tunnel-{os.geteuid()}.lock"


def log_file(sandbox: Sandbox) -> Path:
    """Returns the log of this user's host process."""
    return sandbox.state_dir / f"tunnel-{os.geteuid()}.log"


def _start(sandbox: Sandbox, engine_url: str, timeout_s: float) -> None:
    """Starts the process; returns when it listens, or has ended because another one does."""
    names = (*(name for name in os.environ if name.startswith(_PREFIXES)), *_VARIABLES)
    environment = {name: os.environ[name] for name in names if name in os.environ}
    with log_file(sandbox).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(sandbox.root), engine_url],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    try:
        code = process.wait(max(0.1, timeout_s))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        code = -1
    if code != 0:
        text = ""
        with suppress(OSError):
            text = log_file(sandbox).read_text(errors="replace")[-_MAX_LOG_CHARACTERS:].strip()
        reason = text.splitlines()[-1] if text else f"exit code {code}"
        raise TunnelRefusedError("NotReady", f"the tunnel of {sandbox.root.name} does not start: {reason}")
