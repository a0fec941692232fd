"""Jobs as containers of a Docker engine on this machine: one an instance, and no other process on the host.

    start: lock ─ job.json ─ containers ─ `go` ─ unlock
    state: no job.json ▶ absent; an end in state.json ▶ ended; engine away ▶ unchanged; all exits known ▶ _finalize
    _finalize: lock ─ read the ends ─ state.json with the end ─ unlock; then _tidy
    _tidy: lock ─ remove the containers ─ unlock

The lock is that of the `Journal`; any process may start, look at and end a job, and the lock chooses one of them.
It is never waited for: a process that does not get it leaves the work to the one that has it. Only `_tidy` waits,
because its caller expects that the containers are gone.

Threads share `_asked`, `_unwritten` and `_logs` without a lock: their single operations are atomic, and two
threads that do the same work do no harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pai_sdk.agent.distributed import Instance
from pai_sdk.agent.instance_logs import InstanceLogs
from pai_sdk.agent.journal import Journal
from pai_sdk.agent.protocol import DISK_IS_FULL
from pai_sdk.agent.reasons import REASON_ENGINE_AWAY, REASON_MAX_RUNNING_TIME, max_running_time_message
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import locked
from pai_sdk.errors import EngineNotFoundError
from pai_sdk.execution.base import ExecutionState, Executor, ExecutorCapabilities, ExecutorSetup, LaunchSpec
from pai_sdk.execution.docker.containers import JobContainers, end_of, engine_may_be_away, is_being_removed
from pai_sdk.execution.docker.ending import ContainerEnd, ending
from pai_sdk.execution.docker.engine import Engine, find_engine
from pai_sdk.execution.docker.engine_health import Absence
from pai_sdk.execution.docker.launch import Launch
from pai_sdk.execution.docker.options import LocalOptions
from pai_sdk.execution.docker.requirements_cache import RequirementsCache
from pai_sdk.execution.docker.shared_folder import SharedFolder
from pai_sdk.execution.job_folder import JobFolder
from pai_sdk.logs.reader import InstanceLog

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
        requirements_dir: a folder for what jobs have installed, kept for jobs with the same requirements.
        is_closing: whether a pull under way is to be cancelled, because the process that started it ends.
        options: of all jobs; without them, each job's are the tags of its request.
        notes_sizes: `state` notes how long the logs are, for a caller that asks several times a second. The note
            of an instance itself has whole seconds, and some images cannot take it.

    Example:
        >>> DockerExecutor().state(Path("/srv/jobs/none")).phase
        'absent'
    """

    capabilities = ExecutorCapabilities(uses_images=True, hosts="elsewhere", sets_shared_memory=True)

    def __init__(
        self,
        engine: Callable[[], Engine] = find_engine,
        *,
        pip_cache: Path | None = None,
        requirements_dir: Path | None = None,
        is_closing: Callable[[], bool] = lambda: False,
        options: LocalOptions | None = None,
        notes_sizes: bool = False,
    ) -> None:
        self._find = engine
        self._pip_cache = pip_cache
        self._is_closing = is_closing
        self._options = options
        self._notes_sizes = notes_sizes
        self._logs: dict[Path, InstanceLogs] = {}  # of jobs that run
        self._engine: Engine | None = None
        self._containers = JobContainers(lambda: self.engine)
        self._requirements = (
            None if requirements_dir is None else RequirementsCache(requirements_dir, self._containers.in_use)
        )
        self._absence = Absence()
        # Caches: another process, or this one after a restart, does without. `_unwritten` has the jobs whose end
        # could not be written, so that this is logged once; `_asked` has the last responses of the engine.
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

    @classmethod
    def open(cls, setup: ExecutorSetup) -> DockerExecutor:
        """The executor of a service: its clients do not choose whose rights and which network containers have.

        Raises:
            EngineNotFoundError: no engine responds.
        """
        options = LocalOptions()
        made = cls(
            pip_cache=setup.cache_dir / "pip", is_closing=setup.is_closing, options=options, notes_sizes=True
        )
        _ = made.engine
        return made

    def close(self) -> None:
        """Close the connections to the engine; jobs continue."""
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
        journal = Journal(spec.sandbox.state_dir)
        with locked(journal.lock, waits=False) as is_ours:
            if not is_ours or journal.read_job() is not None:
                return
            if self._pip_cache:
                self._pip_cache.mkdir(parents=True, exist_ok=True)
            try:
                launch = Launch(self.engine, spec, self._options, self._pip_cache, self._requirements)
                launch.run(progress=progress, is_closing=self._is_closing)
            except BaseException:
                # What the engine cannot remove now is found by the next look at the job.
                with engine_may_be_away():
                    if journal.read_job() is not None:
                        self._containers.remove(spec.job_id)
                        journal.forget_job()
                raise

    def withdraw(self, root: Path) -> None:
        """Take back a start that was cut off; a job whose instances have begun stays."""
        job = _Job.find(root)
        if job is None or job.shared.has_begun:
            return
        with locked(job.journal.lock, waits=False) as is_ours:
            if is_ours and not job.shared.has_begun:
                self._containers.remove(job.id)
                job.journal.forget_job()

    # ---- the course ----

    def state(self, root: Path) -> ExecutionState:
        """The state now. The first call that sees the end also writes it and removes the containers.

        In this order: the end that is written already; the exit codes that the instances have written; the engine,
        for the instances that have written none. Any process may call this at any time; whatever changes something
        is done under the lock, or is a file of which the first one stays.
        """
        job = _Job.find(root)
        if job is None:
            return ExecutionState("absent")
        state = self._state_of(job)
        if self._notes_sizes and state.phase != "absent":
            names = [instance.name for instance in state.instances]
            self._logs.setdefault(root, InstanceLogs(job.sandbox, names)).sample(time.time())
            if state.phase == "ended":
                self._logs.pop(root, None)
        return state

    def _state_of(self, job: _Job) -> ExecutionState:
        if (final := job.final_state()) is not None:
            self._tidy(job)
            return final
        shared = job.shared
        silent = [one.name for one in shared.instances if shared.exit_of(one.name) is None]
        # `go` is read before the engine is asked: without it, a missing container is one yet to be made.
        has_begun = shared.has_begun
        containers = self._containers_of(job, may_remember=has_begun) if silent else {}
        if containers is None:  # it may respond later, and the job continue
            return replace(shared.state(), reason_code=REASON_ENGINE_AWAY, reason_message=self._absence.sentence)
        if has_begun and all(_has_ended(name, containers) for name in silent):
            return self._finalize(job, containers)
        for name in silent:
            # Its container has ended without an exit file: killed from outside, or with its engine. The executor
            # writes the failure, which ends the others. Three checks come before: its exit code is not 0; the job
            # was not asked to stop, since one that is killed for ignoring a stop has not failed; and it still has
            # no exit file, since it may have written one after the engine was asked.
            end = containers.get(name)
            code = end.code if end else 137
            has_failed = has_begun and _has_ended(name, containers) and code and shared.stop_request is None
            if has_failed and shared.exit_of(name) is None:
                shared.write_failure(name, code)
        self._enforce_limits(job)
        # No `go` file, and no process that is starting the job: its start was cut off. The starter writes `go`
        # before it releases the lock, so `go` is checked again after the lock was found free.
        if not has_begun and not job.journal.is_locked() and not shared.has_begun:
            return self._finalize(job, containers)
        return shared.state()

    def ask_about(self, roots: Iterable[Path]) -> None:
        """Ask the engine once for the containers of many jobs. `state` then asks only about those that do not run.

        Args:
            roots: the folders of the jobs; those without a job are left out.
        """
        asked_at = time.monotonic()
        stale = [root for root in roots if asked_at - self._asked.get(root, (0.0,))[0] >= _ASK_ENGINE_EVERY_S]
        jobs = [job for root in stale if (job := _Job.find(root)) is not None and job.final_state() is None]
        if len(jobs) < 2 or not self._absence.is_to_be_asked:
            return
        with engine_may_be_away():
            running = self._containers.running()
            for job in jobs:
                names = [instance.name for instance in job.shared.instances]
                if job.shared.has_begun and running.issuperset(names):
                    self._asked[job.sandbox.root] = (time.monotonic(), dict.fromkeys(names))
            self._absence.end()
            return
        self._absence.begin(asked_at=asked_at)

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Ask all instances to end; returns at once. The first reason given stays."""
        shared = SharedFolder(Sandbox(root.resolve()).shared_dir)
        if shared.path.exists():
            shared.request_stop(reason_code, reason_message)

    def _enforce_limits(self, job: _Job) -> None:
        """End what should have ended by itself: a first process may hang, and a job may kill its watch."""
        limit_s, begun_at = job.facts["max_running_s"], job.shared.begun_at
        longest_s = job.facts["grace_s"] + _SPARE_AFTER_GRACE_S
        if limit_s is not None and begun_at is not None and time.time() - begun_at - limit_s > longest_s:
            job.shared.request_stop(REASON_MAX_RUNNING_TIME, max_running_time_message(limit_s))
        asked_s = job.shared.end_asked_s_ago
        if asked_s is not None and asked_s > longest_s:
            with engine_may_be_away():
                self._containers.kill(job.id, job.shared)

    def _containers_of(self, job: _Job, *, may_remember: bool) -> dict[str, ContainerEnd | None] | None:
        """The end of each container: None for one that runs. The engine is asked at most once a second.

        Gives None when the engine does not respond.
        """
        known = self._asked.get(job.sandbox.root)
        asked_at = time.monotonic()
        if known and asked_at - known[0] < _ASK_ENGINE_EVERY_S:
            return known[1]
        if not self._absence.is_to_be_asked:
            return None
        with engine_may_be_away():
            there = [one for one in self._containers.of(job.id) if not is_being_removed(one)]
            found = {container.name: end_of(container) for container in there}
            self._absence.end()
            if may_remember:
                self._asked[job.sandbox.root] = (time.monotonic(), found)
            return found
        self._absence.begin(asked_at=asked_at)
        return None

    # ---- the end ----

    def _finalize(self, job: _Job, containers: Mapping[str, ContainerEnd | None]) -> ExecutionState:
        """Write how the job ended, and remove its containers and network."""
        with locked(job.journal.lock, waits=False) as is_ours:
            if not is_ours:  # another process does it; to this one, the job still runs
                return job.shared.state()
            if job.journal.read_job() is None:  # its start was taken back meanwhile
                return ExecutionState("absent")
            state = job.final_state()
            if state is None:
                ends = self._final_ends(job, containers)
                state = ending(job.facts, job.shared, ends, partial(self._engine_has_restarted, job))
                for channel in job.outputs:
                    JobFolder(job.sandbox, job.outputs).mend_links(channel)
                try:
                    job.containers_left.touch()
                    job.journal.write_state(state)
                except OSError as error:
                    if error.errno not in DISK_IS_FULL:
                        raise
                    # The containers stay, and with them what is known of the end, until there is free space.
                    if job.sandbox.root not in self._unwritten:
                        self._unwritten.add(job.sandbox.root)
                        logger.warning("the end of job %s cannot be saved: %s", job.id, error)
                    return state
                job.shared.forget_secrets()
                self._asked.pop(job.sandbox.root, None)
        self._tidy(job)
        return state

    def _final_ends(self, job: _Job, known: Mapping[str, ContainerEnd | None]) -> dict[str, ContainerEnd | None]:
        """The ends of the containers by the engine; those known before, if it does not respond."""
        ends = dict(known)
        with self._engine_asked() as is_worthwhile:
            for container in self._containers.of(job.id) if is_worthwhile else ():
                if is_being_removed(container):
                    continue
                with engine_may_be_away():
                    if job.shared.exit_of(container.name) is not None and container.status == "running":
                        container.wait(timeout=30)  # it has written its exit code, and ends now
                        container.reload()
                    has_log = job.shared.has_opened_log(container.name)
                    end = end_of(container, with_words=not has_log)
                    ends[container.name] = end
                    is_unwritten = job.shared.exit_of(container.name) is None
                    if end and end.out_of_memory and is_unwritten and self._containers.was_killed(container):
                        ends[container.name] = replace(end, out_of_memory=False)
        return ends

    def _engine_has_restarted(self, job: _Job, if_away: bool | None) -> bool | None:
        """Return whether the engine ended, or started anew, while the job ran; None where that is not known."""
        with self._engine_asked() as is_worthwhile:
            if is_worthwhile:
                return self._containers.engine_has_restarted(job.id, since=job.facts.get("launched_at", 0.0))
        return if_away

    @contextmanager
    def _engine_asked(self) -> Iterator[bool]:
        """Leave the block when the engine does not respond; gives False where it did not a moment ago.

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

    def _tidy(self, job: _Job) -> None:
        """Remove the containers of a job that has ended; if the engine is away, a later call does it.

        While one process removes them, others wait: a caller that sees the end finds the containers gone, and a
        process that ends right after it, with all its threads, leaves nothing half removed.
        """
        deadline = time.monotonic() + _TIDY_WITHIN_S
        while job.containers_left.exists():
            with locked(job.journal.lock, waits=False) as is_ours, self._engine_asked() as is_worthwhile:
                if is_ours and is_worthwhile:
                    self._give_back_and_remove(job)
                    job.containers_left.unlink(missing_ok=True)
            if is_ours or time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_S)

    def _give_back_and_remove(self, job: _Job) -> None:
        owner = job.facts.get("give_to")
        if owner and any(job.shared.exit_of(one.name) is None for one in job.shared.instances):
            with engine_may_be_away():  # one was killed before it could give its files back
                self._containers.give_back(job.id, owner)
        self._containers.remove(job.id)

    def has_let_go(self, root: Path) -> bool:
        """Return whether the containers of the job are removed; they are now, if the engine responds."""
        job = _Job.find(root)
        if job is None:
            return True
        self._tidy(job)
        self._asked.pop(job.sandbox.root, None)
        return not job.containers_left.exists() and not job.journal.is_locked()

    def files(self, root: Path) -> JobFolder:
        """The files of a job: in its folder, or in the folder of this machine that an output was given."""
        job = _Job.find(root)
        kind = JobFolder if self._notes_sizes else _NotingFiles
        return kind(Sandbox(root), job.outputs if job is not None else {})

    def remove(self, root: Path) -> None:
        """Remove what a job has in the engine, and its folder; one that runs is killed."""
        if (job := _Job.find(root)) is not None:
            self._containers.remove(job.id)
        Sandbox(root.resolve()).remove()

    def sweep(self) -> list[str]:
        """Remove what the engine has of jobs whose folder has gone, and old requirements; gives the jobs' ids."""
        if self._requirements:
            self._requirements.prune()
        return self._containers.remove_orphans(lambda folder: not folder.exists())


