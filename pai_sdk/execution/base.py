"""The interface of executors: `Executor` starts a `LaunchSpec` and reports its `ExecutionState`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

from pai_sdk.agent.distributed import Instance
from pai_sdk.agent.protocol import ExecutionState, InstanceState
from pai_sdk.agent.reasons import REASON_STOPPED_BY_USER
from pai_sdk.agent.sandbox import HasChannels, Sandbox
from pai_sdk.schemas.status import JobStatus

if TYPE_CHECKING:
    from pai_sdk.logs.reader import InstanceLog
    from pai_sdk.schemas.request import TrainingJobRequest
    from pai_sdk.storage.base import Store

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
    "outcome",
]


Hosts: TypeAlias = Literal["here", "elsewhere"]
"""`here`: jobs run on this machine. `elsewhere`: on hosts that only the service, engine or cluster knows."""


@dataclass(frozen=True)
class ExecutorCapabilities:
    """The abilities of an executor; code asks for them, and never which executor it is.

    Attributes:
        uses_images: instances run in the image of the request; otherwise with the packages of this interpreter.
        hosts: `here`: the GPUs of this machine are those of the jobs.
        sets_shared_memory: `InstanceSpec.SharedMemory` is the size of `/dev/shm`.
    """

    uses_images: bool
    hosts: Hosts
    sets_shared_memory: bool = False


@dataclass(frozen=True)
class ExecutorSetup:
    """Folders and callbacks that a service gives an executor when it opens it.

    Attributes:
        cache_dir: a folder for what jobs share, such as pip's downloads.
        is_closing: whether the service ends; a start that takes long is given up then.
        jobs_dir: where the folders of jobs are.
        options: what the user wrote for this executor, such as the `address` of a cluster; `open` refuses others.
    """

    cache_dir: Path
    is_closing: Callable[[], bool] = lambda: False
    jobs_dir: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterCapacity:
    """The resources of a cluster now. It may grow when jobs wait for more.

    Attributes:
        cpus: of all nodes together, whether free or not.
        gpus: likewise.
        memory_bytes: likewise.
        nodes: how many nodes there are.
        cpus_per_instance: the CPUs that an instance takes whose job names none.
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
        """All variables, for a job that sees the sandbox's `ml` folder at this path."""
        return {**self.variables, **{name: f"{ml}/{path}" for name, path in self.paths.items()}}


@dataclass(frozen=True)
class Mounts:
    """Files and folders of this machine that a job uses where they are.

    Attributes:
        inputs: channel to the file or folder it is filled with, seen read-only.
        outputs: channel to the folder it goes to.
    """

    inputs: Mapping[str, Path] = field(default_factory=dict)
    outputs: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """The limits of a job. None is without limit.

    Attributes:
        max_running_s: how long the job may run.
        memory_bytes: the memory of each instance.
    """

    max_running_s: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class LaunchSpec:
    """All that an executor needs to start a job. `contract.launch_spec` makes it from a request.

    Attributes:
        sandbox: the job's folder, with code, inputs and configuration in it.
        job_id: the job.
        request: its description; from it executors take what only some of them use, such as the image.
        instances: in rank order.
        environments: the variables of each instance, in the same order.
        command: the program of every instance, and its arguments.
        mounts: what the job uses of this machine besides the sandbox.
        limits: what it may use.
    """

    sandbox: Sandbox
    job_id: str
    request: TrainingJobRequest
    instances: tuple[Instance, ...]
    environments: tuple[Environment, ...]
    command: tuple[str, ...]
    mounts: Mounts
    limits: Limits


def outcome(state: ExecutionState) -> tuple[JobStatus, str | None, str | None]:
    """The status of a job in this state, with reason code and reason; None where there is none."""
    if state.phase in ("absent", "preparing"):
        status = JobStatus.INITIALIZING
    elif state.phase == "running":
        status = JobStatus.RUNNING
    elif state.reason_code == REASON_STOPPED_BY_USER:
        status = JobStatus.TERMINATED
    else:
        status = JobStatus.SUCCEED if state.succeeded else JobStatus.FAILED
    return status, state.reason_code or None, state.reason_message or None


