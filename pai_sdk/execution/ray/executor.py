"""Jobs on the nodes of a Ray cluster, without a shared file system.

The executor itself only reads and writes files: the `Journal` of each job, and the `Hub`. Its mirror process
(`mirror`) has the connection to the cluster. It places the instances of jobs, sends their files, and brings state,
logs and outputs back into the job's folder, so `files` is that folder.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

from pai_sdk.agent.journal import Journal
from pai_sdk.agent.protocol import InstanceState
from pai_sdk.agent.reasons import REASON_NODE_LOST
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.extras import install_command
from pai_sdk.errors import PaiError
from pai_sdk.execution.base import (
    ClusterCapacity,
    ExecutionState,
    Executor,
    ExecutorCapabilities,
    ExecutorSetup,
    LaunchSpec,
)
from pai_sdk.execution.contract import cpus, gpus, job_facts
from pai_sdk.execution.gang_state import ended
from pai_sdk.execution.job_folder import JobFolder
from pai_sdk.execution.ray.hub import Hub
from pai_sdk.execution.ray.options import RayOptions

__all__ = ["RayExecutor"]

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 110.0
_END_TIMEOUT_S = 5.0
_LONGEST_PAUSE_S = 30.0
_LOOK_S = 0.5
_WITHDRAW_PATIENCE_S = 5.0
_NOT_HANDED_ON = ("ALIBABA_CLOUD_", "ALIBABACLOUD_", "OSS_", "PAI_")  # keys and settings of the service
# The package is found wherever this process found it, behind everything else that the interpreter knows.
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from pai_sdk.execution.ray.mirror import main; main(*sys.argv[2:])"
)
_FROM_A_BACKUP = (
    "The folder of this job was restored from a backup that was made while it ran. Its instances belong to the "
    "service of which the backup was made. Submit it again."
)
_PACKAGE_PARENT = str(Path(__file__).parents[3])


class RayExecutor(Executor):
    """Runs the instances of a job as processes on nodes of a Ray cluster; all or none of them are placed.

    Attributes:
        hub: a folder of this executor's own; others with the same one continue with its jobs.
        options: which cluster, and how it is used.
        grace_s: seconds between SIGTERM and SIGKILL when a job is stopped.
    """

    capabilities = ExecutorCapabilities(uses_images=False, hosts="elsewhere")

    def __init__(self, hub: Path, options: RayOptions, *, grace_s: float = 10.0) -> None:
        self.options = options
        self.grace_s = grace_s
        self.hub = hub
        self._hub = Hub(hub)
        self._mirror: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @classmethod
    def open(cls, setup: ExecutorSetup) -> RayExecutor:
        """The executor of a service; the first time, it waits until the cluster responds."""
        options = RayOptions.parse(setup.options)
        if find_spec("ray") is None:
            raise PaiError(f'the executor "ray" needs Ray: {install_command("ray")}')
        hub = setup.jobs_dir.parent / "ray" if setup.jobs_dir is not None else setup.cache_dir / "ray"
        executor = cls(hub, options)
        executor.connect()
        return executor

    def connect(self) -> None:
        """Start the mirror process, and keep one at work until `close`.

        Raises:
            PaiError: the cluster does not respond, and never did. Later, jobs wait until it does.
        """
        with self._lock:
            if self._keeper is not None:
                return
            if not self._hub.knows_cluster and not self._hub.has_mirror:
                self._start_mirror()
            self._keeper = threading.Thread(target=self._keep_mirror, name="ray-mirror", daemon=True)
            self._keeper.start()

    def close(self) -> None:
        """Leave the mirror process: it ends as soon as there are no jobs."""
        self._closing.set()
        if self._keeper is not None:
            self._keeper.join(_END_TIMEOUT_S)  # it may be connecting
        if self._mirror is not None and not self._hub.active():
            with suppress(subprocess.TimeoutExpired):
                self._mirror.wait(timeout=_END_TIMEOUT_S)

    def start(self, spec: LaunchSpec) -> None:
        """Hand a job to the mirror process; it waits there until the cluster has room for all its instances."""
        journal = Journal(spec.sandbox.state_dir)
        if journal.read_state() is not None:
            return
        facts = {
            **job_facts(spec, grace_s=self.grace_s),
            "bundles": [self._bundle(spec)] * len(spec.instances),
            # Ray 2.60 leaves an actor without GPUs the CUDA_VISIBLE_DEVICES of its node.
            "hides_gpus": not gpus(spec.request),
        }
        self.connect()
        self._hub.add(spec.job_id, spec.sandbox.root)
        try:
            journal.write_job(facts)
            journal.keep_room()
            instances = tuple(InstanceState(one.name, one.role) for one in spec.instances)
            journal.write_state(ExecutionState("preparing", instances=instances))
        except BaseException:
            self.withdraw(spec.sandbox.root)
            raise

    def withdraw(self, root: Path) -> None:
        """Take back a start that was cut off."""
        journal = Journal(Sandbox(root.resolve()).state_dir)
        journal.withdraw_job(patience_s=_WITHDRAW_PATIENCE_S)
        if journal.read_state() is None:
            self._hub.drop(root.name)

    def state(self, root: Path) -> ExecutionState:
        """The state as the mirror process has written it last.

        A job that this service has not started, since its folder is from a backup, is lost.
        """
        journal = Journal(Sandbox(root).state_dir)
        state = journal.read_state()
        if state is None or state.phase == "ended" or self._hub.has(root.name):
            return state or ExecutionState("absent")
        state = journal.read_state() or state  # again: it may have ended between the two looks
        if state.phase != "ended":
            state = replace(state, reason_code=REASON_NODE_LOST, reason_message=_FROM_A_BACKUP)
            state = ended(state, now=time.time())
            journal.write_state(state)
        return state

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Ask all instances to end; returns at once. The first reason given stays."""
        journal = Journal(Sandbox(root).state_dir)
        state = journal.read_state()
        if state is not None and state.phase != "ended":
            journal.request_stop(reason_code, reason_message)

    def has_let_go(self, root: Path) -> bool:
        """Return whether the cluster has nothing of the job any more."""
        return root.name not in self._hub.active()

    def files(self, root: Path) -> JobFolder:
        """The files of a job, in its folder here; while it runs, its outputs follow after some seconds."""
        return JobFolder(Sandbox(root))

    def remove(self, root: Path) -> None:
        """Remove a job's folder. What the job has in the cluster is killed as soon as the cluster responds."""
        self.withdraw(root)
        self._hub.remove(root.name)
        Sandbox(root.resolve()).remove()

    def sweep(self) -> Sequence[str]:
        """Kill what is left of jobs whose folder has gone; gives their ids."""
        gone = [job_id for job_id, root in self._hub.active().items() if not root.exists()]
        for job_id in gone:
            self._hub.remove(job_id)
        return gone

    def capacity(self) -> ClusterCapacity | None:
        """What the cluster reported last; more where it can grow."""
        found = self._hub.capacity()
        if found is None:
            return None
        return ClusterCapacity(
            found["cpus"],
            int(found["gpus"]),
            found["memory_bytes"],
            int(found["nodes"]),
            self.options.cpus_per_instance,
        )

    def _bundle(self, spec: LaunchSpec) -> dict[str, float]:
        """What one instance needs of a node, in Ray's words."""
        named = cpus(spec.request)
        needed = {
            "CPU": self.options.cpus_per_instance if named is None else named,
            "GPU": gpus(spec.request),
            "memory": spec.limits.memory_bytes or 0,
        }
        return {name: amount for name, amount in needed.items() if amount} or {"CPU": 0.001}

    # ---- the mirror process ----

    def _start_mirror(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_HANDED_ON)}
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
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        timer = threading.Timer(_CONNECT_TIMEOUT_S, mirror.kill)
        timer.start()
        try:
            said = mirror.stdout.readline().decode(errors="replace").strip() if mirror.stdout else ""
        finally:
            timer.cancel()
        if said != "ready":
            mirror.kill()
            mirror.wait()
            _close(mirror)
            silent = f"the Ray cluster at {self.options.address} did not respond; see the end of {self._hub.log}"
            raise PaiError(said or silent)
        # It may go on when this executor has ended: a thread reaps it, or it would stay a zombie.
        threading.Thread(target=mirror.wait, name="pai-mirror-reaper", daemon=True).start()
        self._mirror = mirror

    def _keep_mirror(self) -> None:
        """Start the mirror process again where it has ended: it ends when the cluster goes away."""
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            pause_s = max(pause_s, _LOOK_S)
            if self._mirror is not None and self._mirror.poll() is not None:
                _close(self._mirror)
                self._mirror = None
            if self._mirror is None:
                self._hub.relieve()
            if self._hub.has_mirror:
                pause_s = _LOOK_S
            elif self._mirror is None:
                try:
                    self._start_mirror()
                except PaiError as error:
                    logger.warning("jobs wait: %s", error)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        if self._mirror is not None:
            _close(self._mirror)


def _close(mirror: subprocess.Popen[bytes]) -> None:
    for stream in (mirror.stdin, mirror.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
