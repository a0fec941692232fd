"""Jobs as containers of a Docker engine on this machine: one an instance, and no process of ours beside."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pai_sdk.agent.distributed import Instance
from pai_sdk.agent.journal import DISK_IS_FULL, Journal
from pai_sdk.agent.reasons import REASON_ENGINE_AWAY, REASON_MAX_RUNNING_TIME, max_running_time_message
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import locked
from pai_sdk.errors import EngineNotFoundError
from pai_sdk.execution.base import ExecutionState, Executor, InstanceState, LaunchSpec
from pai_sdk.execution.docker.containers import JobContainers, end_of, engine_may_be_away, is_being_removed
from pai_sdk.execution.docker.ending import ContainerEnd, ending
from pai_sdk.execution.docker.engine import Engine, find_engine
from pai_sdk.execution.docker.engine_health import Absence
from pai_sdk.execution.docker.launch import Launch
from pai_sdk.execution.docker.options import LocalOptions
from pai_sdk.execution.docker.shared_folder import SharedFolder
from pai_sdk.execution.output_links import mend_links

__all__ = ["DockerExecutor"]

logger = logging.getLogger(__name__)

_ASK_ENGINE_EVERY_S = 1.0
_SPARE_AFTER_GRACE_S = 5.0
_TIDY_WITHIN_S = 60.0  # how long others wait for the process that does it
_LOOK_S = 0.05


class DockerExecutor(Executor):
    """Runs the instances of a job as containers that need no other process once they have begun.

    `instance.sh` is their first process: it writes the log, keeps the time limit and ends the instances together.
    The executor starts them. The first call of `state` after the end, in any process, records how they ended.

    Args:
        engine: gives the engine when it is first needed.
        pip_cache: a folder for pip's downloads, kept from job to job.
        is_closing: whether a pull under way is to be cancelled, because the process that started it ends.
        options: of all jobs; without them, each job's are the tags of its request.

    Example:
        >>> DockerExecutor().state(Path("/srv/jobs/none")).phase
        'absent'
    """

    def __init__(
        self,
        engine: Callable[[], Engine] = find_engine,
        *,
        pip_cache: Path | None = None,
        is_closing: Callable[[], bool] = lambda: False,
        options: LocalOptions | None = None,
    ) -> None:
        self._find = engine
        self._pip_cache = pip_cache
        self._is_closing = is_closing
        self._options = options
        self._engine: Engine | None = None
        self._containers = JobContainers(lambda: self.engine)
        self._absence = Absence()
        self._unwritten: set[Path] = set()
        self._asked: dict[Path, tuple[float, dict[str, ContainerEnd | None]]] = {}

    @property
    def engine(self) -> Engine:
        """The engine; found when first asked for.

        Raises:
            EngineNotFoundError: there is none.
        """
        if self._engine is None:
            self._engine = self._find()
        return self._engine

    def connect(self) -> None:
        """Find the engine now.

        Raises:
            EngineNotFoundError: there is none.
        """
        _ = self.engine

    def close(self) -> None:
        """Close the connections to the engine; jobs go on."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    # ---- the beginning ----

    def start(self, spec: LaunchSpec, *, progress: bool = False) -> None:
        """Pull the image if need be, then start all instances; a job that was started before is left alone.

        Args:
            spec: the job.
            progress: show a bar while the image is pulled.

        Raises:
            InvalidInputError: the request cannot become containers; nothing was started.
            LocalRunError: the engine refused; nothing was left behind.
        """
        sandbox = spec.sandbox
        with _locked(sandbox) as is_ours:
            journal = Journal(sandbox.state_dir)
            if not is_ours or journal.read_job() is not None:
                return
            if self._pip_cache:
                self._pip_cache.mkdir(parents=True, exist_ok=True)
            try:
                launch = Launch(self.engine, spec, self._options, self._pip_cache)
                launch.run(progress=progress, is_closing=self._is_closing)
            except BaseException:
                # What the engine does not let us remove now is found by the next look at the job.
                with engine_may_be_away():
                    if journal.read_job() is not None:
                        self._containers.remove(spec.job_id)
                        journal.forget_job()
                raise

    def withdraw(self, root: Path) -> None:
        """Take back a start that was cut off; a job whose instances were let go stays."""
        sandbox = Sandbox(root.resolve())
        journal = Journal(sandbox.state_dir)
        job = journal.read_job()
        if job is None or SharedFolder(sandbox.shared_dir).has_begun:
            return
        with _locked(sandbox) as is_ours:
            if is_ours and not SharedFolder(sandbox.shared_dir).has_begun:
                self._containers.remove(job["job_id"])
                journal.forget_job()

    # ---- the course ----

    def state(self, root: Path) -> ExecutionState:
        """What is known now. The first call that sees the end also removes the containers."""
        sandbox = Sandbox(root.resolve())
        journal = Journal(sandbox.state_dir)
        final, job = journal.read_state(), journal.read_job()
        if job is None:
            return ExecutionState("absent")
        shared = SharedFolder(sandbox.shared_dir)
        if final is not None and final.get("phase") == "ended":
            self._tidy(sandbox, job, shared)
            return _as_state(final)
        instances = [Instance(**instance) for instance in job["instances"]]
        silent = [instance.name for instance in instances if shared.exit_of(instance.name) is None]
        # An instance tells its own exit code in the shared folder. Only those that have not are looked up in the
        # engine. `go` is read before the engine is asked: without it, a missing container is one yet to be made.
        has_begun = shared.has_begun
        containers = self._containers_of(sandbox, job, may_remember=has_begun) if silent else {}
        if containers is None:  # it may come back, and the job with it
            return replace(
                _going_on(shared, instances),
                reason_code=REASON_ENGINE_AWAY,
                reason_message=self._absence.sentence,
            )
        if has_begun and all(_is_over(name, containers) for name in silent):
            return self._finalize(sandbox, journal, job, shared, instances, containers)
        for name in silent:
            # Its container has ended without an exit file: killed from outside, or with its engine. The executor
            # writes the failure, which ends the others. Three checks come before: its exit code is not 0; the job
            # was not asked to stop, since one that is killed for ignoring a stop has not failed; and it still has
            # no exit file, since it may have written one after the engine was asked.
            code = _code_of(containers.get(name))
            is_news = has_begun and _is_over(name, containers) and code and shared.stop_wish is None
            if is_news and shared.exit_of(name) is None:
                shared.tell_failure(name, code)
        self._insist(job, shared)
        # No `go` file, and no process that is starting the job: its start was cut off. The starter writes `go`
        # before it releases the lock, so `go` is checked again after the lock was found free.
        if not has_begun and not _is_locked(sandbox) and not shared.has_begun:
            return self._finalize(sandbox, journal, job, shared, instances, containers)
        return _going_on(shared, instances)

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Ask all instances to end; returns at once. The first reason given stays."""
        shared = SharedFolder(Sandbox(root.resolve()).shared_dir)
        if shared.path.exists():
            shared.ask_to_stop(reason_code, reason_message)

    def _insist(self, job: dict[str, Any], shared: SharedFolder) -> None:
        """Do what no container does: a first process may hang, and a job may kill what watches over its time."""
        limit_s, begun_at = job["max_running_s"], shared.begun_at
        if limit_s is not None and begun_at is not None and shared.stop_wish is None:
            over_s = time.time() - begun_at - limit_s
            if over_s > job["grace_s"] + _SPARE_AFTER_GRACE_S:
                shared.ask_to_stop(REASON_MAX_RUNNING_TIME, max_running_time_message(limit_s))
        asked_s = shared.end_asked_s_ago
        if asked_s is not None and asked_s > job["grace_s"] + _SPARE_AFTER_GRACE_S:
            with engine_may_be_away():
                self._containers.kill(job["job_id"], shared)

    def _containers_of(
        self, sandbox: Sandbox, job: dict[str, Any], *, may_remember: bool
    ) -> dict[str, ContainerEnd | None] | None:
        """How the engine sees each container: None for one that runs. Asked now and then, not at each look.

        Gives None when the engine does not answer.
        """
        known = self._asked.get(sandbox.root)
        asked_at = time.monotonic()
        if known and asked_at - known[0] < _ASK_ENGINE_EVERY_S:
            return known[1]
        if not self._absence.is_to_be_asked:
            return None
        with engine_may_be_away():
            there = [one for one in self._containers.of(job["job_id"]) if not is_being_removed(one)]
            found = {container.name: end_of(container) for container in there}
            self._absence.end()
            if may_remember:
                self._asked[sandbox.root] = (time.monotonic(), found)
            return found
        self._absence.begin(asked_at=asked_at)
        return None

    # ---- the end ----

    def _finalize(
        self,
        sandbox: Sandbox,
        journal: Journal,
        job: dict[str, Any],
        shared: SharedFolder,
        instances: Sequence[Instance],
        containers: Mapping[str, ContainerEnd | None],
    ) -> ExecutionState:
        """Write down how the job ended, and remove its containers and network."""
        with _locked(sandbox) as is_ours:
            if not is_ours:
                return _going_on(shared, instances)
            if journal.read_job() is None:  # its start was taken back meanwhile
                return ExecutionState("absent")
            state = journal.read_state()
            if state is None or state.get("phase") != "ended":
                ends = self._last_words(job, shared, containers)
                state = ending(
                    job, shared, instances, ends, lambda if_away: self._engine_has_restarted(job, if_away)
                )
                for channel, folder in job.get("outputs", {}).items():
                    mend_links(Path(folder), f"/ml/output/{channel}")
                try:
                    _leftover(sandbox).touch()
                    journal.write_state(state)
                except OSError as error:
                    if error.errno not in DISK_IS_FULL:
                        raise
                    # The containers stay, and with them what is known of the end, until there is free space.
                    if sandbox.root not in self._unwritten:
                        self._unwritten.add(sandbox.root)
                        logger.warning("the end of job %s cannot be written down: %s", job["job_id"], error)
                    return _as_state(state)
                shared.forget_secrets()
                self._asked.pop(sandbox.root, None)
        self._tidy(sandbox, job, shared)
        return _as_state(state)

    def _last_words(
        self, job: dict[str, Any], shared: SharedFolder, known: Mapping[str, ContainerEnd | None]
    ) -> dict[str, ContainerEnd | None]:
        """How the containers ended, as the engine has it; what was known before, when it does not answer now."""
        ends = dict(known)
        with self._engine_asked() as is_worthwhile:
            for container in self._containers.of(job["job_id"]) if is_worthwhile else ():
                if is_being_removed(container):
                    continue
                with engine_may_be_away():
                    if shared.exit_of(container.name) is not None and container.status == "running":
                        container.wait(timeout=30)  # it has written how it ended, and is about to go
                        container.reload()
                    ends[container.name] = end_of(container, with_words=not shared.has_opened_log(container.name))
        return ends

    def _engine_has_restarted(self, job: dict[str, Any], if_away: bool | None) -> bool | None:
        """Whether the engine ended, or started anew, while the job ran; None where that is not known."""
        with self._engine_asked() as is_worthwhile:
            if is_worthwhile:
                return self._containers.engine_has_restarted(job["job_id"], since=job.get("launched_at", 0.0))
        return if_away

    @contextmanager
    def _engine_asked(self) -> Iterator[bool]:
        """Leave the block when the engine does not answer; gives False where it did not a moment ago.

        So one look at a job waits only once for an engine that hangs.
        """
        if not self._absence.is_to_be_asked:
            yield False
            return
        asked_at = time.monotonic()
        with engine_may_be_away():
            try:
                yield True
            except EngineNotFoundError:
                self._absence.begin(asked_at=asked_at)
                raise

    def _tidy(self, sandbox: Sandbox, job: dict[str, Any], shared: SharedFolder) -> None:
        """Remove the containers of a job that has ended; if the engine is away, the next look does it.

        While one process does it, others wait: a caller that sees the end finds the containers gone, and a
        process that ends then, with all its threads, does not leave half of this undone.
        """
        deadline = time.monotonic() + _TIDY_WITHIN_S
        while _leftover(sandbox).exists():
            with _locked(sandbox) as is_ours, self._engine_asked() as is_worthwhile:
                if is_ours and is_worthwhile:
                    self._give_back_and_remove(job, shared)
                    _leftover(sandbox).unlink(missing_ok=True)
            if is_ours or time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_S)

    def _give_back_and_remove(self, job: dict[str, Any], shared: SharedFolder) -> None:
        if job.get("give_to") and any(shared.exit_of(one["name"]) is None for one in job["instances"]):
            with engine_may_be_away():  # one was killed before it could give its files back
                self._containers.give_back(job["job_id"], job["give_to"])
        self._containers.remove(job["job_id"])

    def remove(self, root: Path) -> None:
        """Remove what a job has in the engine, and its folder; one that runs is killed."""
        sandbox = Sandbox(root.resolve())
        job = Journal(sandbox.state_dir).read_job()
        if job is not None:
            self._containers.remove(job["job_id"])
        sandbox.remove()

    def sweep(self) -> list[str]:
        """Remove what the engine has of jobs whose folder has gone; gives their ids."""
        return self._containers.remove_orphans(lambda folder: not folder.exists())


def _leftover(sandbox: Sandbox) -> Path:
    """Is there for as long as the engine may have something of a job that has ended."""
    return sandbox.state_dir / "containers-left"


@contextmanager
def _locked(sandbox: Sandbox) -> Iterator[bool]:
    """Hold the job's lock; gives False where another process has it."""
    with locked(sandbox.state_dir / "lock", waits=False) as is_ours:
        yield is_ours


