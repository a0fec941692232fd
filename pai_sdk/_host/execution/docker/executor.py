"""Jobs as containers of a Docker engine on this machine: one per instance, and no other process on the host.

    start: lock ─ job.json ─ containers ─ `go` ─ unlock
    state: no job.json ▶ absent; an end in state.json ▶ ended; engine away ▶ unchanged; all exits known ▶ _finalize
    _finalize: lock ─ read the exits ─ state.json with the end ─ unlock; then _cleanup
    _cleanup: lock ─ remove the containers ─ unlock

The lock is that of the `Journal`. Any process may start, poll and end a job; the lock selects one of them.
Processes do not wait for it: one that does not get it leaves the work to the owner. Only `_cleanup` waits, because
its callers rely on the removal of the containers.

Threads share `ContainerPolls`, `_unwritten` and `_logs` without a lock: single operations on them are atomic, and
two threads that do the same work do no harm.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pai_sdk._core.files import locked
from pai_sdk._core.reasons import REASON_ENGINE_AWAY, REASON_MAX_RUNNING_TIME, max_running_time_message
from pai_sdk._data.logs.reader import InstanceLog
from pai_sdk._host.agent.distributed import Instance
from pai_sdk._host.agent.instance_logs import InstanceLogs
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import DISK_IS_FULL
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import ExecutionState, Executor, ExecutorCapabilities, ExecutorSetup, LaunchSpec
from pai_sdk._host.execution.docker.containers import (
    JobContainers,
    container_exit,
    is_being_removed,
    tolerate_missing_engine,
)
from pai_sdk._host.execution.docker.engine import Absence, Engine, find_engine
from pai_sdk._host.execution.docker.final_state import ContainerExit, ending
from pai_sdk._host.execution.docker.launch import Launch
from pai_sdk._host.execution.docker.options import LocalOptions
from pai_sdk._host.execution.docker.requirements_cache import RequirementsCache
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk._host.execution.docker.tunnel import dialing
from pai_sdk._host.execution.job_folder import JobFolder
from pai_sdk.errors import EngineNotFoundError, TunnelRefusedError

logger = logging.getLogger(__name__)

_ENGINE_INTERVAL_S = 1.0
_CLEANUP_TIMEOUT_S = 60.0  # how long others wait for the process that does it
_POLL_INTERVAL_S = 0.05


class DockerExecutor(Executor):
    """Runs the instances of a job as containers that need no other process once they are released.

    `instance.sh` is their first process: it writes the log, enforces the time limit and ends the instances
    together. The first call of `state` after the end, in any process, records how they ended.
    """

    capabilities = ExecutorCapabilities(
        uses_images=True, hosts="elsewhere", sets_shared_memory=True, roles=True, mounts=True, tunnels=True
    )

    def __init__(
        self,
        engine: Callable[[], Engine] = find_engine,
        *,
        # Both folders are shared by all jobs: pip's downloads, and installed requirements.
        pip_cache: Path | None = None,
        requirements_dir: Path | None = None,
        is_closing: Callable[[], bool] = lambda: False,
        # None: the tags of each request are its options.
        options: LocalOptions | None = None,
        # For a caller that polls several times a second: the instances' own records have whole seconds, and some
        # images cannot write them.
        records_log_sizes: bool = False,
    ) -> None:
        self._find = engine
        self._pip_cache = pip_cache
        self._is_closing = is_closing
        self._options = options
        self._records_log_sizes = records_log_sizes
        self.grace_margin_s = 5.0
        self._logs: dict[Path, InstanceLogs] = {}  # of jobs that run
        self._engine: Engine | None = None
        self._containers = JobContainers(lambda: self.engine)
        self._requirements = (
            None if requirements_dir is None else RequirementsCache(requirements_dir, self._containers.in_use)
        )
        self._polls = ContainerPolls(self._containers)
        # The jobs whose end could not be written, so that this is logged once; lost by a restart without harm.
        self._unwritten: set[Path] = set()

    @property
    def engine(self) -> Engine:
        """Returns the engine, which is searched for on first use."""
        if self._engine is None:
            self._engine = self._find()
        return self._engine

    @classmethod
    def open(cls, setup: ExecutorSetup) -> DockerExecutor:
        """Opens the executor for a service: its clients choose neither the containers' user nor their network."""
        options = LocalOptions()
        executor = cls(
            pip_cache=setup.cache_dir / "pip", is_closing=setup.is_closing, options=options, records_log_sizes=True
        )
        _ = executor.engine
        return executor

    def close(self) -> None:
        """Closes the connections to the engine; jobs continue."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    # ---- the beginning ----

    def start(self, spec: LaunchSpec, *, progress: bool = False) -> None:
        """Pulls the image if needed, then starts all instances; does nothing for a job that was started before."""
        journal = Journal(spec.sandbox.state_dir)
        with locked(journal.lock, waits=False) as has_lock:
            # Without the lock, another process is starting, finalizing or cleaning up the job.
            if not has_lock or journal.read_job() is not None:
                return
            if self._pip_cache:
                self._pip_cache.mkdir(parents=True, exist_ok=True)
            try:
                launch = Launch(self.engine, spec, self._options, self._pip_cache, self._requirements)
                launch.run(progress=progress, is_closing=self._is_closing)
            except BaseException:
                # If the engine is away now, the next `state` of the job removes the containers.
                with tolerate_missing_engine():
                    if journal.read_job() is not None:
                        self._containers.remove(spec.job_id)
                        journal.forget_job()
                raise

    def withdraw(self, root: Path) -> None:
        """Cancels an interrupted start; a job whose instances are released stays."""
        job = _Job.find(root)
        if job is None or job.shared.is_launched:
            return
        with locked(job.journal.lock, waits=False) as has_lock:
            # Checked again under the lock: the starter may have written `go` after the first check.
            if has_lock and not job.shared.is_launched:
                self._containers.remove(job.id)
                job.journal.forget_job()

    # ---- the course ----

    def state(self, root: Path) -> ExecutionState:
        """Returns the state; the first call that reads the end also writes it and removes the containers."""
        job = _Job.find(root)
        if job is None:
            return ExecutionState("absent")
        # Read in this order: the final state; the exit codes that the instances have written; the engine, for
        # instances without one. Any process may call this at any time: every change is made under the lock, or is
        # a file whose first writer wins.
        state = self._state_of(job)
        if self._records_log_sizes and state.phase != "absent":
            names = [instance.name for instance in state.instances]
            self._logs.setdefault(root, InstanceLogs(job.sandbox, names)).sample(time.time())
            if state.phase == "ended":
                self._logs.pop(root, None)
        return state

    def _state_of(self, job: _Job) -> ExecutionState:
        if (final := job.final_state()) is not None:
            self._cleanup(job)
            return final
        shared = job.shared
        silent = [instance.name for instance in shared.instances if shared.read_exit(instance.name) is None]
        # `go` is read before the engine is asked: without `go`, a missing container may not have been created yet.
        is_launched = shared.is_launched
        containers = self._polls.exits(job, should_cache=is_launched) if silent else {}
        # The engine is away: it may respond later, and the job may continue.
        if containers is None:
            return replace(
                shared.state(), reason_code=REASON_ENGINE_AWAY, reason_message=self._polls.absence.sentence
            )
        if is_launched and all(_has_ended(name, containers) for name in silent):
            return self._finalize(job, containers)
        for name in (instance.name for instance in shared.instances if instance.can_fail_job):
            if name not in silent:
                continue
            # Its container has ended without an exit file: killed from outside, or with its engine. The executor
            # writes the failure, which ends the others. Three checks come before: its exit code is not 0; the job
            # was not asked to stop, since one that is killed for ignoring a stop has not failed; and it still has
            # no exit file, since it may have written one after the engine was asked.
            exit_report = containers.get(name)
            code = exit_report.code if exit_report else 137
            has_failed = is_launched and _has_ended(name, containers) and code and shared.stop_request is None
            if has_failed and shared.read_exit(name) is None:
                shared.write_failure(name, code)
        self._enforce_limits(job)
        # No `go` file, and no process that is starting the job: its start was cut off. The starter writes `go`
        # before it releases the lock, so `go` is checked again after the lock was found free.
        if not is_launched and not job.journal.is_locked() and not shared.is_launched:
            return self._finalize(job, containers)
        return shared.state()

    def refresh_many(self, roots: Iterable[Path]) -> None:
        """Asks the engine once for the containers of many jobs; `state` then asks only about those not running."""
        self._polls.refresh(roots)

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Asks all instances to exit; returns at once. The reason of the first call is kept."""
        shared = SharedFolder(Sandbox(root.resolve()).shared_dir)
        if shared.path.exists():
            shared.request_stop(reason_code, reason_message)

    def connect_tunnel(self, root: Path, instance: str) -> socket.socket:
        """Connects to a running instance, by the process of this machine that enters the job's containers."""
        job = _Job.find(root)
        if job is None or job.final_state() is not None or not job.shared.is_launched:
            raise TunnelRefusedError("JobNotRunning", f"job {root.name} does not run")
        if instance not in (each.name for each in job.shared.instances):
            raise TunnelRefusedError("NotFound", f"job {job.id} has no instance {instance!r}")
        if job.shared.read_exit(instance) is not None:
            raise TunnelRefusedError("InstanceNotRunning", f"{instance} has ended")
        self.engine.check_responds()
        return dialing.connect(job.sandbox, self.engine.url, instance)

    def _enforce_limits(self, job: _Job) -> None:
        """Kills instances past their limits: a first process can hang, and a job can kill its watchdog."""
        limit_s, started_at = job.properties["max_running_s"], job.shared.started_at
        patience_s = job.properties["grace_s"] + self.grace_margin_s
        if limit_s is not None and started_at is not None and time.time() - started_at - limit_s > patience_s:
            job.shared.request_stop(REASON_MAX_RUNNING_TIME, max_running_time_message(limit_s))
        requested_s_ago = job.shared.end_requested_s_ago
        if requested_s_ago is not None and requested_s_ago > patience_s:
            with tolerate_missing_engine():
                self._containers.kill(job.id, job.shared)

    # ---- the end ----

    def _finalize(self, job: _Job, containers: Mapping[str, ContainerExit | None]) -> ExecutionState:
        """Writes how the job ended, and removes its containers and network."""
        with locked(job.journal.lock, waits=False) as has_lock:
            # Another process finalizes the job; until then it counts as running.
            if not has_lock:
                return job.shared.state()
            # Withdrawn by another process since the check without the lock.
            if job.journal.read_job() is None:
                return ExecutionState("absent")
            state = job.final_state()
            if state is None:
                exits = self._polls.final_exits(job, containers)
                state = ending(job.properties, job.shared, exits, partial(self._polls.engine_has_restarted, job))
                for channel in job.outputs:
                    JobFolder(job.sandbox, job.outputs).mend_links(channel)
                try:
                    # Before the state: if this process is killed in between, a later `state` still removes
                    # the containers.
                    job.cleanup_marker.touch()
                    job.journal.write_state(state)
                except OSError as error:
                    if error.errno not in DISK_IS_FULL:
                        raise
                    # Keep the containers, which still have the exit codes, until there is free space.
                    if job.sandbox.root not in self._unwritten:
                        self._unwritten.add(job.sandbox.root)
                        logger.warning("the end of job %s cannot be saved: %s", job.id, error)
                    return state
                job.shared.forget_secrets()
                self._polls.forget(job.sandbox.root)
        self._cleanup(job)
        return state

    def _cleanup(self, job: _Job) -> None:
        """Removes the containers of a job that has ended; if the engine is away, a later call does it."""
        deadline = time.monotonic() + _CLEANUP_TIMEOUT_S
        # Other processes wait for the one that removes them: a caller that reads the end can rely on the removal,
        # and a process that exits right after it, with all its threads, leaves no partial removal.
        while job.cleanup_marker.exists():
            with locked(job.journal.lock, waits=False) as has_lock, self._polls.engine_call() as can_call:
                if has_lock and can_call:
                    self._remove_containers(job)
                    job.cleanup_marker.unlink(missing_ok=True)
            if has_lock or time.monotonic() >= deadline:
                return
            time.sleep(_POLL_INTERVAL_S)

    def _remove_containers(self, job: _Job) -> None:
        owner = job.properties.get("give_to")
        if owner and any(job.shared.read_exit(instance.name) is None for instance in job.shared.instances):
            # An instance was killed before it could restore the owner of its files.
            with tolerate_missing_engine():
                self._containers.restore_owner(job.id, owner)
        self._containers.remove(job.id)

    def has_let_go(self, root: Path) -> bool:
        """Returns whether the containers of the job are removed; removes them if the engine responds."""
        job = _Job.find(root)
        if job is None:
            return True
        self._cleanup(job)
        self._polls.forget(job.sandbox.root)
        return not job.cleanup_marker.exists() and not job.journal.is_locked()

    def files(self, root: Path) -> JobFolder:
        """Returns the files of a job: in its folder, or in the local folder that is an output's target."""
        job = _Job.find(root)
        kind = JobFolder if self._records_log_sizes else _TimedJobFolder
        return kind(Sandbox(root), job.outputs if job is not None else {})

    def remove(self, root: Path) -> None:
        """Removes a job's containers, network and folder; a running job is killed."""
        if (job := _Job.find(root)) is not None:
            self._containers.remove(job.id)
        Sandbox(root.resolve()).remove()

    def sweep(self) -> list[str]:
        """Removes the remains of jobs whose folder is gone, and old requirements; returns the job ids."""
        if self._requirements:
            self._requirements.prune()
        return self._containers.remove_orphans(lambda folder: not folder.exists())


