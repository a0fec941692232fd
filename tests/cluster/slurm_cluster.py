"""A Slurm cluster on nodes of this machine: one with the controller, and workers.

    with SlurmCluster(folder) as cluster:
        subprocess.run(["sbatch", ...], env={**os.environ, **cluster.environment})

The commands of Slurm work on this machine too. The folder is shared by all nodes, as Slurm's users have it;
nothing else is. There is no database, so no `sacct`.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.cluster.nodes import Node, Nodes, why_not
from tests.support.packages import install_packages
from tests.support.waiting import until

__all__ = ["SlurmCluster", "why_not"]

_UP_WITHIN_S = 180.0

# The times are as short as Slurm bears: a node that is gone is noticed after 15 s, and a job that was preempted
# starts again after about 30 s. Jobs in `preemptible` make room for those in `batch`, with ten seconds' notice.
_CONFIGURATION = """
ClusterName=tests
SlurmctldHost={controller.name}({controller.address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=15
MessageTimeout=3
KillWait=5
MailProg=/bin/true
StateSaveLocation={folder}/state
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/run/slurmd
SlurmdParameters=config_overrides
{workers}
PartitionName=batch Nodes=ALL Default=YES PriorityTier=5 PreemptMode=OFF
PartitionName=preemptible Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=10
"""


class SlurmCluster:
    """A controller and workers, each with some CPUs.

    Attributes:
        folder: shared by the nodes and this machine; `logs` in it has what the daemons print.
        nodes: the first is the controller's.
        cpus: how many CPUs each worker says it has.
    """

    def __init__(self, folder: Path, *, count: int = 3, cpus: int = 4) -> None:
        self.folder = folder
        self.cpus = cpus
        self.nodes = Nodes(count + 1, shared=[folder])
        self._stack = ExitStack()
        self._has_forgotten = False  # the controller may have, since the last repair

    def __enter__(self) -> SlurmCluster:
        install_packages("slurm-wlm", "munge", programs=["slurmctld", "slurmd", "sbatch", "munged"])
        for name in ("state", "logs"):
            (self.folder / name).mkdir(parents=True)
        with ExitStack() as stack:
            stack.enter_context(self.nodes)
            self._start_authentication()
            self._configure()
            self.start_controller()
            for worker in self.workers:
                self.start_worker(worker)
            self.wait_for(len(self.workers))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which Slurm's commands find this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    @property
    def controller(self) -> Node:
        """The node that decides; it runs no jobs."""
        node: Node = self.nodes[0]
        return node

    @property
    def workers(self) -> Sequence[Node]:
        """The nodes that run jobs."""
        nodes: Sequence[Node] = self.nodes[1:]
        return nodes

    def start_controller(self) -> None:
        """Start the controller; it goes on from what it has saved."""
        self._start(self.controller, "slurmctld", "-D")

    def kill_controller(self) -> None:
        """Kill the controller, as when it crashes. Jobs that run go on."""
        assert self.controller.kill_processes("slurmctld") >= 1
        self._has_forgotten = True

    def start_worker(self, node: Node) -> None:
        """Have a node offer its CPUs."""
        self._start(node, "slurmd", "-D", "-N", node.name)

    def power_on(self, node: Node) -> None:
        """Start a worker that is off."""
        self.nodes.power_on(node)
        self.start_worker(node)

    def repair(self) -> None:
        """Have all nodes idle again, after faults that were injected and jobs that were left."""
        if not [*self.controller.processes("slurmctld")]:
            self.start_controller()
        until(lambda: "UP" in self.command("scontrol", "ping", check=False), "the controller", pause_s=0.2)
        self.command("scancel", "--user=root")
        for worker in self.workers:
            if worker.is_off:
                self.power_on(worker)
            elif self._has_forgotten or not [*worker.processes("slurmd")]:
                # The controller gives numbers of forgotten jobs out again. While a worker knows one of these, it
                # takes the next job with its number for that one, and ends it.
                worker.kill_processes()
                self.start_worker(worker)
            # Slurm takes no jobs on a node that it found running one which the controller had forgotten.
            self.command("scontrol", "update", f"nodename={worker.name}", "state=resume", check=False)
        self.wait_for(len(self.workers))
        self._has_forgotten = False

    def wait_for(self, count: int) -> None:
        """Wait until this number of workers is idle."""
        until(
            lambda: (
                self.command("sinfo", "-h", "-N", "-p", "batch", "-o", "%T", check=False).split().count("idle")
                == count
            ),
            f"a Slurm cluster of {count} idle nodes (logs: {self.folder / 'logs'})",
            within_s=_UP_WITHIN_S,
            pause_s=0.1,
        )

    def command(self, *command: str, check: bool = True) -> str:
        """Run a command of Slurm on this machine; returns what it printed."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0 or not check, f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def _configure(self) -> None:
        size = f"CPUs={self.cpus} RealMemory=8000"
        workers = "\n".join(f"NodeName={node.name} NodeAddr={node.address} {size}" for node in self.workers)
        (self.folder / "slurm.conf").write_text(
            _CONFIGURATION.format(controller=self.controller, folder=self.folder, workers=workers)
        )

    def _start_authentication(self) -> None:
        """One server for all nodes, by its socket in the shared folder."""
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        self.controller.start(
            *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket"),
            *("--pid-file=/run/munged.pid", "--log-file=/run/munged.log", "--seed-file=/run/munged.seed"),
            log=self.folder / "logs" / "munged",
        )
        until((self.folder / "munge.socket").exists, "the socket of munge")

    def _start(self, node: Node, program: str, *arguments: str) -> None:
        log = self.folder / "logs" / f"{program}-{node.name}"
        node.start(program, *arguments, log=log, **self.environment)