class _NotingFiles(JobFolder):
    """The files of a job whose instances note the sizes of their logs, and not the executor."""

    def log(self, instance: str) -> InstanceLog:
        """The log of an instance, with the notes that the instance takes."""
        times = SharedFolder(self.sandbox.shared_dir).times_file(instance)
        return InstanceLog(self.sandbox.log_file(instance), times=times)


@dataclass(frozen=True)
class _Job:
    """The files of a job that was started; all that is known of it.

    Attributes:
        sandbox: its folder.
        journal: what executors write; no container can write there. Its lock is held by the process that starts
            the job, writes its end or removes its containers.
        shared: what the containers write.
        facts: what was known at its start, see `Launch`.
    """

    sandbox: Sandbox
    journal: Journal
    shared: SharedFolder
    facts: dict[str, Any]

    @classmethod
    def find(cls, root: Path) -> _Job | None:
        """The job in a folder; None where none was started."""
        sandbox = Sandbox(root.resolve())
        journal = Journal(sandbox.state_dir)
        facts = journal.read_job()
        if facts is None:
            return None
        instances = [Instance(**instance) for instance in facts["instances"]]
        return cls(sandbox, journal, SharedFolder(sandbox.shared_dir, instances), facts)

    @property
    def id(self) -> str:
        return str(self.facts["job_id"])

    @property
    def outputs(self) -> dict[str, Path]:
        """Output channel to its folder."""
        return {channel: Path(folder) for channel, folder in self.facts.get("outputs", {}).items()}

    @property
    def containers_left(self) -> Path:
        """This file exists while the engine may have containers of the job, which has ended."""
        return self.sandbox.state_dir / "containers-left"

    def final_state(self) -> ExecutionState | None:
        """The end, once it is written."""
        state = self.journal.read_state()
        return state if state is not None and state.phase == "ended" else None


def _has_ended(name: str, containers: Mapping[str, ContainerEnd | None]) -> bool:
    """Return whether a container has ended, or has gone, as the engine reports it."""
    return name not in containers or containers[name] is not None
