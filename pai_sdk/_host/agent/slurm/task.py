"""A task of a job on Slurm: starts the supervisor of one instance, and stays until its end.

It forwards what concerns all instances of the job: the first failure, a stop request, SIGTERM of Slurm. When this
process exits, in whatever way, the instance is killed. Standard library only.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pai_sdk._core.reasons import REASON_SANDBOX_FAILED, REASON_STOPPED_FROM_OUTSIDE
from pai_sdk._host.agent.distributed import Instance, Rendezvous, free_ports
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.processes import adopt_orphans
from pai_sdk._host.agent.protocol import REASON_COMPLETE, Ending, ExecutionState, InstanceState
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.slurm.gang_folder import BEAT_INTERVAL_S, GangFolder, HostPorts
from pai_sdk._host.agent.supervising import instance_job, job_on_host, start_supervisor
from pai_sdk._host.agent.tunnel.dialing_out import dial_out

_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 15.0
_POLL_INTERVAL_S = 0.1
# Multiplied by the number of instances, since all of them poll one file system.
_GANG_POLL_INTERVAL_S = 0.01
_CLOCK_SKEW_S = 300.0  # between the clocks of the service and of a node
_SLURM_ENDED = "Slurm terminated the job."


class _JobEnded(Exception):
    """Raised when the job ends before this instance has started."""


def main(package: str, root: str) -> int:
    """Runs the instance of this task; returns its exit code. `package` is the folder that contains `pai_sdk`."""
    job = Journal(Sandbox(Path(root)).state_dir).read_job()
    # The job was removed.
    if job is None:
        return 1
    adopt_orphans()
    return _Task(Sandbox(Path(root)), job, int(os.environ["SLURM_PROCID"])).run(Path(package))


class _Task:
    def __init__(self, root: Sandbox, job: dict[str, Any], rank: int) -> None:
        self._job = job
        self._job_of_instance = job["instances"][rank]
        self._instance = Instance(**self._job_of_instance["instance"])
        self._gang = GangFolder(root.shared_dir)
        self._sandbox = self._gang.make_sandbox(self._instance.name, root)
        self._job_journal = Journal(root.state_dir)
        self._journal = Journal(self._sandbox.state_dir)
        self._got_sigterm = False
        self._is_unneeded = False
        self._is_sigterm_recorded = False
        self._next_beat_at = 0.0
        self._next_poll_at = 0.0
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(self, package: Path) -> int:
        """Starts the instance, and waits for its end; returns its exit code."""
        reader, lifeline = os.pipe()
        try:
            self._start(package, reader)
        except _JobEnded:
            self._write_final_state("Terminated")
        except Exception as error:
            traceback.print_exc()
            self._write_final_state("Failed")
            # After SIGTERM, Slurm has killed the supervisor too, and the executor asks Slurm for the reason.
            if not self._got_sigterm:
                message = f"The job could not be run on {socket.gethostname()}: {error}"
                self._gang.write_ending(Ending(REASON_SANDBOX_FAILED, message))
        finally:
            os.close(reader)
        for state in self._states():
            if self._must_be_killed():
                break
            if state is not None and state.phase == "ended":
                self._forward_end(state)
                break
        # Kills the supervisor, if it still runs.
        os.close(lifeline)
        deadline = time.monotonic() + _END_TIMEOUT_S
        while self._journal.is_locked() and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL_S)
        state = self._journal.read_state()
        if state is None or state.succeeded:
            return 0 if state else 1
        return state.instances[0].exit_code or 1

    # ---- the start ----

    def _start(self, package: Path, lifeline: int) -> None:
        """Starts the supervisor; raises _Ended if the job ends before."""
        rendezvous = self._exchange_addresses()
        self._wait_for_roles()
        # The Slurm job has the GPUs of the largest role for each of its tasks.
        hides_gpus = bool(self._job["resources"]["gpus"]) and self._job_of_instance.get("gpus") == 0
        job = instance_job(self._job, self._instance.rank)
        job |= {"hides_gpus": hides_gpus, "rendezvous": asdict(rendezvous)}
        cache = Path(self._job["cache_dir"])
        self._journal.write_job(job_on_host(self._sandbox, job, cache_dir=cache))
        start_supervisor(self._sandbox.root, package=package, timeout_s=_START_TIMEOUT_S, lifeline=lifeline)

    def _exchange_addresses(self) -> Rendezvous:
        """Publishes the address of this host, and waits for those of the other hosts."""
        if os.environ["SLURM_LOCALID"] == "0":
            self._gang.write_ports(self._local_ports())
        count = len(self._job["instances"])
        for _ in self._states():
            hosts = self._gang.ports()
            ports = {rank: (host.address, port) for host in hosts for rank, port in host.ports.items()}
            if len(ports) == count:
                break
            self._check_not_ended()
        # Missing in jobs of earlier releases.
        nproc_per_node, roles = self._job["nproc_per_node"], tuple(self._job.get("roles", ()))
        master_port = next(host.master_port for host in hosts if 0 in host.ports)
        if len(hosts) == 1:
            return Rendezvous.on_loopback(
                [master_port, *(ports[rank][1] for rank in range(count))],
                nproc_per_node=nproc_per_node,
                roles=roles,
            )
        workers = tuple(f"{address}:{port}" for address, port in (ports[rank] for rank in range(count)))
        return Rendezvous(ports[0][0], master_port, workers, nproc_per_node, roles)

    def _wait_for_roles(self) -> None:
        """Waits until the instances have started that have to start before this one."""
        conditions = self._job_of_instance.get("waits_for", ())
        for _ in self._states() if conditions else ():
            self._check_not_ended()
            if all(
                len([name for name in names if self._has_started(name)]) >= count for names, count in conditions
            ):
                return

    def _has_started(self, instance: str) -> bool:
        state = self._gang.state(instance)
        return state is not None and state.instances[0].status != "Pending"

    def _check_not_ended(self) -> None:
        if self._must_be_killed() or self._got_sigterm or self._is_unneeded or self._job_ending() is not None:
            raise _JobEnded

    @staticmethod
    def _local_ports() -> HostPorts:
        """Returns the address of this host, and ports for all instances on it."""
        ranks = [int(rank) for rank in os.environ["SLURM_GTIDS"].split(",")]
        master, *ports = free_ports(1 + len(ranks), address="")
        return HostPorts(
            os.environ["SLURMD_NODENAME"],
            _local_address(os.environ["SLURM_LAUNCH_NODE_IPADDR"]),
            master if 0 in ranks else 0,
            dict(zip(ranks, ports, strict=True)),
        )

    def _write_final_state(self, status: str) -> None:
        """Writes the final state of an instance that was not started."""
        instance = InstanceState(self._instance.name, self._instance.role, status)
        state = ExecutionState("ended", succeeded=False, instances=(instance,))
        self._journal.write_state(state)

    # ---- while it runs ----

    def _states(self) -> Iterator[ExecutionState | None]:
        """Yields the state of the instance repeatedly, with signs of life in between."""
        while True:
            if time.monotonic() >= self._next_beat_at:
                self._next_beat_at = time.monotonic() + BEAT_INTERVAL_S
                self._gang.beat(self._instance.name)
            if self._got_sigterm and not self._is_sigterm_recorded:
                self._is_sigterm_recorded = True
                self._gang.record_sigterm(self._instance.name)
                self._journal.request_stop(REASON_STOPPED_FROM_OUTSIDE, _SLURM_ENDED)
            yield self._journal.state()
            time.sleep(_POLL_INTERVAL_S)

    def _must_be_killed(self) -> bool:
        """Returns True if the job is being removed; forwards the end of the job to the instance."""
        if time.monotonic() < self._next_poll_at:
            return False
        self._next_poll_at = time.monotonic() + _GANG_POLL_INTERVAL_S * len(self._job["instances"])
        try:
            signs = self._gang.signs()
        except FileNotFoundError:
            # The folder was removed; `Executor.sweep` ends the remaining processes.
            return False
        ending = self._job_ending() if signs.has_ending or self._job_journal.stop_request else None
        self._is_unneeded = signs.is_complete and not self._instance.is_awaited
        for name in signs.tunnel_requests:
            self._connect_tunnel(name)
        if ending is not None:
            self._journal.request_stop(ending.code, ending.message)
        elif self._is_unneeded:
            self._journal.request_stop(REASON_COMPLETE, "All instances that the job waits for have finished.")
        return signs.must_be_killed

    def _connect_tunnel(self, name: str) -> None:
        """Connects this instance with the service in a thread, if the request is for it."""
        # Whatever is wrong with a request, the instance goes on.
        with suppress(OSError, ValueError, TypeError, KeyError, RuntimeError):
            request = self._gang.take_tunnel_request(name, self._instance.rank)
            # The service waits no longer than that, so the token is of no use after it.
            if request is not None and time.time() < request["expires_at"] + _CLOCK_SKEW_S:
                threading.Thread(target=self._dial_out, args=(name, request), name=name, daemon=True).start()

    def _dial_out(self, name: str, request: dict[str, Any]) -> None:
        refusal = dial_out(request, self._sandbox.state_dir, self._instance.name)
        # The folder may have been removed.
        with suppress(OSError):
            if refusal:
                self._gang.refuse_tunnel(name, refusal)

    def _job_ending(self) -> Ending | None:
        if request := self._job_journal.stop_request:
            return Ending(*request.reported)
        return self._gang.ending

    def _forward_end(self, state: ExecutionState) -> None:
        """Ends the other instances too, if this one has failed."""
        # The reason why Slurm ended it is queried by the executor.
        with suppress(FileNotFoundError):
            # It was about to be ended: its exit code has no meaning for the job.
            is_unneeded = not self._instance.is_awaited and self._gang.signs().is_complete
            state = state.without_failure() if is_unneeded else state
        # Supervisor and guardian were killed, and could not write it.
        if self._journal.read_state() != state:
            self._journal.write_state(state)
        # A signal that ended the instance arrives here too, a moment later.
        time.sleep(_POLL_INTERVAL_S)
        if self._got_sigterm:
            self._gang.record_sigterm(self._instance.name)
        elif failure := state.failure(can_fail_job=self._instance.can_fail_job):
            self._gang.write_ending(failure)

    def _on_sigterm(self, *_: object) -> None:
        # Only a flag: the handler may interrupt any line, so the files are written by `_states`.
        self._got_sigterm = True


def _local_address(peer: str) -> str:
    """Returns the address of this host by which `peer`, which has started the task, reaches it."""
    with socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: connect of a datagram socket only chooses the local address.
        probe.connect((peer, 9))
        address: str = probe.getsockname()[0]
        return address


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
