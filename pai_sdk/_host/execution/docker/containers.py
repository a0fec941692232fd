"""Containers and networks of jobs in the engine, found by their labels."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pai_sdk._host.execution.docker.container import (
    LABEL_FOLDER,
    LABEL_JOB,
    LABEL_OWNER,
    LABEL_REQUIREMENTS,
    SHARED_DIR,
    owner,
)
from pai_sdk._host.execution.docker.engine import Engine
from pai_sdk._host.execution.docker.final_state import ContainerExit
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk.errors import EngineNotFoundError

logger = logging.getLogger(__name__)

_MAX_EVENTS = 256  # by Docker
_KILL_SIGNALS = ("9", "KILL", "SIGKILL")


class JobContainers:
    """The containers and networks of jobs; `engine` returns the engine, and may raise."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    # Docker-py's containers.
    def of(self, job_id: str) -> list[Any]:
        """Returns all containers of a job, including exited ones."""
        engine = self._engine()
        engine.check_responds()
        # Another process may remove a container between the list and the request for its details.
        return list(
            engine.client.containers.list(
                all=True, ignore_removed=True, filters={"label": f"{LABEL_JOB}={job_id}"}
            )
        )

    def running(self) -> set[str]:
        """Returns the names of all running containers of jobs, by one request without details."""
        engine = self._engine()
        engine.check_responds()
        summaries = engine.client.api.containers(filters={"label": LABEL_JOB, "status": "running"})
        return {name.removeprefix("/") for summary in summaries for name in summary.get("Names") or ()}

    def in_use(self) -> tuple[set[str], set[Path]]:
        """Returns the names of all containers of jobs, and the requirements folders mounted into them."""
        engine = self._engine()
        engine.check_responds()
        summaries = engine.client.api.containers(all=True, filters={"label": LABEL_JOB})
        names = {name.removeprefix("/") for summary in summaries for name in summary.get("Names") or ()}
        folders = [(summary.get("Labels") or {}).get(LABEL_REQUIREMENTS) for summary in summaries]
        return names, {Path(folder) for folder in folders if folder}

    def remove(self, job_id: str) -> None:
        """Removes all containers and networks of a job; running ones are killed."""
        for container in self.of(job_id):
            with _ignore_missing():
                container.remove(force=True, v=True)
        for network in self._engine().client.networks.list(filters={"label": f"{LABEL_JOB}={job_id}"}):
            with _ignore_missing():
                network.remove()

    def kill(self, job_id: str, shared: SharedFolder) -> None:
        """Kills the instances of a job, running or paused, that did not exit within the grace period."""
        for container in self.of(job_id):
            if container.status in ("running", "paused") and not shared.is_exiting(container.name):
                logger.warning("%s did not end within its grace period and is killed", container.name)
                if shared.first_failure is not None:
                    shared.write_lost(container.name)
                with _ignore_missing():
                    container.kill()

    def engine_has_restarted(self, job_id: str, *, since: float) -> bool | None:
        """Returns whether the engine was restarted since it started the containers of a job; None if unknown.

        `since` is a time before they were created, in seconds since 1970. An engine keeps its last events in
        memory: a restarted one does not list the start of these containers, and newer events may have replaced it.
        """
        engine = self._engine()
        # Podman has no daemon that containers depend on.
        if engine.is_podman:
            return False
        ids = {container.id for container in self.of(job_id)}
        # In whole seconds, `until` would leave out the last events.
        now = f"{time.time():.9f}"
        events = list(engine.client.api.events(since="1", until=now, decode=True))
        if any(event.get("Action") == "start" and event["Actor"]["ID"] in ids for event in events):
            return False
        if len(events) >= _MAX_EVENTS and events[0]["timeNano"] / 1e9 > since:
            return None
        return True

    def was_killed(self, container: Any) -> bool:
        """Returns whether the engine was asked to kill a container, for example by `docker kill`."""
        # An engine reports `OOMKilled` for a container in which the kernel has ever killed a process for lack of
        # memory, also if the container survived that. A kill by the kernel is not an event of the engine.
        filters = {"container": container.id, "event": "kill"}
        client = self._engine().client
        events = client.api.events(since="1", until=f"{time.time():.9f}", filters=filters, decode=True)
        return any((event["Actor"].get("Attributes") or {}).get("signal") in _KILL_SIGNALS for event in events)

    def restore_owner(self, job_id: str, to: str) -> None:
        """Gives files of root's exited containers to their owner (`uid:gid`), by one more container."""
        for container in self.of(job_id)[:1]:
            script = f"chown -R {to} /ml/usercode /ml/output {SHARED_DIR}"
            self._engine().client.containers.run(
                container.image.id,
                ["-c", script],
                entrypoint="/bin/sh",
                user="0:0",
                volumes_from=[container.id],
                labels={LABEL_JOB: job_id},
                remove=True,
            )

    def remove_orphans(self, is_orphan: Callable[[Path], bool]) -> list[str]:
        """Removes containers and networks of jobs whose folder is gone; returns the jobs."""
        # Not those of other users, and of other hosts that share the engine: their folders are not visible here.
        client, filters = self._engine().client, {"label": [LABEL_JOB, f"{LABEL_OWNER}={owner()}"]}
        label_sets = [
            item.labels for item in client.containers.list(all=True, ignore_removed=True, filters=filters)
        ]
        label_sets += [item.attrs.get("Labels") or {} for item in client.networks.list(filters=filters)]
        jobs: set[str] = {
            labels[LABEL_JOB] for labels in label_sets if is_orphan(Path(labels.get(LABEL_FOLDER, "/nowhere")))
        }
        for job_id in sorted(jobs):
            self.remove(job_id)
        return sorted(jobs)


def container_exit(container: Any, *, with_output: bool = False) -> ContainerExit | None:
    """Returns the exit of a container, None if it has not exited; optionally with its output."""
    state = container.attrs["State"]
    # A list of containers can report the state as a string; the details then need a request per container.
    if isinstance(state, str):
        container.reload()
        state = container.attrs["State"]
    if state["Status"] in ("created", "running", "paused", "restarting", "stopping"):
        return None
    # The engine has no output once the instance has opened its log.
    output = container.logs(tail=3).decode(errors="replace").strip() if with_output else ""
    return ContainerExit(int(state["ExitCode"]), bool(state["OOMKilled"]), str(state.get("Error") or ""), output)


def is_being_removed(container: Any) -> bool:
    """Returns whether it is being removed: it was killed for that, so its exit code is not the job's."""
    return container.status in ("removing", "dead")


@contextmanager
def tolerate_missing_engine() -> Iterator[None]:
    """Leaves the block when the engine does not respond: the job may continue, and a later call succeed."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except (DockerException, RequestException, EngineNotFoundError) as error:
        logger.debug("the engine does not respond: %s", error)


@contextmanager
def _ignore_missing() -> Iterator[None]:
    """Ignores that an object is gone, or that another process is removing it."""
    from docker.errors import APIError

    try:
        yield
    except APIError as error:
        if error.status_code not in (404, 409):
            raise
