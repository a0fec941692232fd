"""A Ray cluster on this machine, in sessions of its own; other clusters on the machine are left alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pai_sdk.agent.processes import descendants

__all__ = ["LocalCluster", "one_node"]


@dataclass(frozen=True)
class LocalCluster:
    """The cluster.

    Attributes:
        address: for a driver on this machine.
        client_address: of its Ray Client server.
        folder: for Ray's own files.
    """

    address: str
    client_address: str
    folder: Path

    @contextmanager
    def one_more_node(self, address: str, *, cpus: int) -> Iterator[int]:
        """Another node on this machine, for the block; gives its process.

        Args:
            address: a loopback address of its own, such as 127.0.0.2.
            cpus: of the node.
        """
        options = [f"--address={self.address}", f"--node-ip-address={address}", f"--num-cpus={cpus}"]
        with _ray(self.folder, *options) as process:
            yield process


@contextmanager
def one_node(folder: Path, *, cpus: int) -> Iterator[LocalCluster]:
    """A cluster of one node.

    Args:
        folder: for Ray's own files; a short path, since there are sockets in it.
        cpus: of the node, whether the machine has them or not.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        port, client, dashboard = [one.getsockname()[1] for one in sockets]
    options = ["--head", "--node-ip-address=127.0.0.1", "--include-dashboard=false", f"--num-cpus={cpus}"]
    options += [f"--port={port}", f"--ray-client-server-port={client}", f"--dashboard-port={dashboard}"]
    with _ray(folder, *options, f"--temp-dir={folder}", "--disable-usage-stats"):
        yield LocalCluster(f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}", folder)


@contextmanager
def _ray(folder: Path, *options: str) -> Iterator[int]:
    command = [
        Path(sys.executable).parent / "ray",
        "start",
        "--block",
        "--object-store-memory=200000000",
        *options,
    ]
    with (folder / "start.log").open("ab") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield started.pid
    finally:
        for process in (started.pid, *descendants(started.pid)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        started.wait()
