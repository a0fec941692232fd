"""One job on the cluster, from its placement to its end, run by one thread of the mirror process.

    waiting ──▶ filling ──▶ running ──▶ ended       each step starts again after an interruption of the process
      placement    files       `look` at each
      group        are sent    instance

The state of the job is in its folder: the `Journal`, and `ray.json`, written just before its instances start. An
instance that is missing after that is lost; before that, it is placed again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pai_sdk._core.files import replace_file
from pai_sdk._core.reasons import REASON_NODE_LOST, REASON_SANDBOX_FAILED, node_lost_message
from pai_sdk._host.agent.distributed import Rendezvous
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import REASON_COMPLETE, Ending, ExecutionState
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.supervising import instance_job
from pai_sdk._host.execution.gang_state import (
    ended,
    ending_of,
    is_complete,
    is_secondary,
    job_state,
    lost,
    merged,
)
from pai_sdk._host.execution.output_uploader import LIVE_CHANNELS
from pai_sdk._host.execution.ray.cluster import Cluster, InstanceLost, NodeAway, NodeError, Remote
from pai_sdk._host.execution.ray.output_mirror import FileMirror

logger = logging.getLogger(__name__)

_PHASES = ("absent", "preparing", "running", "ended")
_NEWS_TIMEOUT_S = 5.0
_POLL_INTERVAL_S = 0.1
_OUTPUTS_INTERVAL_S = 5.0
_REPORT_WAIT_AFTER_S = 2.0
_COMPLETE = Ending(REASON_COMPLETE, "All instances that the job waits for have finished.")


class Cancelled(Exception):
    """Raised when the job was removed, or this process exits."""


class JobMirror:
    """Runs one job on the cluster; `is_cancelled` returns True when it must be left alone."""

    def __init__(self, cluster: Cluster, root: Path, is_cancelled: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._is_cancelled = is_cancelled
        self._sandbox = Sandbox(root)
        self._journal = Journal(self._sandbox.state_dir)
        self._started_file = self._sandbox.state_dir / "ray.json"
        job = self._journal.read_job()
        state = self._journal.read_state()
        if job is None or state is None:
            raise FileNotFoundError(f"{root} has no job that was started")
        self._job, self._state = job, state
        self._ending = ending_of(state)
        self._parts: list[ExecutionState | None] = [None for _ in state.instances]
        self._started: set[int] = set()  # the ranks whose commands were started by this process
        self._files = FileMirror(self._sandbox, job.get("mounts", ()))

    def run(self) -> None:
        """Runs the job to its end. If this raises, it must be called again."""
        if self._state.phase != "ended":
            try:
                remotes = self._started_instances() or self._start_instances()
                if remotes is not None:
                    self._follow(remotes)
            except NodeError as error:
                if self._started_file.exists():
                    raise
                self._end_with(Ending(REASON_SANDBOX_FAILED, f"The job could not be run on its node: {error}"))
            self._write(ended(self._state, now=self._finished_at()))
        self._cluster.release(self._sandbox.root.name)

    # ---- before it runs ----

    def _started_instances(self) -> list[Remote | None] | None:
        """Returns the instances of a started job, None for missing ones; None if it was not started."""
        if not self._started_file.exists():
            return None
        return [self._cluster.instance(instance.name) for instance in self._state.instances]

    def _start_instances(self) -> Sequence[Remote | None] | None:
        """Places, fills and starts the instances; None if the job is stopped before."""
        bundles = self._job["bundles"]
        group = self._cluster.group(self._job["job_id"], bundles)
        waits_since = time.monotonic()
        while not self._cluster.is_placed(group):
            if self._is_stopped():
                return None
            time.sleep(_POLL_INTERVAL_S)
            if time.monotonic() > waits_since + _REPORT_WAIT_AFTER_S:
                self._write(replace(self._state, reason_message=_waiting_message(bundles)))
        names = [instance.name for instance in self._state.instances]
        remotes = [
            self._cluster.ensure_actor(name, group, index, bundles[index]) for index, name in enumerate(names)
        ]
        nodes = [self._cluster.open(remote, self._job["job_id"]) for remote in remotes]
        # Instances of a node share its copy of the files, so one of them receives them.
        leaders = _leaders(nodes)
        if not self._fill([remotes[rank] for rank in leaders]):
            return None
        meeting = self._rendezvous(remotes, nodes)
        started = {
            "nodes": nodes,
            "meeting": meeting,
            "logs_at": [self._cursor(rank)[:2] for rank in range(len(nodes))],
        }
        # Written before the first instance starts: from here on, a missing instance is lost and not placed
        # again.
        replace_file(self._started_file, json.dumps(started))
        return remotes

    def _instance_job(self, rank: int, started: dict[str, Any]) -> dict[str, Any]:
        """Returns the job description of one instance."""
        job = {name: value for name, value in self._job.items() if name != "bundles"}
        # Ray 2.60 leaves an actor without GPUs the CUDA_VISIBLE_DEVICES of its node.
        job |= {"hides_gpus": "GPU" not in self._job["bundles"][rank], "logs_at": started["logs_at"][rank]}
        return {**instance_job(job, rank), **({"rendezvous": started["meeting"]} if started["meeting"] else {})}

    def _fill(self, remotes: Sequence[Remote]) -> bool:
        """Sends the files of the job to each node that lacks them; False if the job is stopped meanwhile."""
        empty = [remote for remote in remotes if not remote.call("is_filled")]
        if empty:
            for part, mount in self._files.parts():
                if self._is_stopped():
                    return False
                self._cluster.send(empty, part, *mount)
            for remote in empty:
                remote.call("filled", *self._files.mount_count)
        return not self._is_stopped()

    def _rendezvous(self, remotes: Sequence[Remote], nodes: Sequence[dict[str, str]]) -> dict[str, Any] | None:
        """Returns where the instances meet; None for a single one, which needs no other host."""
        if len(remotes) == 1:
            return None
        # Rank 0 has two: the first is for the rendezvous, the last of each is its own.
        ports = [remote.call("free_ports", 1 if rank else 2) for rank, remote in enumerate(remotes)]
        workers = tuple(f"{node['address']}:{free[-1]}" for node, free in zip(nodes, ports, strict=True))
        roles = tuple(self._job.get("roles", ()))
        return asdict(Rendezvous(nodes[0]["address"], ports[0][0], workers, self._job["nproc_per_node"], roles))

    # ---- while it runs ----

    def _follow(self, remotes: Sequence[Remote | None]) -> None:
        """Mirrors the job until all instances have ended and all their files are local."""
        started = json.loads(self._started_file.read_text())
        present = dict(enumerate(remotes))
        self._start_ready(present, started)
        for rank, remote in enumerate(remotes):
            if remote is None:
                self._mark_lost(rank, started["nodes"])
        leaders = _leaders(started["nodes"])
        is_finished = threading.Event()
        live = threading.Thread(target=self._mirror_live, args=(leaders, present, is_finished), daemon=True)
        live.start()
        try:
            self._poll_until_finished(present, started)
        finally:
            is_finished.set()
            # Before the final update: `FileMirror` is not safe for two threads.
            live.join()
        self._files.update(self._reachable(leaders, present))

    def _start_ready(self, present: dict[int, Remote | None], started: dict[str, Any]) -> None:
        """Starts the instances that wait for no others; `begin` does nothing for one that was started before."""
        if len(self._started) == len(present) or self._ending is not None or self._is_complete:
            return
        instances = merged(self._state.instances, self._parts)
        started_names = {instance.name for instance in instances if instance.status != "Pending"}
        for rank, remote in present.items():
            conditions = self._job["instances"][rank].get("waits_for", ())
            is_ready = all(len(started_names.intersection(names)) >= count for names, count in conditions)
            if remote is not None and rank not in self._started and is_ready:
                self._started.add(rank)
                with suppress(InstanceLost):
                    remote.call("begin", self._instance_job(rank, started))

    def _poll_until_finished(self, present: dict[int, Remote | None], started: dict[str, Any]) -> None:
        polls = _Polls(present, {rank for rank, remote in present.items() if remote is None})
        for rank in polls.running:
            polls.ask(rank, "look", *self._cursor(rank), _NEWS_TIMEOUT_S)
        while polls.running:
            self._is_stopped()
            self._stop_instances(polls)
            self._start_ready(polls.present, started)
            for reference in self._cluster.ready(list(polls.calls), timeout_s=_POLL_INTERVAL_S):
                self._receive(polls, reference, started["nodes"])

    def _stop_instances(self, polls: _Polls) -> None:
        """Stops the instances of a job that ends; if it is complete, those that it does not wait for."""
        ending = self._ending or (_COMPLETE if self._is_complete else None)
        if ending is None:
            return
        for rank in polls.running - polls.stopping:
            instance = self._state.instances[rank]
            if self._ending is None and instance.is_awaited:
                continue
            polls.stopping.add(rank)
            if rank in self._started or _has_started(polls.present[rank]):
                polls.ask(rank, "stop", ending.code, ending.message)
            else:
                # It waits for others, and never starts.
                self._parts[rank] = lost(instance.name, instance.role, "Terminated")
                polls.complete.add(rank)
                self._write_state()

    def _receive(self, polls: _Polls, reference: Any, nodes: Sequence[dict[str, str]]) -> None:
        """Handles the result of a call, and polls its instance again unless nothing follows."""
        rank, method = polls.calls.pop(reference)
        remote = polls.present[rank]
        if remote is None:
            return
        try:
            news = remote.result(reference)
        except NodeAway:
            time.sleep(_POLL_INTERVAL_S)
            # The call may not have arrived: repeat it, a stop request too.
            polls.stopping -= {rank} if method == "stop" else set()
            news = None
        except InstanceLost:
            polls.present[rank] = None
            polls.complete.add(rank)
            self._mark_lost(rank, nodes)
            return
        if method != "look":
            return
        if news is not None and self._apply_news(rank, news, polls.present):
            polls.complete.add(rank)
        else:
            polls.ask(rank, "look", *self._cursor(rank), _NEWS_TIMEOUT_S)

    def _apply_news(self, rank: int, news: dict[str, Any], present: dict[int, Remote | None]) -> bool:
        """Writes state, log and times of an instance; returns True if nothing follows."""
        instance = self._state.instances[rank]
        name = instance.name
        part = _later(self._parts[rank], news["state"])
        if part is not None:
            # A failure that was reported before the job was complete stays.
            is_late = self._is_complete and not instance.is_awaited and instance.status != "Failed"
            self._parts[rank] = part.without_failure() if is_late else part
            failure = part.failure(can_fail_job=instance.can_fail_job)
            if self._ending is None and failure is not None and not self._is_complete:
                # Read the other states now: exits before this failure are reported with it, not after it.
                for other, remote in present.items():
                    if remote is not None and other != rank:
                        with suppress(InstanceLost):
                            self._parts[other] = _later(self._parts[other], remote.call("state"))
                self._ending = failure
        # Before the log: a reader of its lines must find the job running.
        self._write_state()
        for file, content in (
            (self._sandbox.log_file(name), news["log"]),
            (self._sandbox.times_file(name), news["times"]),
        ):
            if content:
                # Appended in order: the next request continues at the size of the local file.
                with file.open("ab") as stream:
                    stream.write(content)
        return bool(news["is_all"])

    def _cursor(self, rank: int) -> tuple[int, int, str]:
        """Returns how much of an instance is local: bytes of its log, bytes of the times, its state."""
        name, part = self._state.instances[rank].name, self._parts[rank]
        files = (self._sandbox.log_file(name), self._sandbox.times_file(name))
        log_at, times_at = (file.stat().st_size if file.exists() else 0 for file in files)
        return log_at, times_at, part.to_json() if part else ""

    def _mark_lost(self, rank: int, nodes: Sequence[dict[str, str]]) -> None:
        instance, node = self._state.instances[rank], nodes[rank]
        part = self._parts[rank]
        if part is None or part.phase != "ended":
            if self._is_complete:
                self._parts[rank] = lost(instance.name, instance.role, "Terminated")
                self._write_state()
                return
            self._parts[rank] = lost(instance.name, instance.role)
            is_alive = self._cluster.has_node(node["id"])
            message = node_lost_message(instance.name, node["address"], is_alive=is_alive)
            # An exit code that was recorded before may be a consequence of this loss.
            is_cause = self._ending is None or is_secondary(self._ending, instance.name)
            if is_cause and instance.can_fail_job:
                self._ending = Ending(REASON_NODE_LOST, message, instance.name)
        self._write_state()

    def _mirror_live(
        self, leaders: Sequence[int], present: dict[int, Remote | None], is_finished: threading.Event
    ) -> None:
        while not is_finished.wait(_OUTPUTS_INTERVAL_S):
            try:
                self._files.update(self._reachable(leaders, present), LIVE_CHANNELS)
            except Exception as error:
                # The final update raises if the error persists.
                logger.info("%s: outputs could not be brought here: %s", self._sandbox.root.name, error)

    @staticmethod
    def _reachable(leaders: Sequence[int], present: dict[int, Remote | None]) -> list[tuple[int, Remote]]:
        return [(rank, remote) for rank in leaders if (remote := present[rank]) is not None]

    # ---- its state ----

    @property
    def _is_complete(self) -> bool:
        """Returns whether all instances have succeeded that the job waits for."""
        return self._ending is None and is_complete(merged(self._state.instances, self._parts))

    def _is_stopped(self) -> bool:
        """Returns whether the job must end; raises `Cancelled` if it must be left alone."""
        if self._is_cancelled() or not self._sandbox.root.exists():
            raise Cancelled
        request = self._journal.stop_request
        if request is not None and self._ending is None:
            self._end_with(Ending(*request.reported))
        return self._ending is not None

    def _end_with(self, ending: Ending) -> None:
        self._ending = ending
        self._write_state()

    def _write_state(self) -> None:
        state = job_state(self._state, self._parts, self._ending, now=time.time())
        # The end is written only after the outputs are local.
        if state.phase != "ended":
            self._write(state)
        else:
            self._state = replace(state, phase="running", ended_at=None, succeeded=None)

    def _finished_at(self) -> float:
        """Returns when the last instance ended, by its node's clock; now, if one has not reported that."""
        times = [part.ended_at if part else None for part in self._parts]
        reported = [time_s for time_s in times if time_s is not None]
        # The clock of a node may be ahead.
        return min(time.time(), max(reported)) if reported and len(reported) == len(times) else time.time()

    def _write(self, state: ExecutionState) -> None:
        if state != self._state or state.phase == "ended":
            self._journal.write_state(state)
            self._state = state


