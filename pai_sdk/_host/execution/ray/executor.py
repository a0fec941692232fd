"""Jobs on the nodes of a Ray cluster, without a shared file system.

The executor itself only reads and writes files: the `Journal` of each job, and the `Hub`. Its mirror process
(`mirror`) has the connection to the cluster. It places the instances of jobs, sends their files, and copies state,
logs and outputs back into the job's folder, so `files` is that folder.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

from pai_sdk._core.extras import install_command
from pai_sdk._core.reasons import REASON_NODE_LOST
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import (
    ClusterCapacity,
    ExecutionState,
    Executor,
    ExecutorCapabilities,
    ExecutorSetup,
    LaunchSpec,
)
from pai_sdk._host.execution.contract import cpus, gpus, job_description, memory_limit_bytes
from pai_sdk._host.execution.gang_state import ended, initial_states
from pai_sdk._host.execution.job_folder import JobFolder
from pai_sdk._host.execution.node_connections import NodeConnections
from pai_sdk._host.execution.ray.hub import Hub
from pai_sdk._host.execution.ray.options import RayOptions
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import PaiError, TunnelRefusedError

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 110.0
_END_TIMEOUT_S = 5.0
_MAX_PAUSE_S = 30.0
_POLL_INTERVAL_S = 0.5
_WITHDRAW_PATIENCE_S = 5.0
_WITHHELD_PREFIXES = ("ALIBABA_CLOUD_", "ALIBABACLOUD_", "OSS_", "PAI_")  # keys and settings of the service
# The package is imported from where this process found it, with the lowest precedence in sys.path.
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from pai_sdk._host.execution.ray.mirror import main; main(*sys.argv[2:])"
)
_RESTORED_MESSAGE = (
    "The folder of this job was restored from a backup that was made while it ran. Its instances belong to the "
    "service of which the backup was made. Submit it again."
)
_PACKAGE_PARENT = str(Path(__file__).parents[4])


class RayExecutor(Executor):
    """Runs the instances of a job as processes on nodes of a Ray cluster; all or none of them are placed."""

    capabilities = ExecutorCapabilities(
        uses_images=False, hosts="elsewhere", roles=True, mounts=True, tunnels=True
    )

    def __init__(self, hub: Path, options: RayOptions, *, grace_s: float = 10.0) -> None:
        self.options = options
        # Between SIGTERM and SIGKILL when a job is stopped.
        self.grace_s = grace_s
        # This executor's own folder; a later executor with the same one continues with its jobs.
        self.hub = hub
        self._hub = Hub(hub)
        self._mirror: subprocess.Popen[bytes] | None = None
        self._watchdog: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._nodes = NodeConnections()

    @classmethod
    def open(cls, setup: ExecutorSetup) -> RayExecutor:
        """Opens the executor for a service; the first time, it waits until the cluster responds."""
        options = RayOptions.parse(setup.options)
        if find_spec("ray") is None:
            raise PaiError(f'the executor "ray" needs Ray: {install_command("ray")}')
        hub = setup.jobs_dir.parent / "ray" if setup.jobs_dir is not None else setup.cache_dir / "ray"
        executor = cls(hub, options)
        executor._nodes = setup.node_connections
        executor.connect()
        return executor

    def connect(self) -> None:
        """Starts the mirror process, and restarts it until `close`."""
        with self._lock:
            if self._watchdog is not None:
                return
            # A cluster that never responded is an error; later, jobs wait until it does.
            if not self._hub.was_connected and not self._hub.has_mirror:
                self._start_mirror()
            self._watchdog = threading.Thread(target=self._run_watchdog, name="ray-mirror", daemon=True)
            self._watchdog.start()

    def close(self) -> None:
        """Detaches from the mirror process, which exits as soon as it has no jobs."""
        self._closing.set()
        if self._watchdog is not None:
            # Bounded: the thread may be waiting for a connection.
            self._watchdog.join(_END_TIMEOUT_S)
        if self._mirror is not None and not self._hub.active():
            with suppress(subprocess.TimeoutExpired):
                self._mirror.wait(timeout=_END_TIMEOUT_S)

    def start(self, spec: LaunchSpec) -> None:
        """Hands a job to the mirror process, where it waits until the cluster has room for all its instances."""
        journal = Journal(spec.sandbox.state_dir)
        if journal.read_state() is not None:
            return
        job = {
            **job_description(spec, grace_s=self.grace_s),
            "bundles": self._bundles(spec),
        }
        self.connect()
        # Before the state is written: a job with a state that the hub does not list counts as lost.
        self._hub.add(spec.job_id, spec.sandbox.root)
        try:
            journal.write_job(job)
            journal.reserve_space()
            journal.write_state(ExecutionState("preparing", instances=initial_states(spec.instances)))
        except BaseException:
            self.withdraw(spec.sandbox.root)
            raise

    def withdraw(self, root: Path) -> None:
        """Cancels an interrupted start."""
        journal = Journal(Sandbox(root.resolve()).state_dir)
        journal.withdraw_job(patience_s=_WITHDRAW_PATIENCE_S)
        if journal.read_state() is None:
            self._hub.drop(root.name)

    def state(self, root: Path) -> ExecutionState:
        """Returns the state that the mirror process has written last."""
        journal = Journal(Sandbox(root).state_dir)
        state = journal.read_state()
        if state is None or state.phase == "ended" or self._hub.has(root.name):
            return state or ExecutionState("absent")
        # Read again: the job may have ended before `has` was called.
        state = journal.read_state() or state
        if state.phase != "ended":
            # Its folder is from a backup: this service has not started it.
            state = replace(state, reason_code=REASON_NODE_LOST, reason_message=_RESTORED_MESSAGE)
            state = ended(state, now=time.time())
            journal.write_state(state)
        return state

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Asks all instances to exit; returns at once. The reason of the first call is kept."""
        journal = Journal(Sandbox(root).state_dir)
        state = journal.read_state()
        if state is not None and state.phase != "ended":
            journal.request_stop(reason_code, reason_message)

    def nodes(self, root: Path) -> Mapping[str, str]:
        """Returns the addresses of the nodes of the instances, once they are placed."""
        sandbox = Sandbox(root)
        state = Journal(sandbox.state_dir).read_state()
        names = [part.name for part in state.instances] if state is not None else []
        try:
            # Written by the mirror process, once the instances have their nodes.
            nodes = json.loads((sandbox.state_dir / "ray.json").read_text())["nodes"]
            return {name: str(node["address"]) for name, node in zip(names, nodes, strict=False)}
        except (FileNotFoundError, ValueError, KeyError):
            return {}

    def connect_tunnel(self, root: Path, instance: str) -> socket.socket:
        """Returns a connection to an instance, whose actor opens it from its node.

        Raises:
            TunnelRefusedError: the instance cannot be entered; `code` says why.
        """
        address = self.nodes(root).get(instance)
        if address is None:
            raise TunnelRefusedError("InstanceNotRunning", "the instance has no node yet")
        with self._nodes.expect(address) as expected:
            name = self._hub.request_tunnel(instance, expected.request)
            try:
                return expected.wait(lambda: self._hub.tunnel_refusal(name))
            finally:
                self._hub.withdraw_tunnel_request(name)

    def has_let_go(self, root: Path) -> bool:
        """Returns whether the cluster has released all resources of the job."""
        return root.name not in self._hub.active()

    def files(self, root: Path) -> JobFolder:
        """Returns the files of a job in its local folder; outputs of a running job arrive some seconds late."""
        return JobFolder(Sandbox(root))

    def remove(self, root: Path) -> None:
        """Removes a job's folder. Its actors are killed as soon as the cluster responds."""
        self.withdraw(root)
        self._hub.remove(root.name)
        Sandbox(root.resolve()).remove()

    def sweep(self) -> Sequence[str]:
        """Kills the remains of jobs whose folder is gone; returns the job ids."""
        orphaned = [job_id for job_id, root in self._hub.active().items() if not root.exists()]
        for job_id in orphaned:
            self._hub.remove(job_id)
        return orphaned

    def capacity(self) -> ClusterCapacity | None:
        """Returns the capacity that the cluster reported last; more if it can grow."""
        capacity = self._hub.capacity()
        if capacity is None:
            return None
        return ClusterCapacity(
            capacity["cpus"],
            int(capacity["gpus"]),
            capacity["memory_bytes"],
            int(capacity["nodes"]),
            self.options.cpus_per_instance,
        )

    def _bundles(self, spec: LaunchSpec) -> list[dict[str, float]]:
        """Returns the resources of each instance, in rank order."""
        roles = [self._bundle(request) for request in spec.request.role_requests]
        return [roles[instance.group] for instance in spec.instances]

    def _bundle(self, request: TrainingJobRequest) -> dict[str, float]:
        """Returns the resources of one instance under Ray's names."""
        requested_cpus = cpus(request)
        needed = {
            "CPU": self.options.cpus_per_instance if requested_cpus is None else requested_cpus,
            "GPU": gpus(request),
            "memory": memory_limit_bytes(request) or 0,
        }
        return {name: amount for name, amount in needed.items() if amount} or {"CPU": 0.001}

    # ---- the mirror process ----

    def _start_mirror(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(_WITHHELD_PREFIXES)
        }
        with self._hub.log.open("ab") as log:
            mirror = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BOOT,
                    _PACKAGE_PARENT,
                    str(self._hub.path),
                    json.dumps(asdict(self.options)),
                ],
                # The end of this pipe tells the mirror that the service has ended, also after a kill.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        # readline has no timeout: a mirror process that cannot connect is killed, which closes its output.
        timer = threading.Timer(_CONNECT_TIMEOUT_S, mirror.kill)
        timer.start()
        try:
            first_line = mirror.stdout.readline().decode(errors="replace").strip() if mirror.stdout else ""
        finally:
            timer.cancel()
        if first_line != "ready":
            mirror.kill()
            mirror.wait()
            _close(mirror)
            no_response = (
                f"the Ray cluster at {self.options.address} did not respond; see the end of {self._hub.log}"
            )
            raise PaiError(first_line or no_response)
        # The mirror may outlive this executor; without a thread that reaps it, it would stay a zombie.
        threading.Thread(target=mirror.wait, name="pai-mirror-reaper", daemon=True).start()
        self._mirror = mirror

    def _run_watchdog(self) -> None:
        """Restarts the mirror process after it has exited, which it does when the cluster goes away."""
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            pause_s = max(pause_s, _POLL_INTERVAL_S)
            if self._mirror is not None and self._mirror.poll() is not None:
                _close(self._mirror)
                self._mirror = None
            if self._mirror is None:
                # An orphaned mirror of an earlier service exits then, and this executor starts its own.
                self._hub.clear_orphaned()
            if self._hub.has_mirror:
                pause_s = _POLL_INTERVAL_S
            elif self._mirror is None:
                try:
                    self._start_mirror()
                except PaiError as error:
                    logger.warning("jobs wait: %s", error)
                    pause_s = min(2 * pause_s, _MAX_PAUSE_S)
        if self._mirror is not None:
            _close(self._mirror)


def _close(mirror: subprocess.Popen[bytes]) -> None:
    for stream in (mirror.stdin, mirror.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
