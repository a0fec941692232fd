"""Resources of a job and of the machine: instances, CPUs, memory, GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from pai_sdk._host.execution import contract
from pai_sdk._host.execution.base import ClusterCapacity, Executor, ExecutorCapabilities
from pai_sdk._service.settings import ServiceSettings
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import InvalidInputError, Problem

_GIB = 1 << 30
_GPUS = re.compile("[0-9]{1,9}")
_MAX_GPUS = 1024


@dataclass(frozen=True)
class Need:
    """The resources of all instances of one job; resources that `InstanceSpec` does not set count as 0."""

    instances: int
    cpus: float = 0.0
    memory_gib: float = 0.0
    gpus: int = 0
    unsized_instances: int = 0  # those without requested CPUs

    def on(self, cluster: ClusterCapacity | None) -> Need:
        """Returns the resources of the job on a cluster, which assigns default CPUs to unsized instances."""
        if cluster is None or not self.unsized_instances:
            return self
        cpus = self.cpus + self.unsized_instances * cluster.cpus_per_instance
        return replace(self, cpus=cpus, unsized_instances=0)


@dataclass(frozen=True)
class Capacity:
    """The resources for all running jobs; None is unlimited."""

    slots: int  # concurrent instances
    cpus: float | None = None
    memory_gib: float | None = None
    gpus: int | None = None
    cluster: ClusterCapacity | None = None  # may grow for a job that is larger than it

    @classmethod
    def of(
        cls, settings: ServiceSettings, executor: ExecutorCapabilities, cluster: ClusterCapacity | None = None
    ) -> Capacity:
        """Returns the capacity by the settings; for jobs on this machine also its GPUs."""
        gpus = _count_gpus() if executor.hosts == "here" else None
        return cls(settings.slots, settings.cpus, settings.memory_gib, gpus, cluster)

    def lacks(self, need: Need, running: Iterable[Need] = ()) -> Iterator[str]:
        """Describes the missing resources for a job in addition to the running ones; empty if it fits."""
        needs = list(running)
        for resource, limit, amount, used in (
            ("instances", self.slots, need.instances, sum(other.instances for other in needs)),
            ("CPUs", self.cpus, need.cpus, sum(other.cpus for other in needs)),
            ("GPUs", self.gpus, need.gpus, sum(other.gpus for other in needs)),
            ("GiB of memory", self.memory_gib, need.memory_gib, sum(other.memory_gib for other in needs)),
        ):
            if limit is not None and amount > max(0, limit - used):
                yield shortage(amount, resource, limit, used)
        if self.cluster is not None:
            cluster_needs = [other.on(self.cluster) for other in needs]
            yield from _lacks_in_cluster(self.cluster, need.on(self.cluster), cluster_needs)


def shortage(amount: float, resource: str, limit: float, used: float, whose: str = "") -> str:
    """Returns what a job needs and how much of it is free: `1 GPU (0 of 4 are free)`."""
    noun = resource.removesuffix("s") if amount == 1 else resource
    return f"{amount:g} {noun} ({max(0, limit - used):g} of {whose}{limit:g} are free)"


def capacity_now(settings: ServiceSettings, executor: Executor) -> Capacity:
    """Returns the current capacity; that of a cluster can change."""
    return Capacity.of(settings, executor.capabilities, executor.capacity())


def _lacks_in_cluster(cluster: ClusterCapacity, need: Need, running: Iterable[Need]) -> Iterator[str]:
    """Describes the missing resources of a cluster; none for a larger job, for which the cluster may grow."""
    limits = Need(0, cluster.cpus, cluster.memory_bytes / _GIB, cluster.gpus)

    def fits_alone(other: Need) -> bool:
        return other.cpus <= limits.cpus and other.gpus <= limits.gpus and other.memory_gib <= limits.memory_gib

    if not fits_alone(need):
        return
    # A running job that is larger than the cluster is queued by the cluster, and uses nothing of it yet.
    placed = [other for other in running if fits_alone(other)]
    for resource, limit, amount, used in (
        ("CPUs", limits.cpus, need.cpus, sum(other.cpus for other in placed)),
        ("GPUs", limits.gpus, need.gpus, sum(other.gpus for other in placed)),
        ("GiB of memory", limits.memory_gib, need.memory_gib, sum(other.memory_gib for other in placed)),
    ):
        if amount > max(0, limit - used):
            yield shortage(amount, resource, limit, used, "the cluster's ")


def need_of(request: TrainingJobRequest) -> Need:
    """Returns the resources of a job; raises InvalidInputError for invalid amounts."""
    needs = [_need_of_role(role) for role in request.role_requests]
    return Need(*map(sum, zip(*map(astuple, needs), strict=True)))


def _need_of_role(request: TrainingJobRequest) -> Need:
    count = request.instance_count
    memory_bytes = contract.memory_limit_bytes(request) or 0
    cpus = _cpus(request)
    unsized = count if cpus is None else 0
    return Need(count, count * (cpus or 0.0), count * memory_bytes / _GIB, count * _gpus(request), unsized)


def need_or_instances(request: TrainingJobRequest) -> Need:
    """Returns the resources of a stored job; invalid amounts, which earlier releases accepted, count as unset."""
    try:
        return need_of(request)
    except InvalidInputError:
        return Need(request.instance_count, unsized_instances=request.instance_count)


def refuse_oversized(request: TrainingJobRequest, capacity: Capacity) -> None:
    """Raises WireError for a job that could not run alone, and would wait forever."""
    try:
        lacking = list(capacity.lacks(need_of(request)))
    except InvalidInputError as error:
        raise invalid_parameter("; ".join(map(str, error.problems))) from error
    if lacking:
        raise invalid_parameter(
            f"ComputeResource: the capacity of this service is less than {', '.join(lacking)}; ask for less"
        )


def _cpus(request: TrainingJobRequest) -> float | None:
    spec = request.compute_resource.instance_spec
    text = spec.cpu if spec is not None else None
    if not text:
        return None
    try:
        cpus = float(text)
    except ValueError:
        cpus = -1.0
    if not 0 <= cpus < 1e6:
        raise InvalidInputError(
            [Problem("instance_spec.cpu", f"{text[:60]!r} is not a number of CPUs", "write 4 or 0.5")]
        )
    return cpus


def _gpus(request: TrainingJobRequest) -> int:
    spec = request.compute_resource.instance_spec
    text = spec.gpu if spec is not None else None
    if not text:
        return 0
    if not _GPUS.fullmatch(text) or int(text) > _MAX_GPUS:
        problem = f"{text[:60]!r} is not a number of GPUs from 0 to {_MAX_GPUS}"
        raise InvalidInputError([Problem("instance_spec.gpu", problem, "write 1 or 8")])
    return int(text)


def _count_gpus() -> int:
    """Counts the GPUs of this machine by the device files of NVIDIA's driver."""
    return sum(1 for device in Path("/dev").glob("nvidia[0-9]*"))
