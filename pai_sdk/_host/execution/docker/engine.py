"""Finds a Docker engine on this machine: Docker's own, a rootless one, or Podman's Docker-compatible socket.

One that does not respond is logged at the start of the outage, and at its end.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._core.missing_response import diagnose
from pai_sdk.errors import EngineNotFoundError, LocalRunError

if TYPE_CHECKING:
    import docker
    from requests import RequestException

_PING_TIMEOUT_S = 5.0  # for a call that costs an engine nothing; a slower engine hangs
_INFO_TIMEOUT_S = 20.0  # an engine on a busy machine may take seconds to count its containers and images
_CALL_TIMEOUT_S = 60.0
# The arguments of `APIClient.create_container` that are not part of its `host_config`.
_CONTAINER_ARGUMENTS = frozenset(
    {
        "command",
        "entrypoint",
        "environment",
        "healthcheck",
        "hostname",
        "image",
        "labels",
        "name",
        "stop_signal",
        "stop_timeout",
        "user",
        "working_dir",
    }
)
_SYSTEM_SOCKETS = (("/var/run/docker.sock", "Docker"), ("/run/podman/podman.sock", "Podman"))

logger = logging.getLogger(__name__)
_RETRY_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Engine:
    """An engine that responds, with docker-py's client for it, which is safe to use from several threads."""

    url: str
    client: docker.DockerClient
    is_rootless: bool = False  # root inside of a container is the user who runs the engine
    is_podman: bool = False  # with Docker's API
    has_selinux: bool = False  # containers can access only files that are labelled for them
    remaps_users: bool = False  # users of a container are mapped to other users of the host

    @property
    def file_access(self) -> dict[str, Any]:
        """Returns arguments of docker-py's `containers.create` for access to the caller's files as the caller."""
        # The files themselves are not changed: new labels or owners would outlast the job.
        arguments: dict[str, Any] = {}
        if self.has_selinux:
            arguments["security_opt"] = ["label=disable"]
        if self.remaps_users:
            arguments["userns_mode"] = "host"
        return arguments

    def start_container(self, arguments: Mapping[str, Any]) -> None:
        """Creates and starts a container, from arguments of `containers.create` and `stop_timeout`."""
        api = self.client.api
        arguments = {**arguments, **self.file_access}
        config = {name: value for name, value in arguments.items() if name in _CONTAINER_ARGUMENTS}
        host = {name: value for name, value in arguments.items() if name not in _CONTAINER_ARGUMENTS}
        if "network" in host:
            host["network_mode"] = host.pop("network")
        created = api.create_container(**config, host_config=api.create_host_config(**host))
        api.start(created["Id"])

    def check_responds(self) -> None:
        """Checks whether an engine listens, before docker-py connects."""
        # docker-py would leak a socket on a failure, and wait for a minute if the engine hangs.
        if failure := _ping_failure(self.url, _PING_TIMEOUT_S):
            raise EngineNotFoundError(f"the engine at {self.url} does not respond any more: {failure}")

    def lost_error(self, error: RequestException, *, while_doing: str) -> LocalRunError:
        """Returns the error for an engine that has closed the connection or does not respond any more."""
        return LocalRunError(
            f"the Docker engine at {self.url} stopped responding while {while_doing}: "
            f"{diagnose(error, self.url).sentence}; submit again when it runs"
        )

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()


@dataclass(frozen=True)
class _Candidate:
    url: str
    source: str


def find_engine(
    *, ping_timeout_s: float = _PING_TIMEOUT_S, system_sockets: Sequence[tuple[str, str]] = _SYSTEM_SOCKETS
) -> Engine:
    """Returns the engine that the user's environment names, or the first one that responds at a usual address."""
    tried: list[str] = []
    # `DOCKER_HOST` has precedence, then the current Docker context, then the usual sockets.
    for candidate in _candidates(system_sockets):
        # An engine behind TCP may be on another machine, where the mounted folders do not exist.
        if not candidate.url.startswith("unix://"):
            raise EngineNotFoundError(
                f"the engine at {candidate.url} ({candidate.source}) is not on this machine: it cannot see the "
                "folders of this job. Unset it to use the engine here, or submit to a service there"
            )
        failure = _ping_failure(candidate.url, ping_timeout_s)
        if not failure:
            engine, failure = _connect(candidate)
            if engine is not None:
                return engine
        tried.append(f"{candidate.url} ({candidate.source}): {failure}")
    raise EngineNotFoundError(
        "no Docker engine responds on this machine. Tried:\n"
        + "".join(f"  {line}\n" for line in tried)
        + "Three ways out: start Docker or Podman (`systemctl --user start podman.socket`); set DOCKER_HOST to "
        "the socket of one that runs; or run the job without one: session=Session.embedded(), "
        "instance_type='ecs.c6.large'"
    )