class ContainerPolls:
    """The exits of containers, as the engine reports them: requested at a bounded rate, and cached."""

    def __init__(self, containers: JobContainers) -> None:
        self._containers = containers
        self.absence = Absence()
        # The last responses of the engine, lost by a restart without harm.
        self._cached: dict[Path, tuple[float, dict[str, ContainerExit | None]]] = {}

    def refresh(self, roots: Iterable[Path]) -> None:
        """Asks the engine once for the containers of jobs; `exits` then asks only about those not running."""
        sent_at = time.monotonic()
        stale = [root for root in roots if sent_at - self._cached.get(root, (0.0,))[0] >= _ENGINE_INTERVAL_S]
        jobs = [job for root in stale if (job := _Job.find(root)) is not None and job.final_state() is None]
        # A single job costs one request anyway, which `state` makes.
        if len(jobs) < 2 or not self.absence.should_call:
            return
        with tolerate_missing_engine():
            running = self._containers.running()
            for job in jobs:
                names = [instance.name for instance in job.shared.instances]
                # Only if all of them run: an exit needs details, which `state` requests.
                if job.shared.is_launched and running.issuperset(names):
                    self._cached[job.sandbox.root] = (time.monotonic(), dict.fromkeys(names))
            self.absence.record_response()
            return
        self.absence.record_failure(sent_at=sent_at)

    def exits(self, job: _Job, *, should_cache: bool) -> dict[str, ContainerExit | None] | None:
        """Returns the exit of each container, None for a running one; or None if the engine does not respond."""
        cached = self._cached.get(job.sandbox.root)
        sent_at = time.monotonic()
        # The engine is asked at most once per interval, however often `state` is called.
        if cached and sent_at - cached[0] < _ENGINE_INTERVAL_S:
            return cached[1]
        if not self.absence.should_call:
            return None
        with tolerate_missing_engine():
            containers = [each for each in self._containers.of(job.id) if not is_being_removed(each)]
            exits = {container.name: container_exit(container) for container in containers}
            self.absence.record_response()
            # Before `go`, containers may still be created, so such a result must not be cached.
            if should_cache:
                self._cached[job.sandbox.root] = (time.monotonic(), exits)
            return exits
        self.absence.record_failure(sent_at=sent_at)
        return None

    def final_exits(
        self, job: _Job, cached: Mapping[str, ContainerExit | None]
    ) -> dict[str, ContainerExit | None]:
        """Returns the exits of the containers from the engine; cached ones if it does not respond."""
        exits = dict(cached)
        with self.engine_call() as can_call:
            for container in self._containers.of(job.id) if can_call else ():
                if is_being_removed(container):
                    continue
                with tolerate_missing_engine():
                    if job.shared.read_exit(container.name) is not None and container.status == "running":
                        # It has written its exit code and is exiting.
                        container.wait(timeout=30)
                        container.reload()
                    has_log = job.shared.has_opened_log(container.name)
                    exit_report = container_exit(container, with_output=not has_log)
                    exits[container.name] = exit_report
                    is_unwritten = job.shared.read_exit(container.name) is None
                    # OOMKilled stays set after a kill that the container survived; an explicit kill is the
                    # cause then.
                    if (
                        exit_report
                        and exit_report.out_of_memory
                        and is_unwritten
                        and self._containers.was_killed(container)
                    ):
                        exits[container.name] = replace(exit_report, out_of_memory=False)
        return exits

    def engine_has_restarted(self, job: _Job, default: bool | None) -> bool | None:
        """Returns whether the engine ended or restarted while the job ran; None if unknown."""
        with self.engine_call() as can_call:
            if can_call:
                return self._containers.engine_has_restarted(job.id, since=job.properties.get("launched_at", 0.0))
        return default

    @contextmanager
    def engine_call(self) -> Iterator[bool]:
        """Leaves the block when the engine does not respond; yields False if it did not a moment ago."""
        # So one call of `state` waits only once for an engine that hangs.
        if not self.absence.should_call:
            yield False
            return
        sent_at = time.monotonic()
        with tolerate_missing_engine():
            try:
                yield True
            except EngineNotFoundError:
                self.absence.record_failure(sent_at=sent_at)
                raise

    def forget(self, root: Path) -> None:
        """Drops the cached exits of a job."""
        self._cached.pop(root, None)


