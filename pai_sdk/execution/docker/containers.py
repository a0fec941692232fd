"""Containers and networks of jobs in the engine, found by their labels."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pai_sdk.errors import EngineNotFoundError
from pai_sdk.execution.docker.container import (
    LABEL_FOLDER,
    LABEL_JOB,
    LABEL_OWNER,
    LABEL_REQUIREMENTS,
    SHARED_DIR,
    owner,
)
from pai_sdk.execution.docker.ending import ContainerEnd
from pai_sdk.execution.docker.engine import Engine
from pai_sdk.execution.docker.shared_folder import SharedFolder

__all__ = ["JobContainers", "end_of", "engine_may_be_away", "is_being_removed"]

logger = logging.getLogger(__name__)

_EVENTS_KEPT = 256  # by Docker
_KILL_SIGNALS = ("9", "KILL", "SIGKILL")


class JobContainers:
    """The containers and networks of jobs.

    Args:
        engine: gives the engine; may fail when there is none.
    """

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    def of(self, job_id: str) -> list[Any]:  # docker-py's containers
        """All containers of one job, those that have ended included."""
        engine = self._engine()
        engine.must_respond()
        # Another process may remove one between the list and the request for its details.
        return list(
            engine.client.containers.list(
                all=True, ignore_removed=True, filters={"label": f"{LABEL_JOB}={job_id}"}
            )
        )

    def running(self) -> set[str]:
        """The names of all containers of jobs that run; by one request, without their details."""
        engine = self._engine()
        engine.must_respond()
        found = engine.client.api.containers(filters={"label": LABEL_JOB, "status": "running"})
        return {name.removeprefix("/") for one in found for name in one.get("Names") or ()}

    def in_use(self) -> tuple[set[str], set[Path]]:
        """The names of all containers of jobs, and the folders with requirements that they see."""
        engine = self._engine()
        engine.must_respond()
        found = engine.client.api.containers(all=True, filters={"label": LABEL_JOB})
        names = {name.removeprefix("/") for one in found for name in one.get("Names") or ()}
        folders = [(one.get("Labels") or {}).get(LABEL_REQUIREMENTS) for one in found]
        return names, {Path(folder) for folder in folders if folder}

    def remove(self, job_id: str) -> None:
        """Remove all that a job has in the engine; what runs is killed."""
        for container in self.of(job_id):
            with _may_be_gone():
                container.remove(force=True, v=True)
        for network in self._engine().client.networks.list(filters={"label": f"{LABEL_JOB}={job_id}"}):
            with _may_be_gone():
                network.remove()

    def kill(self, job_id: str, shared: SharedFolder) -> None:
        """Kill the instances of a job, running or paused, that did not end within the grace period."""
        for container in self.of(job_id):
            if container.status in ("running", "paused") and not shared.is_at_its_end(container.name):
                logger.warning("%s did not end within its grace period and is killed", container.name)
                if shared.first_failure is not None:
                    shared.write_lost(container.name)
                with _may_be_gone():
                    container.kill()

    def engine_has_restarted(self, job_id: str, *, since: float) -> bool | None:
        """Return whether the engine was started anew since it started the containers of a job.

        An engine keeps its last events in memory, so a later one does not know the start of these containers.

        Args:
            job_id: the job.
            since: a moment before its containers were made, in seconds since 1970.

        Returns:
            None where that is not known, because newer events have replaced that of the start.
        """
        engine = self._engine()
        if engine.is_podman:  # which has no engine that containers depend on
            return False
        ids = {container.id for container in self.of(job_id)}
        now = f"{time.time():.9f}"  # of whole seconds, the last events would be missing
        events = list(engine.client.api.events(since="1", until=now, decode=True))
        if any(one.get("Action") == "start" and one["Actor"]["ID"] in ids for one in events):
            return False
        if len(events) >= _EVENTS_KEPT and events[0]["timeNano"] / 1e9 > since:
            return None
        return True

    def was_killed(self, container: Any) -> bool:
        """Return whether the engine was asked to kill a container, such as by `docker kill`.

        An engine reports `OOMKilled` for a container in which the kernel has ever killed a process for lack of
        memory, also where the container survived that. A kill by the kernel is no event of the engine.
        """
        asked = {"container": container.id, "event": "kill"}
        client = self._engine().client
        events = client.api.events(since="1", until=f"{time.time():.9f}", filters=asked, decode=True)
        return any((one["Actor"].get("Attributes") or {}).get("signal") in _KILL_SIGNALS for one in events)

    def give_back(self, job_id: str, to: str) -> None:
        """Give the files that root's containers wrote to their owner, by one more container; they have ended.

        Args:
            job_id: whose containers.
            to: the owner, as `uid:gid`.
        """
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
        """Remove containers and networks of jobs whose folder has gone.

        Those of other users, and of other machines or containers that share the engine, are left alone: their
        folders cannot be seen from here.

        Args:
            is_orphan: asked for each job's folder.

        Returns:
            The jobs whose containers were removed.
        """
        client, ours = self._engine().client, {"label": [LABEL_JOB, f"{LABEL_OWNER}={owner()}"]}
        found = [one.labels for one in client.containers.list(all=True, ignore_removed=True, filters=ours)]
        found += [one.attrs.get("Labels") or {} for one in client.networks.list(filters=ours)]
        jobs: set[str] = {
            labels[LABEL_JOB] for labels in found if is_orphan(Path(labels.get(LABEL_FOLDER, "/nowhere")))
        }
        for job_id in sorted(jobs):
            self.remove(job_id)
        return sorted(jobs)


def end_of(container: Any, *, with_words: bool = False) -> ContainerEnd | None:
    """The end of a container; None for one that has not ended.

    Args:
        container: docker-py's.
        with_words: also read its output from the engine, which has none once the instance has opened its log.
    """
    state = container.attrs["State"]
    # A list of containers may give the state as one word; the details need a request for each.
    if isinstance(state, str):
        container.reload()
        state = container.attrs["State"]
    if state["Status"] in ("created", "running", "paused", "restarting", "stopping"):
        return None
    words = container.logs(tail=3).decode(errors="replace").strip() if with_words else ""
    return ContainerEnd(int(state["ExitCode"]), bool(state["OOMKilled"]), str(state.get("Error") or ""), words)


def is_being_removed(container: Any) -> bool:
    """Return whether it is being removed; it was killed for that, so its exit code is not that of the job."""
    return container.status in ("removing", "dead")


@contextmanager
def engine_may_be_away() -> Iterator[None]:
    """Leave the block when the engine does not respond: it may respond later, and the job continue."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except (DockerException, RequestException, EngineNotFoundError) as error:
        logger.debug("the engine does not respond: %s", error)


@contextmanager
def _may_be_gone() -> Iterator[None]:
    """Ignore that something is gone, or that another process is removing it at this moment."""
    from docker.errors import APIError

    try:
        yield
    except APIError as error:
        if error.status_code not in (404, 409):
            raise