def _candidates(system_sockets: Sequence[tuple[str, str]]) -> Iterator[_Candidate]:
    """Yields addresses of engines. An explicitly named address is the only one."""
    docker_host = os.environ.get("DOCKER_HOST")
    if docker_host:
        yield _Candidate(docker_host, "DOCKER_HOST")
        return
    context = _current_context()
    if context:
        yield context
        return
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    for path, owner in (
        *system_sockets,
        (f"{runtime}/docker.sock", "rootless Docker"),
        (f"{Path.home()}/.docker/run/docker.sock", "Docker Desktop"),
        (f"{runtime}/podman/podman.sock", "rootless Podman"),
    ):
        yield _Candidate(f"unix://{path}", owner)


def _current_context() -> _Candidate | None:
    from docker.context import ContextAPI
    from docker.context.config import get_current_context_name

    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name()
    # This context stands for the usual sockets.
    if name == "default":
        return None
    context = ContextAPI.get_context(name)
    if context is None:
        raise EngineNotFoundError(f"the Docker context {name!r} does not exist; `docker context ls` lists them")
    return _Candidate(str(context.Host).removeprefix("http+"), f"Docker context {name!r}")


def _ping_failure(url: str, timeout_s: float) -> str:
    """Returns why an engine is unusable: no such socket, no listener on it, no answer. Empty if it answers."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout_s)
            probe.connect(url.removeprefix("unix://"))
            # Without docker-py, whose client waits for a minute for an engine that hangs.
            probe.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            return "" if probe.recv(16) else "hangs up"
    except FileNotFoundError:
        return "no such socket"
    except PermissionError:
        return "permission denied; add yourself to the group that owns it (mostly `docker`)"
    except OSError as error:
        return f"does not respond ({error.strerror or error})"


def _connect(candidate: _Candidate) -> tuple[Engine | None, str]:
    import docker
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        # The first calls get a short timeout; later ones, such as the removal of a large container, take longer.
        with closing(docker.DockerClient(base_url=candidate.url, timeout=_INFO_TIMEOUT_S)) as probe:
            info = probe.info()
            names = {part.get("Name") for part in probe.version().get("Components") or ()}
        client = docker.DockerClient(base_url=candidate.url, timeout=_CALL_TIMEOUT_S)
    except (DockerException, RequestException, OSError) as error:
        return None, f"does not respond ({error})"
    security = {option.partition("name=")[2].partition(",")[0] for option in info.get("SecurityOptions") or ()}
    engine = Engine(
        candidate.url,
        client,
        is_rootless="rootless" in security,
        is_podman="Podman Engine" in names,
        has_selinux="selinux" in security,
        remaps_users="userns" in security,
    )
    return engine, ""


class Absence:
    """Records whether an engine responds, from the last requests to it. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._next_call_at = 0.0

    @property
    def sentence(self) -> str:
        """Returns the message for jobs; empty while the engine responds."""
        if self._since is None:
            return ""
        since = time.strftime("%H:%M:%S", time.localtime(self._since))
        return f"the Docker engine has not responded since {since}; the job is checked again when it does"

    @property
    def should_call(self) -> bool:
        """Returns whether the engine responds, or the next attempt is due."""
        return self._since is None or self._clock() >= self._next_call_at

    def record_failure(self, *, sent_at: float) -> None:
        """Records a request that was sent at this time of the clock and got no response."""
        with self._lock:
            now = self._clock()
            # After a slow failure the pause is as long as the failure, so a hanging engine costs half of the
            # time at most.
            self._next_call_at = now + max(_RETRY_INTERVAL_S, now - sent_at)
            if self._since is not None:
                return
            self._since = time.time() - (now - sent_at)
        # Logged outside the lock, and only by the thread that set `_since`.
        logger.warning("%s", self.sentence)

    def record_response(self) -> None:
        """Records a response."""
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            logger.warning("the Docker engine responds again, after %.0f s", time.time() - since)
