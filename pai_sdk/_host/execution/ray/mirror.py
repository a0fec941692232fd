"""The mirror process: it connects to the cluster for a service, and mirrors the cluster's jobs.

It is a process of its own, because Ray keeps one connection per process, and ends that process when the cluster
goes away. It prints `ready`, or why it cannot work. When its standard input is closed, its service has ended: it
continues until all jobs have ended, or another service starts a new one. A kill loses nothing: the next mirror
continues.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pai_sdk._core.files import locked
from pai_sdk._host.agent.tunnel.connecting import NO_TUNNELS
from pai_sdk._host.execution.ray.cluster import Cluster, NodeError
from pai_sdk._host.execution.ray.hub import Hub
from pai_sdk._host.execution.ray.job_mirror import Cancelled, JobMirror
from pai_sdk._host.execution.ray.options import RayOptions
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.05
_PAUSE_AFTER_ERROR_S = 1.0
_CAPACITY_INTERVAL_S = 5.0
_SWEEP_INTERVAL_S = 60.0
_DIAL_TUNNEL = "dial_tunnel"  # of `HostedInstance`


def main(hub_path: str, options: str) -> None:
    """Mirrors until standard input is closed, and then as long as there are jobs and no other service."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    hub = Hub(Path(hub_path))
    # One mirror per hub. The lock ends with its process, so a killed mirror needs no cleanup.
    with locked(hub.lock):
        # The mark of a mirror that was killed.
        hub.clear_orphaned()
        service_ended = threading.Event()
        threading.Thread(target=_watch_service, args=(hub, service_ended), daemon=True).start()
        try:
            # `options` has the fields of `RayOptions` as JSON.
            cluster = Cluster(RayOptions(**json.loads(options)), hub.namespace)
        except PaiError as error:
            _print(str(error))
            sys.exit(1)
        mirror = _Mirror(hub, cluster)
        _print("ready")
        while not service_ended.is_set() or (hub.is_orphaned and not mirror.is_idle):
            mirror.step()
            time.sleep(_POLL_INTERVAL_S)
        logging.shutdown()
        # Threads of jobs, and of Ray, would continue during a normal exit.
        os._exit(0)


class _Mirror:
    """Mirrors all jobs, with one thread for each."""

    def __init__(self, hub: Hub, cluster: Cluster) -> None:
        self._hub = hub
        self._cluster = cluster
        self._threads: dict[str, threading.Thread] = {}
        self._next_capacity_at = self._next_sweep_at = 0.0

    @property
    def is_idle(self) -> bool:
        """Returns whether there is no unfinished job."""
        return not (self._threads or self._hub.removed() or any(map(Path.exists, self._hub.active().values())))

    def step(self) -> None:
        """Starts new jobs, releases removed ones, and reports the capacity when it is due."""
        for job_id, root in self._hub.active().items():
            # Without a state, `start` has not finished yet.
            if job_id not in self._threads and (root / "state" / "state.json").exists():
                self._start(job_id, root)
        # A removed job is released only after its thread has exited, which may still create actors.
        for job_id in self._hub.removed():
            if job_id not in self._threads:
                self._cluster.release(job_id)
                self._hub.forget_removed(job_id)
        self._dial_tunnels()
        for job_id, thread in list(self._threads.items()):
            if not thread.is_alive():
                del self._threads[job_id]
        now = time.monotonic()
        if now >= self._next_capacity_at:
            self._next_capacity_at = now + _CAPACITY_INTERVAL_S
            self._hub.write_capacity(self._cluster.capacity())
        if now >= self._next_sweep_at:
            self._next_sweep_at = now + _SWEEP_INTERVAL_S
            for job_id in self._cluster.jobs() - self._hub.active().keys():
                self._cluster.release(job_id)

    def _start(self, job_id: str, root: Path) -> None:
        thread = threading.Thread(target=self._run, args=(job_id, root), name=job_id, daemon=True)
        self._threads[job_id] = thread
        thread.start()

    def _run(self, job_id: str, root: Path) -> None:
        try:
            JobMirror(self._cluster, root, lambda: job_id not in self._hub.active()).run()
            self._hub.drop(job_id)
        except Cancelled:
            logger.info("%s was removed", job_id)
        except Exception:
            if root.exists():
                logger.exception("%s: trying again", job_id)
            time.sleep(_PAUSE_AFTER_ERROR_S)
            self._exit_if_disconnected()

    def _dial_tunnels(self) -> None:
        for name, request in self._hub.take_tunnel_requests().items():
            threading.Thread(target=self._dial_tunnel, args=(name, request), name=name, daemon=True).start()

    def _dial_tunnel(self, name: str, request: dict[str, Any]) -> None:
        """Passes a request to the actor of its instance, which connects to the service."""
        refusal = {"code": "InstanceNotRunning", "message": "the instance does not run on any node"}
        try:
            remote = self._cluster.instance(request["instance"])
            if remote is not None:
                refusal = remote.result(remote.ask(_DIAL_TUNNEL, request))
        except Exception as error:
            refusal = {"code": "NotReady", "message": f"its node does not respond: {error}"}
            # An actor of an earlier release has no such method.
            if isinstance(error, NodeError) and f"no attribute '{_DIAL_TUNNEL}'" in str(error):
                refusal = {"code": "NotSupported", "message": NO_TUNNELS}
        with suppress(OSError):
            if refusal:
                self._hub.refuse_tunnel(name, refusal)

    def _exit_if_disconnected(self) -> None:
        """Exits this process if the cluster does not respond: the next one connects anew."""
        try:
            self._cluster.capacity()
        except Exception:
            logger.exception("the cluster does not respond")
            logging.shutdown()
            os._exit(1)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _watch_service(hub: Hub, service_ended: threading.Event) -> None:
    # Returns when the service closes the pipe, or is killed.
    sys.stdin.buffer.read()
    # Before the event: the main loop reads the mark as soon as the event is set.
    hub.mark_orphaned()
    service_ended.set()
