"""The Ray cluster, as the mirror process uses it: placement groups and actors of jobs, found by their names.

All of them are detached: they outlive this process, and the next one finds them. The placement group of a job is
`pai-NAMESPACE-JOB`, since names of groups are listed for the whole cluster; the actor of an instance is
`pai-INSTANCE` in the service's own namespace.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray
import ray.cloudpickle
import ray.util
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pai_sdk.errors import PaiError
from pai_sdk.execution.ray import actor
from pai_sdk.execution.ray.options import RayOptions
from pai_sdk.execution.ray.package import agent_package

__all__ = ["Cluster", "InstanceLost", "NodeAway", "NodeError", "Remote"]

logger = logging.getLogger(__name__)

_THREADS = 8  # of an actor: one waits for news, others stop and read files meanwhile
_END_TIMEOUT_S = 20.0
_UNAVAILABLE_PAUSE_S = 1.0
_GROUPS_EVERY_S = 0.2
# Ray tells a cluster that is away and one that wants a token by the same errors.
_ABOUT_TOKENS = (
    "if it demands a token (Ray 2.60 and newer), give this service RAY_AUTH_MODE=token and the token, "
    "in RAY_AUTH_TOKEN or by RAY_AUTH_TOKEN_PATH"
)
_CONNECT_AGAIN_S = 60.0  # Ray takes up to 45 s to tell that it has not worked


class InstanceLost(Exception):
    """The actor of an instance is gone, and with it all of its processes."""


class NodeError(PaiError):
    """The agent on a node could not do what was asked."""


class NodeAway(Exception):
    """The node does not respond, and the cluster has not given it up."""


class Remote:
    """An instance on its node: calls of its `HostedInstance`.

    Args:
        handle: of the actor.
        name: the instance.
    """

    def __init__(self, handle: Any, name: str) -> None:
        self._handle = handle
        self.name = name

    def ask(self, method: str, *arguments: Any) -> Any:
        """Begin a call; `Cluster.ready` says when it is over, and `result` gives its result."""
        return self._handle.call.remote(method, *arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method and wait for its result, also for a node that does not respond for a while.

        Raises:
            InstanceLost: the actor is gone.
            NodeError: the method raised.
        """
        return self._insist(lambda: self.ask(method, *arguments))

    def open(self, *arguments: Any) -> str:
        """Call `InstanceActor.open`; gives the id of the node."""
        self._insist(lambda: self._handle.open.remote(*arguments))
        return str(self._insist(lambda: self._handle.node.remote()))

    def result(self, reference: Any) -> Any:
        """The result of a call.

        Raises:
            InstanceLost: the actor is gone.
            NodeAway: ask again.
            NodeError: the method raised.
        """
        try:
            return ray.get(reference)
        except ActorUnavailableError as error:
            raise NodeAway(self.name) from error
        except RayActorError as error:
            raise InstanceLost(str(error)) from error
        except RayTaskError as error:
            raise NodeError(f"{self.name}: {str(error.cause)[:1000]}") from error

    def _insist(self, ask: Callable[[], Any]) -> Any:
        while True:
            try:
                return self.result(ask())
            except NodeAway:
                time.sleep(_UNAVAILABLE_PAUSE_S)


