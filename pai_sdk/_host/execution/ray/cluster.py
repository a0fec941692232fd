"""The Ray cluster, as the mirror process uses it: placement groups and actors of jobs, found by their names.

All of them are detached: they outlive this process, and the next one finds them. The placement group of a job is
`pai-NAMESPACE-JOB`, because Ray lists group names for the complete cluster; the actor of an instance is
`pai-INSTANCE` in the service's own namespace.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
import ray.cloudpickle
import ray.util
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pai_sdk._host.execution.ray import actor
from pai_sdk._host.execution.ray.options import RayOptions
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)
_THREADS = 8  # per actor: one waits for news while others stop the instance and read files
_END_TIMEOUT_S = 20.0
_UNAVAILABLE_PAUSE_S = 1.0
_GROUPS_INTERVAL_S = 0.2
# Ray raises the same errors for an unreachable cluster and for one that demands a token.
_AUTHENTICATION_HINT = (
    "if it demands a token (Ray 2.60 and newer), give this service RAY_AUTH_MODE=token and the token, "
    "in RAY_AUTH_TOKEN or by RAY_AUTH_TOKEN_PATH"
)
_CONNECT_DEADLINE_S = 60.0  # Ray takes up to 45 s to report a failed connection

_PACKAGE = Path(__file__).resolve().parents[3]
_AGENT_DEPENDENCIES = (
    "_core/__init__.py",
    "_core/files.py",
    "_core/reasons.py",
    "_data/__init__.py",
    "_data/run/__init__.py",
    "_data/run/report/__init__.py",
    "_data/run/report/debugger_marker.py",
    "_host/__init__.py",
    "errors.py",
)


class InstanceLost(Exception):
    """Raised when the actor of an instance is gone, and with it all of its processes."""


class NodeError(PaiError):
    """Raised when the agent on a node fails to carry out a call."""


class NodeAway(Exception):
    """Raised when a node does not respond and the cluster has not declared it dead."""


class Remote:
    """An instance on its node; calls the methods of its `HostedInstance` by the actor's handle."""

    def __init__(self, handle: Any, name: str) -> None:
        self._handle = handle
        self.name = name

    def ask(self, method: str, *arguments: Any) -> Any:
        """Starts a call; `Cluster.ready` waits for it, and `result` returns its result."""
        return self._handle.call.remote(method, *arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method and waits for its result, also while the node does not respond."""
        return self._call_until_available(lambda: self.ask(method, *arguments))

    def open(self, *arguments: Any) -> str:
        """Calls `InstanceActor.open`; returns the id of the node."""
        self._call_until_available(lambda: self._handle.open.remote(*arguments))
        return str(self._call_until_available(lambda: self._handle.node.remote()))

    def result(self, reference: Any) -> Any:
        """Returns the result of a call. NodeAway: call again; InstanceLost: the actor is gone."""
        try:
            return ray.get(reference)
        except ActorUnavailableError as error:
            raise NodeAway(self.name) from error
        except RayActorError as error:
            raise InstanceLost(str(error)) from error
        except RayTaskError as error:
            raise NodeError(f"{self.name}: {str(error.cause)[:1000]}") from error

    def _call_until_available(self, ask: Callable[[], Any]) -> Any:
        while True:
            try:
                return self.result(ask())
            except NodeAway:
                time.sleep(_UNAVAILABLE_PAUSE_S)


class Cluster:
    """A connection to the cluster; one per process, with the service's namespace."""

    def __init__(self, options: RayOptions, namespace: str) -> None:
        self.options = options
        self.namespace = namespace
        # By ray://, each call about groups is a task in the cluster: one call at a time needs one process there.
        self._groups_lock = threading.Lock()
        self._groups: dict[str, dict[str, Any]] = {}
        self._next_groups_at = 0.0
        ray.cloudpickle.register_pickle_by_value(actor)
        try:
            self._connect()
        except Exception as error:
            # Ray's exception type depends on the kind of address.
            message = f"the Ray cluster at {options.address} cannot be used: {_summary(error)}"
            raise PaiError(f"{message}; {_AUTHENTICATION_HINT}") from error
        # In the object store, so that each node fetches it once.
        self._package = ray.put(agent_package())

    def _connect(self) -> None:
        deadline = time.monotonic() + _CONNECT_DEADLINE_S
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
            # The head could not start a process for this client; the next one may do.
            except ConnectionAbortedError:
                if time.monotonic() > deadline:
                    raise
                logger.exception("connecting again")

    # ---- what it has ----

    def capacity(self) -> dict[str, float]:
        """Returns CPUs, GPUs, memory in bytes and nodes of the cluster now."""
        resources = ray.cluster_resources()
        names = {"cpus": "CPU", "gpus": "GPU", "memory_bytes": "memory"}
        nodes = len([node for node in ray.nodes() if node["Alive"]])
        return {**{name: float(resources.get(ray_name, 0)) for name, ray_name in names.items()}, "nodes": nodes}

    def has_node(self, node_id: str) -> bool:
        """Returns whether a node is alive in the cluster."""
        return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())

    def jobs(self) -> set[str]:
        """Returns the jobs of this service that have a placement group in the cluster."""
        prefix = self._group_name("")
        with self._groups_lock:
            groups = ray.util.placement_group_table().values()
        names = [str(group["name"]) for group in groups if group["state"] != "REMOVED"]
        return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}

    # ---- a job ----

    def group(self, job_id: str, bundles: Sequence[Mapping[str, float]]) -> Any:
        """Returns the placement group of a job; creates it if there is none."""
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
        """Returns an instance that has an actor; None if it has none."""
        try:
            return Remote(ray.get_actor(_actor_name(name), namespace=self.namespace), name)
        except ValueError:
            return None

    def ensure_actor(self, name: str, group: Any, index: int, bundle: Mapping[str, float]) -> Remote:
        """Returns the actor of an instance, created if there is none, with all resources of its bundle."""
        existing = self.instance(name)
        if existing is not None:
            return existing
        remote = ray.remote(actor.InstanceActor).options(
            name=_actor_name(name),
            namespace=self.namespace,
            lifetime="detached",
            num_cpus=bundle.get("CPU", 0),
            num_gpus=bundle.get("GPU", 0),
            memory=bundle.get("memory"),
            # A restarted actor would have no instance: the processes die with the first one.
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=_THREADS,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        )
        return Remote(remote.remote(), name)

    def open(self, remote: Remote, job_id: str) -> dict[str, str]:
        """Creates the instance in its actor; returns id and address of its node."""
        node_id = remote.open(self._package, self.options.node_folder, self.namespace, job_id, remote.name)
        # The address that nodes use among themselves; a host may have several.
        (address,) = [node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == node_id]
        return {"id": node_id, "address": address}

    @staticmethod
    def send(remotes: Sequence[Remote], part: Any, *mount: int) -> None:
        """Sends a part of files to several nodes by the object store, which keeps it for this call only."""
        reference = ray.put(part)
        calls = [(remote, remote.ask("receive", reference, *mount)) for remote in remotes]
        for remote, call in calls:
            try:
                remote.result(call)
            except NodeAway:
                remote.call("receive", reference, *mount)

    @staticmethod
    def ready(references: Sequence[Any], *, timeout_s: float) -> list[Any]:
        """Returns the finished calls; waits until there is one."""
        if not references:
            time.sleep(timeout_s)
            return []
        ready: list[Any] = ray.wait(list(references), num_returns=1, timeout=timeout_s)[0]
        return ready

    def is_placed(self, group: Any) -> bool:
        """Returns whether all bundles of a group are placed; the table is cached and shared by all jobs."""
        with self._groups_lock:
            if time.monotonic() >= self._next_groups_at:
                self._groups = ray.util.placement_group_table()
                self._next_groups_at = time.monotonic() + _GROUPS_INTERVAL_S
            return self._groups.get(group.id.hex(), {}).get("state") == "CREATED"

    def release(self, job_id: str) -> None:
        """Kills the actors of a job and returns its resources to the cluster."""
        prefix = _actor_name(f"{job_id}-")
        handles = [
            ray.get_actor(actor_entry["name"], namespace=self.namespace)
            for actor_entry in ray.util.list_named_actors(all_namespaces=True)
            if actor_entry["namespace"] == self.namespace and actor_entry["name"].startswith(prefix)
        ]
        # All are started before the first wait, so that the instances end in parallel.
        calls = [handle.call.remote("end") for handle in handles]
        for handle, reference in zip(handles, calls, strict=True):
            with suppress(RayActorError, RayTaskError, GetTimeoutError):
                ray.get(reference, timeout=_END_TIMEOUT_S)
            # Also if `end` has failed: when an actor dies, the guardian on its node kills the processes.
            ray.kill(handle)
        with self._groups_lock, suppress(ValueError):
            ray.util.remove_placement_group(ray.util.get_placement_group(self._group_name(job_id)))

    def _group_name(self, job_id: str) -> str:
        return f"pai-{self.namespace}-{job_id}"


def _actor_name(instance: str) -> str:
    return f"pai-{instance}"


def _summary(error: Exception) -> str:
    """Returns the first line of an error, and the last one if the first only introduces it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return (f"{lines[0]} {lines[-1].strip()}" if lines[0].endswith(":") else lines[0])[:500]


def agent_package() -> dict[str, bytes]:
    """Returns the modules by their path in a folder of `sys.path`."""
    names = [
        *_AGENT_DEPENDENCIES,
        *(path.relative_to(_PACKAGE).as_posix() for path in _PACKAGE.glob("_host/agent/**/*.py")),
    ]
    return {"pai_sdk/__init__.py": b"", **{f"pai_sdk/{name}": (_PACKAGE / name).read_bytes() for name in names}}