class _TimedJobFolder(JobFolder):
    """The files of a job whose instances record the sizes of their logs themselves."""

    def log(self, instance: str) -> InstanceLog:
        """Returns the log of an instance, with the sizes that the instance records."""
        times = SharedFolder(self.sandbox.shared_dir).times_file(instance)
        return InstanceLog(self.sandbox.log_file(instance), times=times)


@dataclass(frozen=True)
class _Job:
    """The files of a job that was started: its complete state."""

    sandbox: Sandbox
    journal: Journal  # Executors only; its lock: who starts the job, writes its end or removes containers.
    shared: SharedFolder  # written by the containers
    properties: dict[str, Any]  # recorded at the start, see `Launch`

    @classmethod
    def find(cls, root: Path) -> _Job | None:
        """Returns the job in a folder; None if none was started."""
        sandbox = Sandbox(root.resolve())
        journal = Journal(sandbox.state_dir)
        properties = journal.read_job()
        if properties is None:
            return None
        instances = [Instance(**instance) for instance in properties["instances"]]
        return cls(sandbox, journal, SharedFolder(sandbox.shared_dir, instances), properties)

    @property
    def id(self) -> str:
        return str(self.properties["job_id"])

    @property
    def outputs(self) -> dict[str, Path]:
        """Returns the folder of each output channel."""
        return {channel: Path(folder) for channel, folder in self.properties.get("outputs", {}).items()}

    @property
    def cleanup_marker(self) -> Path:
        """Returns the file that exists while the engine may have containers of the ended job."""
        return self.sandbox.state_dir / "containers-left"

    def final_state(self) -> ExecutionState | None:
        """Returns the final state once it is written."""
        state = self.journal.read_state()
        return state if state is not None and state.phase == "ended" else None


def _has_ended(name: str, containers: Mapping[str, ContainerExit | None]) -> bool:
    """Returns whether a container has exited or is gone, as the engine reports it."""
    return name not in containers or containers[name] is not None
