"""The kinds of streams that a tunnel into a job of containers serves."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.stacks import collect_stacks
from pai_sdk._host.agent.tunnel.children import FUNCTIONS
from pai_sdk._host.agent.tunnel.functions import Functions
from pai_sdk._host.agent.tunnel.server import Handler
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk._host.execution.docker.engine import Engine
from pai_sdk._host.execution.docker.tunnel.archives import serve_read_archive, serve_write_archive
from pai_sdk._host.execution.docker.tunnel.container_ports import serve_connect, serve_listen
from pai_sdk._host.execution.docker.tunnel.container_spawner import ContainerSpawner
from pai_sdk._host.execution.docker.tunnel.handlers import engine_errors_refused, serve_program
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer
from pai_sdk.errors import TunnelRefusedError

_RECENT_S = 5.0
_UMASK = re.compile(r"^PAI_SDK_UMASK=([0-7]{1,4})$", re.MULTILINE)
_DEFAULT_UMASK = 0o022
_MAX_SETTINGS_BYTES = 1 << 16
_MAX_STACKS_S, _STACKS_S = 120.0, 30.0
_BY_ENGINE = {"read_archive": serve_read_archive, "write_archive": serve_write_archive}


class JobHandlers:
    """Serves the streams of one job. `_lock` guards the containers that were found a moment ago."""

    def __init__(self, engine: Engine, sandbox: Sandbox, job_id: str, first: str) -> None:
        self._engine = engine
        self._sandbox = sandbox
        self._job_id = job_id
        self._first = first
        self._lock = threading.Lock()
        self._recent: dict[str, tuple[float, InstanceContainer]] = {}

    def by_kind(self) -> Mapping[str, Handler]:
        """Returns the handlers, by kind of stream."""
        return {
            "program": self._in_container(serve_program),
            "connect": self._in_container(serve_connect),
            "listen": self._in_container(serve_listen),
            **dict.fromkeys((*FUNCTIONS, *_BY_ENGINE), self._in_container(self._run_function)),
            "stacks": self._in_container(serve_stacks),
        }

    def _in_container(self, serve: Callable[[InstanceContainer, Stream], None]) -> Handler:
        return lambda stream: serve(self._container(stream.tunnel.instance or self._first), stream)

    def _container(self, instance: str) -> InstanceContainer:
        """Returns the running container of an instance, by its full name."""
        with self._lock:
            checked_at, container = self._recent.get(instance, (0.0, None))
            if container is not None and time.monotonic() - checked_at < _RECENT_S and container.is_running:
                return container
        with engine_errors_refused():
            container = InstanceContainer.find(self._engine, self._job_id, instance)
        if container is None:
            message = "the container of the instance does not run: it has not started, or has ended"
            raise TunnelRefusedError("InstanceNotRunning", message)
        with self._lock:
            self._recent[instance] = (time.monotonic(), container)
        return container

    def _run_function(self, container: InstanceContainer, stream: Stream) -> None:
        """Runs a function in the container if this process may enter it; otherwise the engine copies archives."""
        if container.is_open_to_root and stream.kind in FUNCTIONS:
            Functions(ContainerSpawner(container, self._umask(container.instance))).serve(stream)
        elif stream.kind in _BY_ENGINE:
            _BY_ENGINE[stream.kind](container, stream)
        else:
            hint = "; copy files by: pai-sdk cp" if stream.kind == "sftp" else ""
            message = f"only root of the machine with the engine can do this ({stream.kind}) in a container{hint}"
            raise TunnelRefusedError("NotSupported", message)

    def _umask(self, instance: str) -> int:
        """Returns the file mode mask of the job; the file can be written by the job."""
        with suppress(OSError):
            with (self._sandbox.shared_dir / f"{instance}.settings").open("rb") as file:
                text = file.read(_MAX_SETTINGS_BYTES).decode(errors="replace")
            if match := _UMASK.search(text):
                return int(match[1], 8) & 0o777
        return _DEFAULT_UMASK


def serve_stacks(container: InstanceContainer, stream: Stream) -> None:
    """Sends the stacks of the processes of an instance, read from this machine."""
    if container.process is None:
        message = "the processes of the container are not visible here: its engine is in another machine"
        raise TunnelRefusedError("NotSupported", message)
    timeout_s = stream.parameters.get("timeout_s")
    is_valid = isinstance(timeout_s, (int, float)) and 0 < timeout_s <= _MAX_STACKS_S
    stream.confirm({})
    content = collect_stacks(
        [container.process],
        native=stream.parameters.get("native") is True,
        timeout_s=float(timeout_s) if timeout_s is not None and is_valid else _STACKS_S,
    )
    stream.write(json.dumps(content).encode())
    stream.end()
    stream.send_exit({"code": 0})
