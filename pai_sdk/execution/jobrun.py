"""One run of a job's processes, from the first requirement to the last process: the supervisor's work.

Standard library only. One thread; everything that happens wakes one `select`.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pai_sdk.execution import mlroot, processes
from pai_sdk.execution.distributed import Instance, Rendezvous, rendezvous_variables
from pai_sdk.execution.journal import Journal
from pai_sdk.execution.launcher import launch_command
from pai_sdk.execution.reasons import (
    REASON_MAX_RUNNING_TIME,
    REASON_REQUIREMENTS_FAILED,
    REASON_SANDBOX_FAILED,
    REASON_STOPPED_BY_USER,
    exit_reason,
    max_running_time_message,
    requirements_message,
)
from pai_sdk.execution.sandbox import Sandbox

__all__ = ["JobRun"]

_SAMPLE_EVERY_S = 1.0
_PAUSE_ON_FULL_DISK_S = 0.5


@dataclass
class _Ending:
    """Why the job does not succeed."""

    code: str
    message: str
    failed_instance: str | None = None


@dataclass
class _Worker:
    """One instance and what has become of it."""

    instance: Instance
    environments: dict[str, dict[str, str]]
    status: str = "Pending"
    exit_code: int | None = None
    sampled_bytes: int = 0


class JobRun:
    """The run of the job that a `job.json` describes."""

    def __init__(self, sandbox: Sandbox, journal: Journal, job: dict[str, Any]) -> None:
        self._sandbox = sandbox
        self._journal = journal
        self._job = job
        self._workers = [_Worker(Instance(**i["instance"]), i["environments"]) for i in job["instances"]]
        self._alive: dict[int, _Worker | None] = {}  # None: the one who installs the requirements
        self._groups: list[int] = []
        self._phase = "preparing"
        self._started_at = time.time()
        self._ended_at: float | None = None
        self._ending: _Ending | None = None
        self._asked_by_signal = False
        self._limit_s: float | None = job["max_running_s"]
        self._deadline = time.monotonic() + self._limit_s if self._limit_s else None
        self._next_sample = 0.0
        self._wakeups: list[int] = []

    def run(self) -> None:
        """Run the job to its end; whatever happens, no process is left and the state says how it ended."""
        try:
            self._listen()
            self._run()
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._end(REASON_SANDBOX_FAILED, f"The job could not be run on this machine: {error}")
        finally:
            self._finish()

    def save_state(self) -> None:
        """Write down how the job stands."""
        ending = self._ending or _Ending("", "")
        is_over = self._phase == "ended"
        self._journal.write_state(
            {
                "phase": self._phase,
                "started_at": self._started_at,
                "ended_at": self._ended_at,
                "succeeded": self._ending is None if is_over else None,
                "instances": [
                    {
                        "name": w.instance.name,
                        "role": w.instance.role,
                        "status": w.status,
                        "exit_code": w.exit_code,
                    }
                    for w in self._workers
                ],
                "failed_instance": ending.failed_instance,
                "reason_code": ending.code,
                "reason_message": ending.message,
            }
        )

    # ---- the parts of a run ----

    def _run(self) -> None:
        refusal = self._mount_refusal()
        if refusal:
            self._note_in_logs(
                f"/ml cannot be had on this machine ({refusal}); the PAI_* variables point at {self._sandbox.ml}"
            )
        layout = "plain" if refusal else "mounted"
        if self._job["requirements"]:
            self._install_requirements(layout)
        if self._ending is None:
            self._start_workers(layout)
            self._go_on_while(lambda: bool(self._alive))

    def _mount_refusal(self) -> str:
        if self._job["hidden_by_ml"]:
            return f"{self._job['hidden_by_ml']} lies in this machine's own /ml, and would be hidden"
        try:
            self._mount_point.mkdir(exist_ok=True)
        except OSError as error:
            return str(error)
        return mlroot.refusal(self._sandbox.ml, self._mount_point, read_only=("input",))

    def _install_requirements(self, layout: str) -> None:
        from pai_sdk.execution.interpreter import Requirements, install  # heavier than all the rest together

        requirements = Requirements(**self._job["requirements"])

        def in_child() -> int:
            if layout == "mounted":
                self._enter_ml()
            os.environ.clear()
            os.environ.update(self._workers[0].environments[layout])
            return install(requirements, working_dir=os.environ["PAI_WORKING_DIR"])

        with self._open_log(self._workers[0]) as log:
            installer = processes.spawn_call(in_child, log=log.fileno())
        self._alive[installer] = None
        self._groups.append(installer)
        self._go_on_while(lambda: bool(self._alive))

    def _start_workers(self, layout: str) -> None:
        meeting = self._rendezvous()
        self._phase = "running"
        for worker in self._workers:
            variables = dict(worker.environments[layout])
            if meeting is not None:
                shared = rendezvous_variables(worker.instance, meeting, job_type=self._job["job_type"])
                variables = {**shared, **variables}
            with self._open_log(worker) as log:
                child = processes.spawn(
                    launch_command(self._job["command"]),
                    variables,
                    log=log.fileno(),
                    before_exec=self._enter_ml if layout == "mounted" else lambda: None,
                )
            worker.status = "Running"
            self._alive[child] = worker
            self._groups.append(child)
        self.save_state()

    def _enter_ml(self) -> None:
        mlroot.enter(self._sandbox.ml, self._mount_point, read_only=("input",))

    def _rendezvous(self) -> Rendezvous | None:
        if len(self._workers) == 1:
            return None
        return Rendezvous.on_loopback(
            _free_ports(1 + len(self._workers)), nproc_per_node=self._job["nproc_per_node"]
        )

    def _finish(self) -> None:
        if self._ending is not None:
            self._ask_all_to_end()
        for group in self._living_groups():
            processes.signal_group(group, signal.SIGKILL)
        for child, exit_code in processes.kill_descendants():
            self._record(child, exit_code)
        self._sample(time.time())
        for worker in self._workers:
            if worker.status == "Pending":
                worker.status = "Terminated"
        self._phase = "ended"
        self._ended_at = time.time()
        self._save_the_end()

    def _save_the_end(self) -> None:
        """A full disk must not hide how the job ended: wait for room, or until its folder is gone."""
        while True:
            try:
                self.save_state()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                time.sleep(_PAUSE_ON_FULL_DISK_S)
            else:
                return

    def _ask_all_to_end(self) -> None:
        """SIGTERM, then as much time as the job is granted to end by itself."""
        for group in self._living_groups():
            processes.signal_group(group, signal.SIGTERM)
        deadline = time.monotonic() + self._job["grace_s"]
        while self._living_groups() and (left_s := deadline - time.monotonic()) > 0:
            self._sleep(min(left_s, 0.05))
            self._reap()

    def _living_groups(self) -> set[int]:
        """Groups of ours with a process in them; the number of one that is empty may be anybody's by now."""
        return {*self._alive, *processes.groups_below(os.getpid())} & set(self._groups)

    # ---- what happens meanwhile ----

    def _go_on_while(self, condition: Callable[[], bool]) -> None:
        """Watch until the condition is no more, or there is a reason to end the job."""
        while True:
            self._reap()
            self._look_for_an_end()
            if self._ending is not None or not condition():
                return
            now = time.monotonic()
            if now >= self._next_sample:
                self._next_sample = now + _SAMPLE_EVERY_S
                self._sample(time.time())
            self._sleep(min(self._next_sample, self._deadline or self._next_sample) - now)

    def _reap(self) -> None:
        for child, exit_code in processes.reap():
            self._record(child, exit_code)

    def _record(self, child: int, exit_code: int) -> None:
        if child not in self._alive:
            return  # an orphan that we have adopted
        worker = self._alive.pop(child)
        if worker is None:
            if exit_code:
                self._end(REASON_REQUIREMENTS_FAILED, requirements_message(exit_code), self._workers[0])
            return
        worker.exit_code = exit_code
        if self._ending is not None:
            worker.status = "Terminated"
        elif exit_code == 0:
            worker.status = "Succeed"
        else:
            worker.status = "Failed"
            self._end(*exit_reason(worker.instance.name, exit_code), worker)
        with suppress(OSError):  # a disk that is full is no reason to end the other instances
            self.save_state()

    def _look_for_an_end(self) -> None:
        wish = self._journal.stop_wish()
        if wish:
            self._end(*wish)
        elif self._asked_by_signal:
            self._end(REASON_STOPPED_BY_USER, "The job's supervisor was told to end (SIGTERM).")
        elif self._limit_s and self._deadline and self._alive and time.monotonic() >= self._deadline:
            self._end(REASON_MAX_RUNNING_TIME, max_running_time_message(self._limit_s))

    def _end(self, code: str, message: str, worker: _Worker | None = None) -> None:
        """The first reason to end a job is the one that is told."""
        if self._ending is None:
            self._ending = _Ending(code, message, worker.instance.name if worker else None)

    # ---- waking up ----

    def _listen(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._wakeups = [reader, self._journal.open_control()]

    def _on_signal(self, *_: object) -> None:
        self._asked_by_signal = True

    def _sleep(self, longest_s: float) -> None:
        for ready in select.select(self._wakeups, [], [], max(0.0, longest_s))[0]:
            os.read(ready, 4096)

    # ---- logs ----

    @property
    def _mount_point(self) -> Path:
        return self._sandbox.state_dir / "mount"

    def _open_log(self, worker: _Worker) -> Any:  # a binary file object
        return self._sandbox.log_file(worker.instance.name).open("ab", buffering=0)

    def _note_in_logs(self, text: str) -> None:
        for worker in self._workers:
            with self._open_log(worker) as log:
                log.write(f"[pai-sdk] {text}\n".encode())

    def _sample(self, now: float) -> None:
        """Note when each log had which size, so that lines can be found by their time."""
        for worker in self._workers:
            path = self._sandbox.log_file(worker.instance.name)
            size_bytes = path.stat().st_size if path.exists() else 0
            if size_bytes != worker.sampled_bytes:
                # On a full disk a job may go on; the sizes come with the next look.
                with suppress(OSError), self._sandbox.times_file(worker.instance.name).open("a") as times:
                    times.write(f"{now:.3f} {size_bytes}\n")
                    times.flush()
                    worker.sampled_bytes = size_bytes


def _free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on, all different."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
