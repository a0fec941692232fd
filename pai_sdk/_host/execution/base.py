"""The interface of executors: `Executor` starts a `LaunchSpec` and reports its `ExecutionState`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

from pai_sdk._host.agent.distributed import Instance
from pai_sdk._host.agent.protocol import ExecutionState, InstanceState
from pai_sdk._host.agent.sandbox import HasChannels, Sandbox
from pai_sdk._host.execution.node_connections import NodeConnections
from pai_sdk.errors import PaiError

if TYPE_CHECKING:
    from pai_sdk._data.logs.reader import InstanceLog
    from pai_sdk._data.storage.base import Store
    from pai_sdk._wire.pai.request import TrainingJobRequest

__all__ = [
    "ClusterCapacity",
    "Environment",
    "ExecutionState",
    "Executor",
    "ExecutorCapabilities",
    "ExecutorSetup",
    "Hosts",
    "InstanceState",
    "JobFiles",
    "LaunchSpec",
    "Limits",
    "Mounts",
]


Hosts: TypeAlias = Literal["here", "elsewhere"]
"""`here`: jobs run on this machine. `elsewhere`: on hosts that only the service, engine or cluster can reach."""


@dataclass(frozen=True)
class ExecutorCapabilities:
    """The abilities of an executor. Code checks these, and never the executor's class.

    Attributes:
        uses_images: instances run in the image of the request; otherwise with the packages of this interpreter.
        hosts: `here` means that jobs use the GPUs of this machine.
        roles: jobs may have unlike roles.
        mounts: jobs may have mounts.
        sets_shared_memory: `InstanceSpec.SharedMemory` is the size of `/dev/shm`.
        tunnels: `connect_tunnel` reaches running instances.
    """

    uses_images: bool
    hosts: Hosts
    sets_shared_memory: bool = False
    roles: bool = False
    mounts: bool = False
    tunnels: bool = False


@dataclass(frozen=True)
class ExecutorSetup:
    """Folders and callbacks that a service passes to an executor when it opens it.

    Attributes:
        cache_dir: a folder for files that jobs share, such as pip's downloads.
        is_closing: returns True when the service shuts down; a slow start is then cancelled.
        jobs_dir: the folder that contains the folders of jobs.
        options: the user's options for this executor, such as the `address` of a cluster; `open` refuses unknown
            ones.
        node_connections: the connections that nodes open to the service, for tunnels.
    """

    cache_dir: Path
    is_closing: Callable[[], bool] = lambda: False
    jobs_dir: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    node_connections: NodeConnections = field(default_factory=NodeConnections)


@dataclass(frozen=True)
class ClusterCapacity:
    """The current resources of a cluster, which may grow when jobs wait for more.

    Attributes:
        cpus: of all nodes together, free or in use.
        gpus: of all nodes together, free or in use.
        memory_bytes: of all nodes together, free or in use.
        nodes: the number of nodes.
        cpus_per_instance: the CPUs of an instance whose job sets none.
    """

    cpus: float
    gpus: int
    memory_bytes: float
    nodes: int
    cpus_per_instance: float = 0.0


@dataclass(frozen=True)
class Environment:
    """The variables of one instance, except those by which the instances find each other.

    Attributes:
        variables: name to value.
        paths: name to a path relative to the folder that the job sees as `/ml`.

    Example:
        >>> Environment({"EPOCHS": "3"}, {"PAI_WORKING_DIR": "usercode"}).at("/ml")
        {'EPOCHS': '3', 'PAI_WORKING_DIR': '/ml/usercode'}
    """

    variables: Mapping[str, str]
    paths: Mapping[str, str]

    def at(self, ml: str) -> dict[str, str]:
        """Returns all variables for a job that sees the sandbox's `ml` folder at this path."""
        return {**self.variables, **{name: f"{ml}/{path}" for name, path in self.paths.items()}}