def _is_locked(sandbox: Sandbox) -> bool:
    with _locked(sandbox) as is_ours:
        return not is_ours


def _is_over(name: str, containers: dict[str, ContainerEnd | None]) -> bool:
    """Whether the engine says that a container has ended, or does not know it any more."""
    return name not in containers or containers[name] is not None


def _code_of(end: ContainerEnd | None) -> int:
    return end.code if end else 137


def _going_on(shared: SharedFolder, instances: Sequence[Instance]) -> ExecutionState:
    return ExecutionState(
        "running" if any(shared.has_started(instance.name) for instance in instances) else "preparing",
        started_at=shared.begun_at,
        instances=tuple(_instance_now(instance, shared) for instance in instances),
    )


def _instance_now(instance: Instance, shared: SharedFolder) -> InstanceState:
    ended = shared.exit_of(instance.name)
    if ended is not None:
        status = "Terminated" if shared.why(instance.name) else "Failed" if ended.code else "Succeed"
        return InstanceState(instance.name, instance.role, status, ended.code)
    return InstanceState(
        instance.name, instance.role, "Running" if shared.has_started(instance.name) else "Pending"
    )


def _as_state(final: dict[str, Any]) -> ExecutionState:
    instances = tuple(InstanceState(**instance) for instance in final["instances"])
    return ExecutionState(**{**final, "instances": instances})
