"""A Ray cluster of one node on this machine, in a session of its own; others on the machine are left alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    """

    address: str
    client_address: str
    process: int


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
    ray = [Path(sys.executable).parent / "ray", "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
    options = [f"--port={port}", f"--ray-client-server-port={client}", f"--dashboard-port={dashboard}"]
    options += ["--include-dashboard=false", f"--num-cpus={cpus}", f"--temp-dir={folder}"]
    options += ["--object-store-memory=200000000", "--disable-usage-stats"]
    with (folder / "start.log").open("wb") as log:
        head = subprocess.Popen([*ray, *options], stdout=log, stderr=log, start_new_session=True)
    try:
        yield LocalCluster(f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}", head.pid)
    finally:
        below = descendants(head.pid)
        for process in (head.pid, *below):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        head.wait()