class Cluster:
    """A connection to the cluster; one in a process.

    Args:
        options: which cluster, and how it is used.
        namespace: of this service.

    Raises:
        PaiError: it does not respond.
    """

    def __init__(self, options: RayOptions, namespace: str) -> None:
        self.options = options
        self.namespace = namespace
        # By ray://, each call about groups is a task in the cluster: one at a time needs one process there.
        self._groups_lock = threading.Lock()
        self._groups_seen: dict[str, dict[str, Any]] = {}
        self._groups_due = 0.0
        ray.cloudpickle.register_pickle_by_value(actor)
        try:
            self._connect()
        except Exception as error:  # many kinds, by the way that the address is
            found = f"the Ray cluster at {options.address} cannot be used: {_short(error)}"
            raise PaiError(f"{found}; {_ABOUT_TOKENS}") from error
        self._package = ray.put(agent_package())

    def _connect(self) -> None:
        deadline = time.monotonic() + _CONNECT_AGAIN_S
        while True:
            try:
                ray.init(
                    address=self.options.address,
                    namespace=self.namespace,
                    log_to_driver=False,
                    configure_logging=False,
                    logging_level=logging.ERROR,
                )
                return
            except (
                ConnectionAbortedError
            ):  # the head could not start a process for this client; the next one may do
                if time.monotonic() > deadline:
                    raise
                logger.exception("connecting again")

    # ---- what it has ----

    def capacity(self) -> dict[str, float]:
        """CPUs, GPUs, memory in bytes and nodes of the cluster now."""
        found = ray.cluster_resources()
        names = {"cpus": "CPU", "gpus": "GPU", "memory_bytes": "memory"}
        nodes = len([node for node in ray.nodes() if node["Alive"]])
        return {**{ours: float(found.get(theirs, 0)) for ours, theirs in names.items()}, "nodes": nodes}

    def has_node(self, node_id: str) -> bool:
        """Return whether a node is part of the cluster."""
        return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())

    def jobs(self) -> set[str]:
        """The jobs of this service that have something in the cluster, by their placement groups."""
        prefix = self._group_name("")
        with self._groups_lock:
            groups = ray.util.placement_group_table().values()
        names = [str(group["name"]) for group in groups if group["state"] != "REMOVED"]
        return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}

    # ---- a job ----

    def group(self, job_id: str, bundles: Sequence[Mapping[str, float]]) -> Any:
        """The placement group of a job, made if there is none."""
        name = self._group_name(job_id)
        with self._groups_lock:
            with suppress(ValueError):
                return ray.util.get_placement_group(name)
            return ray.util.placement_group(
                [dict(bundle) for bundle in bundles],
                strategy=self.options.placement,
                name=name,
                lifetime="detached",
            )

    def instance(self, name: str) -> Remote | None:
        """An instance that has an actor."""
        try:
            return Remote(ray.get_actor(_actor_name(name), namespace=self.namespace), name)
        except ValueError:
            return None

    def place(self, name: str, group: Any, index: int, bundle: Mapping[str, float]) -> Remote:
        """The actor of an instance, made if there is none; it has all resources of its bundle."""
        found = self.instance(name)
        if found is not None:
            return found
        remote = ray.remote(actor.InstanceActor).options(
            name=_actor_name(name),
            namespace=self.namespace,
            lifetime="detached",
            num_cpus=bundle.get("CPU", 0),
            num_gpus=bundle.get("GPU", 0),
            memory=bundle.get("memory"),
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=_THREADS,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        )
        return Remote(remote.remote(), name)

    def open(self, remote: Remote, job_id: str) -> dict[str, str]:
        """Let an actor take its instance; gives id and address of its node."""
        node_id = remote.open(self._package, self.options.node_folder, self.namespace, job_id, remote.name)
        # The address by which the nodes know each other; a host may have others, too.
        (address,) = [node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == node_id]
        return {"id": node_id, "address": address}

    @staticmethod
    def send(remotes: Sequence[Remote], part: Any) -> None:
        """Send one part of files to several nodes, by the object store; it is there for this call only."""
        reference = ray.put(part)
        asked = [(remote, remote.ask("receive", reference)) for remote in remotes]
        for remote, call in asked:
            try:
                remote.result(call)
            except NodeAway:
                remote.call("receive", reference)

    @staticmethod
    def ready(references: Sequence[Any], *, timeout_s: float) -> list[Any]:
        """The calls that are over; waits until there is one."""
        if not references:
            time.sleep(timeout_s)
            return []
        ready: list[Any] = ray.wait(list(references), num_returns=1, timeout=timeout_s)[0]
        return ready

    def is_placed(self, group: Any) -> bool:
        """Return whether all bundles of a group had their place a moment ago; all jobs share what was seen."""
        with self._groups_lock:
            if time.monotonic() >= self._groups_due:
                self._groups_seen = ray.util.placement_group_table()
                self._groups_due = time.monotonic() + _GROUPS_EVERY_S
            return self._groups_seen.get(group.id.hex(), {}).get("state") == "CREATED"

    def release(self, job_id: str) -> None:
        """Kill what a job has in the cluster, and give its resources back."""
        prefix = _actor_name(f"{job_id}-")
        handles = [
            ray.get_actor(found["name"], namespace=self.namespace)
            for found in ray.util.list_named_actors(all_namespaces=True)
            if found["namespace"] == self.namespace and found["name"].startswith(prefix)
        ]
        asked = [handle.call.remote("end") for handle in handles]
        for handle, reference in zip(handles, asked, strict=True):
            with suppress(RayActorError, RayTaskError, GetTimeoutError):
                ray.get(reference, timeout=_END_TIMEOUT_S)
            ray.kill(handle)
        with self._groups_lock, suppress(ValueError):
            ray.util.remove_placement_group(ray.util.get_placement_group(self._group_name(job_id)))

    def _group_name(self, job_id: str) -> str:
        return f"pai-{self.namespace}-{job_id}"


def _actor_name(instance: str) -> str:
    return f"pai-{instance}"


def _short(error: Exception) -> str:
    """The first line of what an error says, and the last one where the first only introduces it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return (f"{lines[0]} {lines[-1].strip()}" if lines[0].endswith(":") else lines[0])[:500]