@dataclass
class _Polls:
    """The calls to the instances of a job that have not returned."""

    present: dict[int, Remote | None]  # by rank; None for a lost instance
    complete: set[int]  # the ranks of which nothing follows
    stopping: set[int] = field(default_factory=set)  # the ranks that were told to stop
    # By reference: one `look` per instance, which waits on the node for news, and at most one `stop`.
    calls: dict[Any, tuple[int, str]] = field(default_factory=dict)

    @property
    def running(self) -> set[int]:
        """Returns the ranks of which more follows."""
        return self.present.keys() - self.complete

    def ask(self, rank: int, method: str, *arguments: Any) -> None:
        """Calls a method of an instance, unless it is lost."""
        remote = self.present[rank]
        if remote is not None:
            self.calls[remote.ask(method, *arguments)] = rank, method


def _later(current: ExecutionState | None, json_text: str) -> ExecutionState | None:
    """Returns the later one of two states of an instance; responses can overtake each other."""
    new = ExecutionState.parse(json_text) if json_text else None
    if new is None or (current is not None and _PHASES.index(new.phase) < _PHASES.index(current.phase)):
        return current
    return new


def _leaders(nodes: Sequence[dict[str, str]]) -> list[int]:
    """Returns the lowest rank on each node."""
    first: dict[str, int] = {}
    for rank, node in enumerate(nodes):
        first.setdefault(node["id"], rank)
    return sorted(first.values())


def _has_started(remote: Remote | None) -> bool:
    """Returns whether an instance has a supervisor, or had one before it was lost."""
    try:
        return remote is None or bool(remote.call("state"))
    except InstanceLost:
        return True


def _waiting_message(bundles: Sequence[dict[str, float]]) -> str:
    counts = Counter(
        ", ".join(f"{amount:g} {name}" for name, amount in bundle.items() if name != "memory")
        for bundle in bundles
    )
    needed = " and ".join(f"{count} instances, each with {needed}" for needed, count in counts.items())
    return f"The job waits until the Ray cluster has room for {needed}. A cluster that can grow does so now."
