"""A Ray cluster on nodes of this machine: a head and two workers.

    with RayCluster(folder) as cluster:
        print(cluster.client_address, cluster.dashboard_url)

Nothing here calls `ray stop`, which would end every Ray of this machine.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.cluster import nodes as machines
from tests.cluster.nodes import Node, Nodes
from tests.support.waiting import until

__all__ = ["RayCluster", "why_not"]

_UP_WITHIN_S = 180.0
_OBJECT_STORE_BYTES = 200 << 20
# A killed node is noticed after three seconds, not thirty; one that is only slow is not given up. The values are
# Ray's own settings.
_QUICK_HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}


def why_not() -> str | None:
    """Why there can be no such cluster on this machine, in one line; None where there can."""
    if find_spec("ray") is None:
        return "Ray is not installed for this Python"
    return machines.why_not()


class RayCluster:
    """A head and workers, each with some CPUs.

    Attributes:
        nodes: where they run; the first is the head.
        folder: their logs.
        cpus: how many CPUs each node says it has.
    """

    def __init__(self, folder: Path, *, count: int = 3, cpus: int = 4) -> None:
        self.folder = folder
        self.cpus = cpus
        self.nodes = Nodes(count)
        self._stack = ExitStack()
        self._starts: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> RayCluster:
        with ExitStack() as stack:
            stack.enter_context(self.nodes)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._start_head()
            for worker in self.nodes[1:]:
                self.start_worker(worker)
            self.wait_for(len(self.nodes))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def head(self) -> Node:
        """The node with the cluster's state, its dashboard and the server of Ray clients."""
        node: Node = self.nodes[0]
        return node

    @property
    def address(self) -> str:
        """The address by which nodes and programs on them join the cluster."""
        return f"{self.head.address}:6379"

    @property
    def client_address(self) -> str:
        """The address for a client on another machine, such as this one."""
        return f"ray://{self.head.address}:10001"

    @property
    def dashboard_url(self) -> str:
        """The dashboard, with the REST interface of Ray Jobs."""
        return f"http://{self.head.address}:8265"

    def start_worker(self, node: Node) -> None:
        """Have a node join the cluster."""
        self._start(node, "--address", self.address)

    def kill_raylet(self, index: int) -> None:
        """Kill the process by which a node belongs to the cluster, as when it crashes."""
        assert self.nodes[index].kill_processes("raylet") == 1

    def restart_worker(self, index: int) -> None:
        """End all of Ray on a node, and have the node join the cluster again."""
        self.nodes[index].kill_processes()
        self.start_worker(self.nodes[index])

    def restart_head(self) -> None:
        """Kill everything on the head, start it again, and have the others join its new, empty cluster."""
        self.head.kill_processes()
        self._start_head()
        for index in range(1, len(self.nodes)):
            self.restart_worker(index)
        self.wait_for(len(self.nodes))

    def repair(self) -> None:
        """Have every node belong to the cluster again, after faults that were injected."""
        if self.head.address not in self.living_nodes():
            self.restart_head()
        for index, node in enumerate(self.nodes):
            if node.address not in self.living_nodes():
                self.restart_worker(index)
        self.wait_for(len(self.nodes))

    def wait_for(self, count: int) -> None:
        """Wait until this number of nodes is alive, and clients and the dashboard can connect."""
        ports = (8265, 10001)

        def is_whole() -> bool:
            for index in range(1, len(self.nodes)):
                if self._has_given_up(self.nodes[index]):
                    self.restart_worker(index)
            return len(self.living_nodes()) == count and all(_accepts(self.head.address, port) for port in ports)

        until(
            is_whole,
            f"a Ray cluster of {count} nodes (logs: {self.folder})",
            within_s=_UP_WITHIN_S,
            pause_s=0.2,
        )

    def living_nodes(self) -> list[str]:
        """The addresses of the nodes that belong to the cluster; none while the head is down."""
        return [node.node_ip_address for node in self._resources()]

    def free_cpus(self) -> float:
        """The CPUs of all living nodes that nothing holds."""
        return sum(node.available_resources.get("CPU", 0.0) for node in self._resources())

    def _resources(self) -> list[Any]:
        """The nodes that are not dead, with their resources as of now; the dashboard's are seconds old."""
        from ray._raylet import GcsClient
        from ray.core.generated import autoscaler_pb2
        from ray.exceptions import RpcError

        if not _accepts(self.head.address, 6379):
            return []
        with suppress(RpcError):
            answer = GcsClient(address=self.address).get_cluster_resource_state()
            state = autoscaler_pb2.GetClusterResourceStateReply.FromString(answer).cluster_resource_state
            return [node for node in state.node_states if node.status != autoscaler_pb2.NodeStatus.DEAD]
        return []

    def wait_until_free(self) -> None:
        """Wait until nothing holds a CPU of a living node."""
        until(
            lambda: self.free_cpus() == self.cpus * len(self.living_nodes()),
            "the end of all use of the cluster",
            pause_s=0.2,
        )

    def log(self, node: Node) -> str:
        """What Ray printed when it was started on a node."""
        return (self.folder / f"{node.name}.log").read_text(errors="replace")

    def _has_given_up(self, node: Node) -> bool:
        """Whether Ray has ended on a node. It gives a start up after 30 s, which a busy machine may need."""
        return self._starts[node.name].poll() is not None

    def _start_head(self) -> None:
        role = ("--head", "--port", "6379", "--ray-client-server-port", "10001")
        role += ("--dashboard-host", "0.0.0.0", "--dashboard-port", "8265")
        self._start(self.head, *role)

        def is_up() -> bool:
            if self._has_given_up(self.head):
                self.head.kill_processes()
                self._start(self.head, *role)
            return bool(self.living_nodes())

        until(is_up, f"the head (logs: {self.folder})", within_s=_UP_WITHIN_S, pause_s=0.1)

    def _start(self, node: Node, *role: str) -> None:
        self._starts[node.name] = node.start(
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"),
            *("--node-ip-address", node.address, "--num-cpus", str(self.cpus)),
            *("--object-store-memory", str(_OBJECT_STORE_BYTES)),
            *role,
            log=self.folder / f"{node.name}.log",
            **_QUICK_HEALTH_CHECKS,
            RAY_AUTH_MODE="disabled",
            # With it, the server of Ray clients now and then crashes while it starts a process for one.
            GRPC_ENABLE_FORK_SUPPORT="false",
        )


def _accepts(address: str, port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((address, port)) == 0
