"""The host process of a job's tunnels: `python -m …docker.tunnel.host_process ROOT ENGINE_URL`.

One per job and user, started by the first tunnel. It holds the sessions, so that clients and the service can come
back, and exits when the job's containers are gone, or when nobody has been connected for ten minutes.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.tunnel import socket_paths
from pai_sdk._host.agent.tunnel.server import TunnelServer, close_on_signal
from pai_sdk._host.execution.docker.containers import JobContainers, tolerate_missing_engine
from pai_sdk._host.execution.docker.engine import Engine
from pai_sdk._host.execution.docker.tunnel.dialing import lock_file, socket_file
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer
from pai_sdk._host.execution.docker.tunnel.job_handlers import JobHandlers
from pai_sdk._host.execution.docker.tunnel.programs import end_orphans
from pai_sdk.errors import TunnelClosedError

_IDLE_S = 600.0
_OTHER_S = 20.0  # how long another process that is starting may take
_POLL_S = 0.1
_CHECK_S = 5.0
_JOB_ENDED = TunnelClosedError("JobEnded", "the processes of the job have ended")


def main(root: Path, engine_url: str) -> int:
    """Serves the tunnels of a job in a process of its own; returns when they can be connected to."""
    sandbox = Sandbox(root)
    path = socket_file(sandbox)
    lock = os.open(lock_file(sandbox), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Another process has it, for as long as it lives.
        return 0 if _listens(path) else 1
    job = Journal(sandbox.state_dir).read_job()
    if job is None:
        sys.stderr.write("there is no such job\n")
        return 1
    has_crashed = path.exists()
    listener = socket_paths.listen(path)
    if os.fork():
        # The caller does not wait for what outlives it.
        return 0
    code = 1
    try:
        names = [str(instance["name"]) for instance in job["instances"]]
        engine = connect_engine(engine_url)
        handlers = JobHandlers(engine, sandbox, str(job["job_id"]), names[0])
        if has_crashed:
            _end_orphans(engine, str(job["job_id"]), names)
        server = TunnelServer(listener, handlers.by_kind(), idle_s=_IDLE_S)
        close_on_signal(server, _JOB_ENDED)
        watch = threading.Thread(target=_watch, args=(server, engine, sandbox, str(job["job_id"])), daemon=True)
        watch.start()
        server.serve_forever()
        code = 0
    except BaseException:
        # Into the log, since nobody waits for this process.
        traceback.print_exc(file=sys.stderr)
    finally:
        with suppress(OSError):
            path.unlink()
        os._exit(code)


def connect_engine(url: str) -> Engine:
    """Returns the engine at an address, without a search."""
    import docker

    return Engine(url, docker.DockerClient(base_url=url, timeout=60))


def _end_orphans(engine: Engine, job_id: str, names: Sequence[str]) -> None:
    """Ends the programs of an earlier process that was killed, since nobody can join them any more."""
    with tolerate_missing_engine():
        for name in names:
            container = InstanceContainer.find(engine, job_id, name)
            if container is not None:
                end_orphans(container)


def _listens(path: Path) -> bool:
    deadline = time.monotonic() + _OTHER_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            socket_paths.connect(path, timeout_s=_OTHER_S).close()
            return True
        time.sleep(_POLL_S)
    return False


def _watch(server: TunnelServer, engine: Engine, sandbox: Sandbox, job_id: str) -> None:
    """Closes the server when the containers of the job are gone, or its folder belongs to another attempt."""
    state = sandbox.state_dir.stat()
    while True:
        time.sleep(_CHECK_S)
        is_current = False
        with suppress(OSError):
            is_current = os.path.samestat(sandbox.state_dir.stat(), state)
        if not is_current:
            break
        # An engine that does not respond may have it still.
        with tolerate_missing_engine():
            if not any(each.status in ("running", "paused") for each in JobContainers(lambda: engine).of(job_id)):
                break
    server.close(_JOB_ENDED)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
