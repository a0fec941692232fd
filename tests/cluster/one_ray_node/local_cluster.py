"""A Ray cluster on this machine, in sessions of its own; other clusters on the machine are left alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pai_sdk._host.agent.processes import descendants
from tests.support.waiting import until

__all__ = ["LocalCluster", "one_node"]

_UP_WITHIN_S = 180.0


@dataclass(frozen=True)
class LocalCluster:
    """The cluster.

    Attributes:
        address: for a driver on this machine.
        client_address: for a Ray client.
        folder: for Ray's own files.
    """

    address: str
    client_address: str
    folder: Path


@contextmanager
def one_node(folder: Path, *, cpus: int, address: str = "") -> Iterator[LocalCluster]:
    """A cluster of one node.

    Args:
        folder: for Ray's own files; a short path, since there are sockets in it.
        cpus: of the node, whether the machine has them or not.
        address: that of an earlier cluster, which has ended; a new one by default.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        port, client, dashboard = [one.getsockname()[1] for one in sockets]
    port = int(address.rpartition(":")[2] or port)
    options = ["--head", "--node-ip-address=127.0.0.1", "--include-dashboard=false", f"--num-cpus={cpus}"]
    options += [f"--port={port}", f"--ray-client-server-port={client}", f"--dashboard-port={dashboard}"]
    with _ray(folder, *options, f"--temp-dir={folder}", "--disable-usage-stats"):
        yield LocalCluster(f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}", folder)


@contextmanager
def _ray(folder: Path, *options: str) -> Iterator[int]:
    command = [
        str(Path(sys.executable).parent / "ray"),
        "start",
        "--block",
        "--object-store-memory=200000000",
        *options,
    ]
    with (folder / "start.log").open("ab") as log:
        started = until(lambda: _started(command, log), "the start of Ray", within_s=_UP_WITHIN_S)
    try:
        yield started.pid
    finally:
        _kill(started)


def _started(command: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes] | None:
    """The process of `ray start`; None if Ray gave the start up, as it does after 30 s."""
    begun = log.tell()
    # As on a node with two GPUs that Ray is not told of; an actor without GPUs gets this variable of its node.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"}
    started = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    while b"Ray runtime started" not in Path(log.name).read_bytes()[begun:]:
        if started.poll() is not None:
            _kill(started)
            return None
        time.sleep(0.1)
    return started


def _kill(started: subprocess.Popen[bytes]) -> None:
    for process in (started.pid, *descendants(started.pid)):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    started.wait()
