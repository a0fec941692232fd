"""Runs the processes of a job, from the first requirement to the last process: the work of the supervisor.

    preparing ──▶ running ──▶ ending ──▶ ended        state.json has all but `ending`
     pip            instances   SIGTERM,    no process is left
     installs       run         then SIGKILL
        └─────────────┴── the first of: a failure, a stop request, SIGTERM, the time limit

Standard library only. One thread and no lock: a finished child (SIGCHLD), a signal and a stop request (a pipe)
each wake the one `select` in `Alarm.wait`, which also returns when the next check is due.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from pai_sdk._core.reasons import (
    REASON_COMMAND_NOT_FOUND,
    REASON_DISK_FULL,
    REASON_MAX_RUNNING_TIME,
    REASON_OUT_OF_MEMORY,
    REASON_REQUIREMENTS_FAILED,
    REASON_SANDBOX_FAILED,
    REASON_STOPPED_FROM_OUTSIDE,
    disk_full_message,
    exit_reason,
    image_unused_message,
    max_running_time_message,
    memory_limit_message,
    missing_module,
    requirements_message,
)
from pai_sdk._host.agent import memory, processes
from pai_sdk._host.agent.distributed import Instance, Rendezvous, free_ports, rendezvous_variables
from pai_sdk._host.agent.instance_logs import InstanceLogs
from pai_sdk._host.agent.job_root import JobRoot
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import DISK_IS_FULL, ExecutionState, InstanceState, Phase
from pai_sdk._host.agent.requirement_lists import pip_problem
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.tunnel.on_demand import OnDemandServer

_CHECK_INTERVAL_S = 1.0
# Between two records of the size of a log that grows: they put the lines of several instances in order.
_MIN_SAMPLE_INTERVAL_S = 0.2
_MIN_SAMPLES = 20_000  # then, the interval grows with the age of the job: the records are read as a whole
# A disk with less free space is full. The reserve that the service frees on a full disk is half of it.
_FULL_DISK_BYTES = 8 << 20
_LOG_END_BYTES = 16 * 1024
_LOG_END_LINES = 20
# The shell gives the usual exit codes (127: not found, 126: not executable) and writes the reason to the log.
_SHELL_SCRIPT = 'cd "$PAI_WORKING_DIR" || exit 126\nexec "$@"\n'


@dataclass
class _Ending:
    """The reason why the job does not succeed."""

    code: str
    message: str
    failed_instance: str | None = None


@dataclass
class _Worker:
    """One instance and its state."""

    instance: Instance
    environments: dict[str, dict[str, str]]
    command: list[str]
    memory_limit_bytes: int | None
    nproc_per_node: int
    waits_for: list[tuple[list[str], int]]  # instances, and how many of them must have started
    status: str = "Pending"
    exit_code: int | None = None
    exceeds_memory_limit: bool = False

    @classmethod
    def of(cls, content: dict[str, Any], job: dict[str, Any]) -> _Worker:
        """Returns an instance from its part of `job.json`; only those of roles differ from the job."""
        return cls(
            Instance(**content["instance"]),
            content["environments"],
            content.get("command") or job.get("command", []),
            content.get("memory_limit_bytes", job["memory_limit_bytes"]),
            content.get("nproc_per_node") or job.get("nproc_per_node", 1),
            content.get("waits_for", []),
        )


def load_interpreter() -> ModuleType:
    """Imports the module for requirements, which is heavier than all others of a supervisor together."""
    from pai_sdk._host.agent import interpreter

    return interpreter


class JobExecution:
    """The execution of the job that a `job.json` describes."""

    def __init__(self, sandbox: Sandbox, journal: Journal, job: dict[str, Any]) -> None:
        self._sandbox = sandbox
        self._journal = journal
        self._job = job
        self._root = JobRoot(sandbox, job)
        self.full_disk_pause_s = 0.5
        self._workers = [_Worker.of(content, job) for content in job["instances"]]
        self._logs = InstanceLogs(sandbox, [worker.instance.name for worker in self._workers])
        # By process id; None is pip, which installs the requirements.
        self._alive: dict[int, _Worker | None] = {}
        self._phase: Phase = "preparing"
        self._started_at = time.time()
        self._ended_at: float | None = None
        self._ending: _Ending | None = None
        self._alarm: Alarm | None = None
        self._tunnels: OnDemandServer | None = None
        self._limit_s: float | None = job["max_running_s"]
        self._deadline = time.monotonic() + self._limit_s if self._limit_s else None
        self._next_check = 0.0
        self._next_sample = 0.0
        self._waits_since = time.monotonic()
        self._kernel_kills = memory.kernel_kills()
        self._pip_offset = 0

    def run(self) -> None:
        """Runs the job until it has finished."""
        # Also after an error no process remains, and the state has the outcome.
        try:
            self._tunnels = OnDemandServer(self._sandbox.state_dir)
            self._alarm = Alarm(self._journal.open_control(), self._tunnels)
            self._run()
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            is_full = isinstance(error, OSError) and error.errno in DISK_IS_FULL
            code = REASON_DISK_FULL if is_full else REASON_SANDBOX_FAILED
            self._end(code, f"The job could not be run on this machine: {error}")
        finally:
            self._finish()

    def save_state(self) -> None:
        """Writes the state of the job."""
        ending = self._ending or _Ending("", "")
        self._journal.write_state(
            ExecutionState(
                self._phase,
                self._started_at,
                self._ended_at,
                self._ending is None if self._phase == "ended" else None,
                tuple(
                    InstanceState(worker.instance.name, worker.instance.role, worker.status, worker.exit_code)
                    for worker in self._workers
                ),
                ending.failed_instance,
                ending.code,
                ending.message,
            )
        )

    # ---- the steps ----

    def _run(self) -> None:
        refusal = self._root.refusal()
        if refusal and self._root.has_mounts:
            message = f"The mounts of the job need a mount namespace, which is refused here: {refusal}"
            self._end(REASON_SANDBOX_FAILED, message)
            return
        if refusal:
            names = "; the names of the instances do not resolve" if self._root.names else ""
            self._logs.write_notice(
                f"/ml is not available on this machine ({refusal}); "
                f"the PAI_* variables point at {self._sandbox.ml}{names}"
            )
        layout = "plain" if refusal else "mounted"
        if self._job["requirements"]:
            self._install_requirements(layout)
        if self._ending is None:
            self._start_workers(layout)
            self._wait_for_children()

    def _install_requirements(self, layout: str) -> None:
        interpreter = load_interpreter()
        requirements = interpreter.Requirements(**self._job["requirements"])
        # Stays open, so that the environment is not removed while the job uses it.
        lock = requirements.open_lock()
        first = self._workers[0].instance.name
        self._pip_offset = self._logs.size_bytes(first)

        def in_child() -> int:
            if layout == "mounted":
                self._root.enter()
            os.environ.clear()
            os.environ.update(self._workers[0].environments[layout])
            code: int = interpreter.install(requirements, lock=lock, working_dir=os.environ["PAI_WORKING_DIR"])
            return code

        with self._logs.open(first) as log:
            installer = processes.spawn_call(in_child, log=log.fileno())
        self._alive[installer] = None
        self._wait_for_children()

    def _start_workers(self, layout: str) -> None:
        rendezvous = self._rendezvous()
        self._phase = "running"
        # An instance runs as soon as it is started, so all that wait for others start here, in their order.
        while ready := [worker for worker in self._workers if self._can_start(worker)]:
            for worker in ready:
                self._start_worker(worker, rendezvous, layout)
        self.save_state()

    def _can_start(self, worker: _Worker) -> bool:
        started = {other.instance.name for other in self._workers if other.status != "Pending"}
        return worker.status == "Pending" and all(
            len(started.intersection(names)) >= count for names, count in worker.waits_for
        )

    def _start_worker(self, worker: _Worker, rendezvous: Rendezvous, layout: str) -> None:
        meeting = replace(rendezvous, nproc_per_node=worker.nproc_per_node)
        shared = rendezvous_variables(worker.instance, meeting, job_type=self._job["job_type"])
        variables = {**shared, **worker.environments[layout]}
        with self._logs.open(worker.instance.name) as log:
            child = processes.spawn(
                ["/bin/sh", "-c", _SHELL_SCRIPT, "launch", *worker.command],
                variables,
                log=log.fileno(),
                before_exec=self._root.enter if layout == "mounted" else lambda: None,
            )
        worker.status = "Running"
        self._alive[child] = worker

    def _rendezvous(self) -> Rendezvous:
        # Given if the instances of the job are on several hosts.
        if rendezvous := self._job.get("rendezvous"):
            return Rendezvous.parse(rendezvous)
        roles = tuple(self._job.get("roles", ()))
        return Rendezvous.on_loopback(free_ports(1 + len(self._workers)), roles=roles)

    def _finish(self) -> None:
        # Instances are left without a reason to end if the job does not wait for them.
        if self._ending is not None or self._alive:
            self._terminate_all()
        for group in self._live_groups():
            processes.signal_group(group, signal.SIGKILL)
        if self._tunnels is not None:
            self._tunnels.close()
        for child, exit_code in processes.kill_descendants():
            self._record(child, exit_code)
        self._logs.sample(time.time())
        for worker in self._workers:
            if worker.status == "Pending":
                worker.status = "Terminated"
        self._phase = "ended"
        self._ended_at = time.time()
        self._save_final_state()

    def _save_final_state(self) -> None:
        """Writes the last state; on a full disk, waits for free space, or until the job's folder is removed."""
        while True:
            try:
                self.save_state()
            except OSError as error:
                if error.errno not in DISK_IS_FULL:
                    raise
                time.sleep(self.full_disk_pause_s)
            else:
                return

    def _terminate_all(self) -> None:
        """Sends SIGTERM and waits until all have exited, for the grace period at most."""
        for group in self._live_groups():
            processes.signal_group(group, signal.SIGTERM)
        deadline = time.monotonic() + self._job["grace_s"]
        while self._live_groups() and (remaining_s := deadline - time.monotonic()) > 0:
            # Groups that the instances created send no SIGCHLD to this process, so it polls.
            self._wait(min(remaining_s, 0.05))
            self._reap()

    def _live_groups(self) -> list[int]:
        """Returns the process groups of the job."""
        # Programs such as `timeout` and `setsid` create groups of their own. The groups of the instances come
        # first, because a shell whose command is killed starts the next command. Nothing waits for tunnels.
        tunnels = self._tunnels.process if self._tunnels is not None else 0
        groups = dict.fromkeys([*self._alive, *processes.groups_below(os.getpid(), without=tunnels)])
        return [group for group in groups if group != os.getpgrp()]

    # ---- while children run ----

    def _wait_for_children(self) -> None:
        """Returns when all children have exited, or there is a reason to end the job."""
        while True:
            self._reap()
            self._check_end_conditions()
            if self._ending is not None or not self._alive or self._is_complete:
                return
            now = time.monotonic()
            if now >= self._next_check:
                self._next_check = now + _CHECK_INTERVAL_S
                self._enforce_memory_limit()
            if now >= self._next_sample:
                has_grown = self._logs.sample(time.time())
                interval_s = max(_MIN_SAMPLE_INTERVAL_S, (now - self._waits_since) / _MIN_SAMPLES)
                self._next_sample = now + (min(interval_s, _CHECK_INTERVAL_S) if has_grown else _CHECK_INTERVAL_S)
            self._wait(min(self._next_check, self._next_sample, self._deadline or self._next_check) - now)

    @property
    def _is_complete(self) -> bool:
        """Whether all instances have ended for which the job waits."""
        return all(w.status not in ("Pending", "Running") for w in self._workers if w.instance.is_awaited)

    def _reap(self) -> None:
        for child, exit_code in processes.reap():
            if self._tunnels is not None:
                self._tunnels.record_exit(child)
            self._record(child, exit_code)

    def _record(self, child: int, exit_code: int) -> None:
        if child not in self._alive:
            # An orphan that this sub-reaper has adopted.
            return
        worker = self._alive.pop(child)
        if worker is None:
            if exit_code and self._ending is None:
                problem = pip_problem(self._logs.text_from(self._workers[0].instance.name, self._pip_offset))
                first = self._workers[0]
                first.status, first.exit_code = "Failed", exit_code
                self._end(REASON_REQUIREMENTS_FAILED, requirements_message(exit_code, problem), first)
            return
        worker.exit_code = exit_code
        if self._ending is not None:
            # A consequence of the recorded end, whatever the exit code.
            worker.status = "Terminated"
        elif exit_code == 0:
            worker.status = "Succeed"
        elif self._is_complete:
            worker.status = "Terminated"
        else:
            worker.status = "Failed"
            if worker.instance.can_fail_job:
                self._end(*self._failure_reason(worker, exit_code), worker)
        # A full disk is no reason to end the other instances; the last state has reserved space.
        with suppress(OSError):
            self.save_state()

    def _failure_reason(self, worker: _Worker, exit_code: int) -> tuple[str, str]:
        """Returns reason code and sentence for an instance that has failed."""
        name = worker.instance.name
        if worker.exceeds_memory_limit and worker.memory_limit_bytes:
            return REASON_OUT_OF_MEMORY, memory_limit_message(name, exit_code, worker.memory_limit_bytes)
        disk = os.statvfs(self._sandbox.root)
        if disk.f_bavail * disk.f_frsize < _FULL_DISK_BYTES:
            return REASON_DISK_FULL, disk_full_message(name, exit_code)
        code, message = exit_reason(name, exit_code, kernel_killed=memory.has_killed_since(self._kernel_kills))
        # Missing in jobs of a service of an earlier release.
        image = self._job.get("image")
        if image and (code == REASON_COMMAND_NOT_FOUND or self._missing_module(worker)):
            message = f"{message} {image_unused_message(image)}"
        return code, message

    def _missing_module(self, worker: _Worker) -> str:
        with suppress(OSError):
            text = self._logs.text_from(worker.instance.name, 0, max_bytes=_LOG_END_BYTES)
            return missing_module(text.splitlines()[-_LOG_END_LINES:])
        return ""

    def _enforce_memory_limit(self) -> None:
        for child, worker in self._alive.items():
            if worker is None or not worker.memory_limit_bytes:
                continue
            tree = [child, *processes.descendants(child)]
            if memory.exceeds(worker.memory_limit_bytes, tree):
                worker.exceeds_memory_limit = True
                processes.signal_group(child, signal.SIGKILL)
        # Programs that were started through tunnels have the limit of an instance, all of them together.
        limit = max((worker.memory_limit_bytes or 0 for worker in self._workers), default=0)
        if limit and self._tunnels is not None and memory.exceeds(limit, self._tunnels.processes):
            self._tunnels.kill()

    def _check_end_conditions(self) -> None:
        # The order decides if several hold: a stop request has the most specific reason.
        if request := self._journal.stop_request:
            self._end(*request.reported)
        elif self._alarm and self._alarm.got_signal:
            self._end(REASON_STOPPED_FROM_OUTSIDE, "The job's supervisor received SIGTERM.")
        elif self._limit_s and self._deadline and self._alive and time.monotonic() >= self._deadline:
            self._end(REASON_MAX_RUNNING_TIME, max_running_time_message(self._limit_s))

    def _end(self, code: str, message: str, worker: _Worker | None = None) -> None:
        """Records why the job ends; the first reason stays."""
        if self._ending is None:
            self._ending = _Ending(code, message, worker.instance.name if worker else None)

    def _wait(self, timeout_s: float) -> None:
        if self._alarm is not None:
            self._alarm.wait(timeout_s)


class Alarm:
    """Handles the signals of this process; `wait` returns as soon as something has happened."""

    def __init__(self, control: int, tunnels: OnDemandServer) -> None:
        self._tunnels = tunnels
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        # A signal handler writes to the pipe, and must never block; a full pipe wakes `select` as well as one
        # byte.
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        # Without a handler the default of SIGCHLD, to ignore it, writes no wake-up byte.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._wakeups = [reader, control]
        # SIGTERM or SIGINT.
        self.got_signal = False

    def wait(self, timeout_s: float) -> None:
        """Sleeps until something happens, at most `timeout_s` seconds."""
        connections = self._tunnels.descriptors
        for ready in select.select(self._wakeups + connections, [], [], max(0.0, timeout_s))[0]:
            if ready in connections:
                self._tunnels.start()
            else:
                os.read(ready, 4096)

    def _on_signal(self, *_: object) -> None:
        self.got_signal = True
