"""A task of a job on Slurm: starts the supervisor of one instance, and stays until its end.

It passes on what concerns all instances of the job: the first failure, a stop request, SIGTERM of Slurm. When this
process ends, in whatever way, the instance is killed. Standard library only.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pai_sdk.agent.distributed import Instance, Rendezvous, free_ports
from pai_sdk.agent.journal import Journal
from pai_sdk.agent.processes import adopt_orphans
from pai_sdk.agent.protocol import Ending, ExecutionState, InstanceState
from pai_sdk.agent.reasons import REASON_SANDBOX_FAILED, REASON_STOPPED_FROM_OUTSIDE
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.agent.slurm.gang_folder import BEAT_EVERY_S, GangFolder, HostPorts
from pai_sdk.agent.supervising import job_on_host, start_supervisor

__all__ = ["main"]

_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 15.0
_LOOK_EVERY_S = 0.1
_LOOK_AT_OTHERS_EVERY_S = 0.01  # for each instance of the job, since all of them ask one file system
_TOLD = "Slurm has ended the job."


class _Ended(Exception):
    """The job ends before this instance has begun."""


def main(package: str, root: str) -> int:
    """Run the instance of this task.

    Args:
        package: the folder that contains the package `pai_sdk`.
        root: the job's folder.

    Returns:
        The exit code of the instance.
    """
    job = Journal(Sandbox(Path(root)).state_dir).read_job()
    if job is None:  # it was removed
        return 1
    adopt_orphans()
    return _Task(Sandbox(Path(root)), job, int(os.environ["SLURM_PROCID"])).run(Path(package))


class _Task:
    def __init__(self, root: Sandbox, job: dict[str, Any], rank: int) -> None:
        self._job = job
        self._own = job["instances"][rank]
        self._instance = Instance(**self._own["instance"])
        self._gang = GangFolder(root.shared_dir)
        self._sandbox = self._gang.make_sandbox(self._instance.name, root)
        self._of_job = Journal(root.state_dir)
        self._journal = Journal(self._sandbox.state_dir)
        self._is_told = False
        self._told_noted = False
        self._next_beat = 0.0
        self._next_look = 0.0
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(self, package: Path) -> int:
        """Start the instance, and wait for its end; gives its exit code."""
        reader, lifeline = os.pipe()
        try:
            self._start(package, reader)
        except _Ended:
            self._write_end("Terminated")
        except Exception as error:
            traceback.print_exc()
            self._write_end("Failed")
            if not self._is_told:  # then Slurm has killed the supervisor, too, and the executor asks it why
                text = f"The job could not be run on {socket.gethostname()}: {error}"
                self._gang.write_ending(Ending(REASON_SANDBOX_FAILED, text))
        finally:
            os.close(reader)
        for state in self._states():
            if self._must_be_killed():
                break
            if state is not None and state.phase == "ended":
                self._pass_end_on(state)
                break
        os.close(lifeline)
        deadline = time.monotonic() + _END_TIMEOUT_S
        while self._journal.is_locked() and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        state = self._journal.read_state()
        if state is None or state.succeeded:
            return 0 if state else 1
        return state.instances[0].exit_code or 1

    # ---- the start ----

    def _start(self, package: Path, lifeline: int) -> None:
        """Start the supervisor.

        Raises:
            _Ended: the job ends before.
        """
        rendezvous = self._meet()
        facts = {**self._job, "instances": [self._own], "rendezvous": asdict(rendezvous)}
        cache = Path(self._job["cache_dir"])
        self._journal.write_job(job_on_host(self._sandbox, facts, cache_dir=cache))
        start_supervisor(self._sandbox.root, package=package, timeout_s=_START_TIMEOUT_S, lifeline=lifeline)

    def _meet(self) -> Rendezvous:
        """Exchange addresses with the other hosts."""
        if os.environ["SLURM_LOCALID"] == "0":
            self._gang.write_ports(self._ports_here())
        count = len(self._job["instances"])
        for _ in self._states():
            hosts = self._gang.ports()
            ports = {rank: (one.address, port) for one in hosts for rank, port in one.ports.items()}
            if len(ports) == count:
                break
            if self._must_be_killed() or self._is_told or self._ending_of_others() is not None:
                raise _Ended
        nproc_per_node = self._job["nproc_per_node"]
        master_port = next(one.master_port for one in hosts if 0 in one.ports)
        if len(hosts) == 1:
            return Rendezvous.on_loopback(
                [master_port, *(ports[rank][1] for rank in range(count))], nproc_per_node=nproc_per_node
            )
        workers = tuple(f"{address}:{port}" for address, port in (ports[rank] for rank in range(count)))
        return Rendezvous(ports[0][0], master_port, workers, nproc_per_node)

    @staticmethod
    def _ports_here() -> HostPorts:
        """The address of this host, and ports for all instances on it."""
        ranks = [int(rank) for rank in os.environ["SLURM_GTIDS"].split(",")]
        master, *ports = free_ports(1 + len(ranks), address="")
        return HostPorts(
            os.environ["SLURMD_NODENAME"],
            _address_here(os.environ["SLURM_LAUNCH_NODE_IPADDR"]),
            master if 0 in ranks else 0,
            dict(zip(ranks, ports, strict=True)),
        )

    def _write_end(self, status: str) -> None:
        """Write the end of an instance that has not begun."""
        one = InstanceState(self._instance.name, self._instance.role, status)
        state = ExecutionState("ended", succeeded=False, instances=(one,))
        self._journal.write_state(state)

    # ---- while it runs ----

    def _states(self) -> Iterator[ExecutionState | None]:
        """The states of the instance; between them the job is looked at, and there are signs of life."""
        while True:
            if time.monotonic() >= self._next_beat:
                self._next_beat = time.monotonic() + BEAT_EVERY_S
                self._gang.beat(self._instance.name)
            if self._is_told and not self._told_noted:
                self._told_noted = True
                self._gang.write_told(self._instance.name)
                self._journal.request_stop(REASON_STOPPED_FROM_OUTSIDE, _TOLD)
            yield self._journal.state()
            time.sleep(_LOOK_EVERY_S)

    def _must_be_killed(self) -> bool:
        """Return whether the job is being removed; passes the end of the job on to the instance."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _LOOK_AT_OTHERS_EVERY_S * len(self._job["instances"])
        try:
            is_killed, has_ending = self._gang.signs()
        except FileNotFoundError:  # the folder was removed; `Executor.sweep` ends what is left
            return False
        ending = self._ending_of_others() if has_ending or self._of_job.stop_request else None
        if ending is not None:
            self._journal.request_stop(ending.code, ending.message)
        return is_killed

    def _ending_of_others(self) -> Ending | None:
        if request := self._of_job.stop_request:
            return Ending(*request.reported)
        return self._gang.ending

    def _pass_end_on(self, state: ExecutionState) -> None:
        """Have the other instances end too, if this one has failed. Why Slurm has ended it, the executor asks."""
        if self._journal.read_state() != state:  # supervisor and guardian were killed, and could not write it
            self._journal.write_state(state)
        time.sleep(_LOOK_EVERY_S)  # a signal that ended the instance comes here, too
        if self._is_told:
            self._gang.write_told(self._instance.name)
        elif not state.succeeded and state.reason_code:
            self._gang.write_ending(Ending(state.reason_code, state.reason_message, state.failed_instance))

    def _on_sigterm(self, *_: object) -> None:
        self._is_told = True


def _address_here(peer: str) -> str:
    """The address of this host by which the one that has started the task knows it."""
    with socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))  # sends nothing
        address: str = probe.getsockname()[0]
        return address


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
