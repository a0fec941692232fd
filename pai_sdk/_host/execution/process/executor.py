"""Jobs as plain processes of this machine, with the real `/ml` where the kernel allows it.

The executor starts a supervisor (`agent.supervisor`) and then only reads and writes the files of the `Journal`. It
holds the journal's lock in `withdraw` only; while a job runs, its supervisor and guardian hold it.
"""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pai_sdk._core.reasons import REASON_NODE_LOST, REASON_SUPERVISOR_LOST, machine_lost_message
from pai_sdk._host.agent.journal import Journal, lost
from pai_sdk._host.agent.processes import kill_orphans
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.supervising import job_on_host, kill_supervisors, start_supervisor
from pai_sdk._host.agent.supervisor_template import SupervisorTemplate
from pai_sdk._host.agent.tunnel.connecting import connect_instance
from pai_sdk._host.execution.base import ExecutionState, Executor, ExecutorCapabilities, ExecutorSetup, LaunchSpec
from pai_sdk._host.execution.contract import job_description
from pai_sdk._host.execution.job_folder import JobFolder
from pai_sdk.errors import PaiError, TunnelRefusedError

_PACKAGE_PARENT = Path(__file__).parents[4]
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class ProcessExecutor(Executor):
    """Runs the instances of a job as processes, under a supervisor that does not depend on this process.

    All instances of a job share its sandbox and meet on the loopback address. Python requirements are installed
    into a virtual environment that jobs with the same requirements share; packages of this interpreter count as
    installed. The request's image is not used.

    Attributes:
        cache_dir: where those environments are stored.
        grace_s: seconds between SIGTERM and SIGKILL when a job is stopped.

    Example:
        >>> executor = ProcessExecutor(Path("/srv/cache"))
        >>> executor.state(Path("/srv/jobs/none")).phase
        'absent'
    """

    capabilities = ExecutorCapabilities(uses_images=False, hosts="here", roles=True, mounts=True, tunnels=True)

    def __init__(self, cache_dir: Path, *, grace_s: float = 10.0) -> None:
        self.cache_dir = cache_dir
        self.grace_s = grace_s
        self.start_timeout_s = 30.0
        # A cache: folders of jobs that are known to run on this machine.
        self._local_roots: set[Path] = set()
        self._template = SupervisorTemplate(_PACKAGE_PARENT)

    @classmethod
    def open(cls, setup: ExecutorSetup) -> ProcessExecutor:
        """Opens the executor for a service."""
        return cls(setup.cache_dir)

    def close(self) -> None:
        """Ends the process that supervisors are forked from; jobs continue."""
        self._template.close()

    def start(self, spec: LaunchSpec) -> None:
        """Starts the supervisor and returns as soon as it runs; does nothing for a job that was started before.

        Raises:
            InvalidInputError: the request cannot become processes; nothing was started.
            PaiError: the supervisor did not start.
        """
        journal = Journal(spec.sandbox.state_dir)
        # Only a shortcut: the supervisor checks this again under the journal's lock, so two starts at once run
        # one job.
        if journal.read_state() is not None:
            return
        journal.write_job(self._job(spec))
        start_supervisor(
            spec.sandbox.root,
            package=_PACKAGE_PARENT,
            timeout_s=self.start_timeout_s,
            template=self._template,
        )

    def withdraw(self, root: Path) -> None:
        """Cancels an interrupted start.

        Raises:
            PaiError: an earlier supervisor is stuck before its start.
        """
        if not Journal(Sandbox(root.resolve()).state_dir).withdraw_job(patience_s=self.start_timeout_s):
            raise PaiError("an earlier supervisor is stuck before its start; see its log")

    def state(self, root: Path) -> ExecutionState:
        """Returns the current state; kills processes that a killed supervisor has left behind."""
        sandbox = Sandbox(root.resolve())
        journal = Journal(sandbox.state_dir)
        state = journal.state()
        if state is None:
            return ExecutionState("absent")
        if state.phase != "ended" or state.reason_code == REASON_SUPERVISOR_LOST:
            machine = self._foreign_machine(sandbox.root, journal)
            if machine is not None:
                # The machine may be alive and only its service gone: then its processes read this stop request.
                journal.request_stop(REASON_NODE_LOST, machine_lost_message(machine))
                ending = lost(state, ended_at=state.ended_at or time.time())
                message = machine_lost_message(machine)
                return replace(ending, reason_code=REASON_NODE_LOST, reason_message=message)
        if state.reason_code == REASON_SUPERVISOR_LOST:
            # The guardian may have been killed too: then processes of the instances still run, and write.
            for instance in state.instances:
                mark = f"PAI_INSTANCE_NAME={instance.name}"
                kill_orphans(mark, within=str(sandbox.state_dir), ml=sandbox.ml)
        return state

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Asks all instances to exit; returns at once. The reason of the first call is kept."""
        journal = Journal(Sandbox(root).state_dir)
        state = journal.state()
        if state is not None and state.phase != "ended":
            journal.request_stop(reason_code, reason_message)

    def connect_tunnel(self, root: Path, instance: str) -> socket.socket:
        """Returns a connection to the server of an instance's tunnels, which the supervisor starts.

        Raises:
            TunnelRefusedError: the instance cannot be entered; `code` says why.
        """
        sandbox = Sandbox(root.resolve())
        machine = self._foreign_machine(sandbox.root, Journal(sandbox.state_dir))
        if machine is not None:
            raise TunnelRefusedError(
                "NotReachable", f"the job runs on {machine}, which cannot be reached from here"
            )
        return connect_instance(sandbox.state_dir, instance)

    def has_let_go(self, root: Path) -> bool:
        """Returns whether supervisor and guardian have exited."""
        return not Journal(Sandbox(root.resolve()).state_dir).is_locked()

    def files(self, root: Path) -> JobFolder:
        """Returns the files of a job; its instances use its folder."""
        return JobFolder(Sandbox(root))

    def remove(self, root: Path) -> None:
        """Kills the processes of a job and removes its folder."""
        sandbox = Sandbox(root.resolve())
        # A supervisor that starts late must not find the job.
        self.withdraw(root)
        journal, deadline = Journal(sandbox.state_dir), time.monotonic() + self.start_timeout_s
        while journal.is_locked():
            if time.monotonic() > deadline:
                raise PaiError(f"processes of the job in {root} cannot be killed; see its supervisor.log")
            # Repeated until the lock is free: supervisor and guardian hold it until they have exited.
            kill_supervisors(lambda _, folder: folder == sandbox.root)
            time.sleep(0.01)
        sandbox.remove()

    def sweep(self) -> list[str]:
        """Kills the processes of jobs whose folder is gone; returns the job ids."""
        # Checked in the supervisor's own root: it may run in a container with another file system.
        return kill_supervisors(lambda process, folder: not (process / "root" / folder.relative_to("/")).exists())

    def _job(self, spec: LaunchSpec) -> dict[str, Any]:
        """Returns the description of the job for the supervisor, as plain JSON, and this machine's identity."""
        job = job_on_host(
            spec.sandbox, job_description(spec, grace_s=self.grace_s), cache_dir=self.cache_dir.resolve()
        )
        return {**job, "machine": _this_machine()}

    def _foreign_machine(self, root: Path, journal: Journal) -> str | None:
        """Returns the host that runs a job's processes, if it is not this machine."""
        if root in self._local_roots:
            return None
        recorded, local = (journal.read_job() or {}).get("machine", {}), _this_machine()
        # Foreign only if name and boot id both differ: a rebooted machine keeps its name, and a restarted
        # container keeps the boot id of its kernel.
        if all(recorded.get(name) not in (None, "", local[name]) for name in local):
            return str(recorded["host"])
        self._local_roots.add(root)
        return None


def _this_machine() -> dict[str, str]:
    """Returns the identity of this machine: the host name, and the boot id if the system has one."""
    try:
        return {"host": socket.gethostname(), "boot": _BOOT.read_text(encoding="ascii").strip()}
    except OSError:
        return {"host": socket.gethostname(), "boot": ""}