class JobFiles(Protocol):
    """The files that a job finds and leaves, reached from this machine wherever its instances run.

    Executors whose instances use this machine's disk answer with a `JobFolder`. Another one gives stores and logs
    of the hosts that it uses, or brings them here first.

    Attributes:
        sandbox: the job's folder on this machine. It always has what is known of the job: state, indexes of logs,
            which files were sent. Whether its `ml` and `logs` are those of the instances depends on the executor,
            so ask the methods.
    """

    sandbox: Sandbox

    def clear(self, request: HasChannels | None = None) -> None:
        """Remove what was put in place; with a request, make its folders anew. The job has not begun."""
        ...

    def code(self) -> Store:
        """The folder of the code, to be filled before the start."""
        ...

    def input(self, channel: str) -> Store:
        """The folder of an input channel, to be filled before the start."""
        ...

    def output(self, channel: str) -> Store:
        """The files that the job has written to an output channel; event files are in `tensorboard`."""
        ...

    def write_table_key(self, text: str) -> None:
        """Write the key for tables, so that only the job can read it."""
        ...

    def log(self, instance: str) -> InstanceLog:
        """The log of an instance, with the times of its lines; there may be nothing in it yet."""
        ...

    def mend_links(self, channel: str) -> None:
        """Make links that name a place in an output channel as the job saw it lead there from `output`, too."""
        ...


class Executor(Protocol):
    """Starts, watches and stops the instances of jobs.

    `tests/unit/execution/conformance.py` tests what follows for every executor.

    Behaviours:
        1. *Start once.* `start` returns when the job has been handed over. For a job that was started before, in
           whatever state it is, it does nothing. Where it raises, nothing is left of the start.
        2. *State.* `state` gives the phase, each instance with its exit code, and the first instance that failed.
           It is `absent` for a job that was never started. Once `ended`, the state never changes.
        3. *Nothing in memory.* A job outlives the process that started it, and any other executor of the same kind
           continues with it: all that has to be known is in the job's folder, or in what runs the instances. Stop
           request and state are there in the format of `agent.protocol`; the end is in the `Journal`.
        4. *Stop.* `stop` returns at once. Every process of the job gets SIGTERM, then the grace period, then
           SIGKILL. The reason of the first stop is the one reported. A job at its time limit is ended likewise.
        5. *Instances.* Those of a job of several find each other by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.
           The first failure ends the others and is the one reported, unless an instance was lost with its node and
           the others may have failed because they missed it; a success ends no other instance. Each instance
           prints to its own file, `Sandbox.log_file`.
        6. *Withdraw.* After `withdraw` a start that was cut off never begins, and `state` says for good whether
           the job has begun. A job that has begun continues.
        7. *Remove.* `remove` kills what runs and removes the job's folder. `sweep` kills and removes what is left
           of jobs whose folder has gone, and leaves all others alone.
        8. *Files.* `files` reaches code, inputs, outputs and logs of a job, before its start, while it runs and
           after its end.
        9. *Renew.* After `renew`, a job that had ended is `absent`, and `start` begins another attempt. It
           finds the files as the last one left them, and its lines follow those of the last one in the same logs.
           `renew` may be cut off and called again.

    Assumptions:
        1. The sandbox is filled before `start`, and nothing but the executor writes to `Sandbox.state_dir`.
        2. A job's id and the names of its instances are unique on the machine.
        3. Several threads and processes may call any method for one job at the same time, except that only one
           fills a sandbox and starts it.
    """

    capabilities: ClassVar[ExecutorCapabilities]

    @classmethod
    def open(cls, setup: ExecutorSetup) -> Executor:
        """The executor of a service; `registry.open_executor` calls it.

        Raises:
            PaiError: no job can run here.
        """
        ...

    def close(self) -> None:
        """Close what this process has opened; jobs continue."""

    def start(self, spec: LaunchSpec) -> None:
        """Start a job (1).

        Raises:
            InvalidInputError: this executor cannot run such a job.
            PaiError: the job could not be started.
        """
        ...

    def withdraw(self, root: Path) -> None:
        """Cancel a start that was cut off, before the sandbox is filled again (6)."""
        ...

    def state(self, root: Path) -> ExecutionState:
        """The state now (2); never raises for a job that was cut off."""
        ...

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Ask all instances to end (4)."""
        ...

    def renew(self, root: Path, *, attempt: int) -> bool:
        """Make a job that has ended one that was never started (9).

        Args:
            root: its folder.
            attempt: the number of the attempt that comes now.

        Returns:
            False while something of the last attempt is left; the caller tries again then.
        """
        if not self.has_let_go(root):
            return False
        Sandbox(root.resolve()).forget_attempt(attempt)
        return True

    def has_let_go(self, root: Path) -> bool:
        """Return whether nothing of an ended job is left outside its folder, and no process writes to it."""
        return True

    def files(self, root: Path) -> JobFiles:
        """The files that the job finds and leaves (8)."""
        ...

    def remove(self, root: Path) -> None:
        """Remove a job and its folder (7)."""
        ...

    def sweep(self) -> Sequence[str]:
        """Remove what is left of jobs without a folder; gives their ids (7)."""
        ...

    def capacity(self) -> ClusterCapacity | None:
        """What the cluster has on which jobs run; None where it is not known, or this machine is all there is."""
        return None