@dataclass(frozen=True)
class Mounts:
    """Files and folders of this machine that a job uses in place, without a copy.

    Attributes:
        inputs: channel to the file or folder that it contains, mounted read-only.
        outputs: channel to the folder that it is written to.
        folders: position of a mount of the request to the folder that is used in place.
    """

    inputs: Mapping[str, Path] = field(default_factory=dict)
    outputs: Mapping[str, Path] = field(default_factory=dict)
    folders: Mapping[int, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """The limits of a job; None means no limit.

    Attributes:
        max_running_s: the time limit of the job in seconds.
        memory_bytes: the memory limit of each instance.
    """

    max_running_s: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class LaunchSpec:
    """All that an executor needs to start a job. `contract.launch_spec` creates it from a request.

    Attributes:
        sandbox: the job's folder, with code, inputs and configuration in it.
        job_id: the job.
        request: the description of the job; executors read from it what only some of them use, such as the image.
        instances: in rank order.
        environments: the variables of each instance, in rank order.
        command: the program of every instance of a job without roles, and its arguments.
        mounts: files and folders of this machine that the job uses besides the sandbox.
        limits: time and memory limits.
        role_commands: with roles, the program of each instance and its arguments, in rank order.
    """

    sandbox: Sandbox
    job_id: str
    request: TrainingJobRequest
    instances: tuple[Instance, ...]
    environments: tuple[Environment, ...]
    command: tuple[str, ...]
    mounts: Mounts
    limits: Limits
    role_commands: tuple[tuple[str, ...], ...] = ()

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """Returns the program of each instance and its arguments, in rank order."""
        return self.role_commands or (self.command,) * len(self.instances)


class JobFiles(Protocol):
    """The files of a job, accessible from this machine wherever its instances run.

    Executors whose instances use this machine's disk return a `JobFolder`. Other executors return stores and logs
    of their hosts, or copy the files to this machine first.

    Attributes:
        sandbox: the job's folder on this machine. It always contains the state, the indexes of logs and the record
            of uploaded files. Whether its `ml` and `logs` are those of the instances depends on the executor, so
            use the methods.
    """

    sandbox: Sandbox

    def clear(self, request: HasChannels | None = None) -> None:
        """Removes the job's files before its start; with a request, creates its folders again."""
        ...

    def code(self) -> Store:
        """Returns the store of the code folder, which is filled before the start."""
        ...

    def input(self, channel: str) -> Store:
        """Returns the store of an input channel, which is filled before the start."""
        ...

    def output(self, channel: str) -> Store:
        """Returns the store of an output channel; event files are in the channel `tensorboard`."""
        ...

    def mount(self, number: int) -> Store:
        """Returns the store of a mount, by its position in the request; it is filled before the start."""
        ...

    def write_table_key(self, text: str) -> None:
        """Writes the key for tables so that only the job can read it."""
        ...

    def log(self, instance: str) -> InstanceLog:
        """Returns the log of an instance with the times of its lines; it may be empty."""
        ...

    def mend_links(self, channel: str) -> None:
        """Rewrites links of an output channel into the job's `/ml` so that they resolve from `output` too."""
        ...


class Executor(Protocol):
    """Starts, watches and stops the instances of jobs.

    `tests/unit/host/execution/conformance.py` tests what follows for every executor.

    Behaviours:
        1. *Start once.* `start` returns when the job has been handed over. It does nothing for a job that was
           started before, in any state. If it raises, nothing of the start remains.
        2. *State.* `state` returns the phase, each instance with its exit code, and the first failed instance.
           It is `absent` for a job that was never started. Once `ended`, the state never changes.
        3. *Nothing in memory.* A job outlives the process that started it, and any other executor of the same kind
           can continue: all state is in the job's folder, or in the system that runs the instances. Stop request
           and state have the format of `agent.protocol`; the final state is in the `Journal`.
        4. *Stop.* `stop` returns at once. Every process of the job gets SIGTERM, then the grace period, then
           SIGKILL. The first stop's reason is reported. A job at its time limit is stopped in this way too.
        5. *Instances.* Several instances find each other by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE. The
           first failure ends the other instances and is reported, unless an instance was lost with its node, which
           may be the cause of the other failures. A success ends no other instance. Each instance writes to its
           own file, `Sandbox.log_file`.
        6. *Withdraw.* After `withdraw` an interrupted start never continues, and `state` reports finally whether
           the job has started. A started job continues.
        7. *Remove.* `remove` kills the job's processes and removes its folder. `sweep` kills and removes the
           remains of jobs whose folder is gone, and leaves all other jobs alone.
        8. *Files.* `files` gives access to code, inputs, outputs and logs of a job, before its start, while it
           runs and after its end.
        9. *Renew.* After `renew`, a finished job is `absent`, and `start` starts another attempt. The new attempt
           finds the files as the last one left them, and appends to the same logs. An interrupted `renew` can be
           called again.
        10. *Tunnels.* With the capability, `connect_tunnel` connects to the `TunnelServer` of a running instance.
           It has a deadline, and may be called often.

    Assumptions:
        1. The sandbox is filled before `start`, and nothing but the executor writes to `Sandbox.state_dir`.
        2. A job's id and the names of its instances are unique on the machine.
        3. Several threads and processes may call any method for one job at the same time, except that only one
           fills a sandbox and starts it.
    """

    capabilities: ClassVar[ExecutorCapabilities]

    @classmethod
    def open(cls, setup: ExecutorSetup) -> Executor:
        """Opens the executor for a service; `registry.open_executor` calls it.

        Raises:
            PaiError: no job can run here.
        """
        ...

    def close(self) -> None:
        """Closes the resources of this process; jobs continue."""

    def start(self, spec: LaunchSpec) -> None:
        """Starts a job (1).

        Raises:
            InvalidInputError: this executor cannot run such a job.
            PaiError: the job could not be started.
        """
        ...

    def withdraw(self, root: Path) -> None:
        """Cancels an interrupted start, before the sandbox is filled again (6)."""
        ...

    def state(self, root: Path) -> ExecutionState:
        """Returns the current state (2); never raises for an interrupted job."""
        ...

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Asks all instances to exit (4)."""
        ...

    def renew(self, root: Path, *, attempt: int) -> bool:
        """Resets a finished job to one that was never started (9).

        Args:
            root: the job's folder.
            attempt: the number of the next attempt.

        Returns:
            False while resources of the last attempt remain; the caller tries again then.
        """
        if not self.has_let_go(root):
            return False
        Sandbox(root.resolve()).forget_attempt(attempt)
        return True

    def has_let_go(self, root: Path) -> bool:
        """Returns whether a finished job has released all resources outside its folder and has no writers."""
        return True

    def nodes(self, root: Path) -> Mapping[str, str]:
        """Returns the nodes on which instances of a job run, by instance, as far as they are known."""
        return {}

    def files(self, root: Path) -> JobFiles:
        """Returns the files of a job (8)."""
        ...

    def remove(self, root: Path) -> None:
        """Removes a job and its folder (7)."""
        ...

    def sweep(self) -> Sequence[str]:
        """Removes the remains of jobs without a folder; returns their ids (7)."""
        ...

    def capacity(self) -> ClusterCapacity | None:
        """Returns the capacity of the cluster; None if it is not known, or if jobs run on this machine only."""
        return None

    def connect_tunnel(self, root: Path, instance: str) -> socket.socket:
        """Returns a connection to a running instance, for frames behind their length in 4 bytes (10).

        Args:
            root: the job's folder.
            instance: the complete name of the instance.

        Raises:
            PaiError: the instance cannot be reached, for example because it has not started yet.
            OSError: the same.
        """
        raise PaiError("this executor offers no tunnels into running jobs")
