"""Names of the instances of a job, and variables by which they find each other. Standard library only."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MASTER_PORT = 23456
"""The port of rank 0 if every instance has its own address."""

TF_PORT = 2222
"""The port of every worker of a TFJob if every instance has its own address."""

ROLES_APART = frozenset({"ps", "evaluator", "graphlearn"})
"""Roles that serve or observe those that train: without a rank, and a job does not wait for their end."""

# Below the range from which Linux assigns ports to clients (32768 to 60999).
_PORTS = range(20_000, 32_768)


@dataclass(frozen=True)
class Instance:
    """One worker of a job; rank and index count from 0."""

    name: str  # unique among all jobs: `train129f212o89d-master-0`
    role: str  # `master` or `worker`, and others for jobs with roles
    rank: int  # instances that take part in the rendezvous come first
    index: int  # within its role
    group: int = 0  # the position of its role in the request
    is_awaited: bool = True  # the job does not succeed before it has ended
    can_fail_job: bool = True


@dataclass(frozen=True)
class Rendezvous:
    """The address at which the instances of one job meet."""

    address: str  # host name or address of rank 0
    port: int  # rank 0 listens on it
    workers: tuple[str, ...]  # `host:port` of every instance, in rank order, for TF_CONFIG
    nproc_per_node: int = 1  # processes that an instance should start, mostly the number of its GPUs
    roles: tuple[str, ...] = ()  # of every instance, in rank order; empty for a job without roles

    @property
    def size(self) -> int:
        """Returns the number of instances that take part: WORLD_SIZE."""
        return sum(map(takes_part, self.roles)) or len(self.workers)

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Rendezvous:
        """Returns a rendezvous from JSON."""
        lists = {name: tuple(content.get(name, ())) for name in ("workers", "roles")}
        return cls(**{**content, **lists})

    @classmethod
    def of_hosts(cls, hosts: Sequence[str], *, nproc_per_node: int = 1) -> Rendezvous:
        """Returns the rendezvous of instances that each have their own address; the usual ports are free there."""
        return cls(hosts[0], MASTER_PORT, tuple(f"{host}:{TF_PORT}" for host in hosts), nproc_per_node)

    @classmethod
    def on_loopback(
        cls, ports: Sequence[int], *, nproc_per_node: int = 1, roles: tuple[str, ...] = ()
    ) -> Rendezvous:
        """Returns the rendezvous of instances on one machine, from free ports: the master's, then one each."""
        return cls("127.0.0.1", ports[0], tuple(f"127.0.0.1:{port}" for port in ports[1:]), nproc_per_node, roles)


def name_instances(job_id: str, job_type: str, count: int) -> tuple[Instance, ...]:
    """Names the instances of a job as PAI does: a PyTorchJob has a master, all others have workers only."""
    instances = []
    for rank in range(count):
        is_master = job_type == "PyTorchJob" and rank == 0
        role = "master" if is_master else "worker"
        index = rank - 1 if job_type == "PyTorchJob" and rank else rank
        instances.append(Instance(f"{job_id}-{role}-{index}", role, rank, index))
    return tuple(instances)


def takes_part(role: str) -> bool:
    """Returns whether the instances of a role have a RANK: parameter servers and evaluators have none."""
    return role not in ROLES_APART


def rendezvous_variables(instance: Instance, rendezvous: Rendezvous, *, job_type: str) -> Mapping[str, str]:
    """Returns the environment variables by which the instances of a job find each other."""
    # A job of one instance has those of PyTorch too, so that its code needs no special case. It has no TF_CONFIG,
    # which means several workers to TensorFlow, except in jobs with roles, as in DLC.
    variables = {
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.port),
        "NPROC_PER_NODE": str(rendezvous.nproc_per_node),
    }
    if instance.rank < rendezvous.size:
        variables |= {"WORLD_SIZE": str(rendezvous.size), "RANK": str(instance.rank)}
    if job_type == "TFJob" and (rendezvous.roles or len(rendezvous.workers) > 1):
        cluster: dict[str, list[str]] = {}
        for role, address in zip(
            rendezvous.roles or ["worker"] * len(rendezvous.workers), rendezvous.workers, strict=True
        ):
            cluster.setdefault(role, []).append(address)
        task = {"type": instance.role, "index": instance.index}
        variables["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
    return variables


def free_ports(count: int, *, address: str = "127.0.0.1", ports_range: range = _PORTS) -> list[int]:
    """Returns different ports without a listener at an address of this host; empty: all of its addresses."""
    # From a range that Linux does not assign to clients, so they are still free when the instances bind them.
    from random import SystemRandom

    ports: list[int] = []
    for port in SystemRandom().sample(ports_range, len(ports_range)):
        with socket.socket() as probe, suppress(OSError):
            # Closed again at once: the instance binds the port later, and a race with another program is rare.
            probe.bind((address, port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(errno.EADDRINUSE, f"{count} ports are needed, and {len(ports)} are free")
