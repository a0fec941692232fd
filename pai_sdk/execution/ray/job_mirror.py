"""One job on the cluster, from its placement to its end, by one thread of the mirror process.

    waiting ──▶ filling ──▶ running ──▶ ended       each step begins anew where another process was cut off
      placement    files       `look` at each
      group        are sent    instance

What is known of the job is in its folder: the `Journal`, and `ray.json` from the moment in which its instances are
let begin. An instance that is not found after that moment is lost; before it, it is placed again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pai_sdk.agent.distributed import Rendezvous
from pai_sdk.agent.journal import Journal
from pai_sdk.agent.protocol import Ending, ExecutionState
from pai_sdk.agent.reasons import REASON_NODE_LOST, REASON_SANDBOX_FAILED, node_lost_message
from pai_sdk.agent.remote.file_parts import pack
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import replace_file
from pai_sdk.execution.gang_state import ended, ending_of, is_secondary, job_state, lost
from pai_sdk.execution.output_uploader import LIVE_CHANNELS
from pai_sdk.execution.ray.cluster import Cluster, InstanceLost, NodeAway, NodeError, Remote
from pai_sdk.execution.ray.output_mirror import OutputMirror

__all__ = ["Cancelled", "JobMirror"]

logger = logging.getLogger(__name__)

_PHASES = ("absent", "preparing", "running", "ended")
_LOOK_S = 5.0
_STEP_S = 0.1
_OUTPUTS_EVERY_S = 5.0
_TELL_AFTER_S = 2.0


class Cancelled(Exception):
    """The job was removed, or this process ends."""


class JobMirror:
    """One job.

    Args:
        cluster: where it runs.
        root: its folder on this machine.
        is_cancelled: whether to leave it alone now.
    """

    def __init__(self, cluster: Cluster, root: Path, is_cancelled: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._is_cancelled = is_cancelled
        self._sandbox = Sandbox(root)
        self._journal = Journal(self._sandbox.state_dir)
        self._begun_file = self._sandbox.state_dir / "ray.json"
        self._outputs = OutputMirror(self._sandbox)
        job = self._journal.read_job()
        state = self._journal.read_state()
        if job is None or state is None:
            raise FileNotFoundError(f"{root} has no job that was started")
        self._job, self._state = job, state
        self._ending = ending_of(state)
        self._parts: list[ExecutionState | None] = [None for _ in state.instances]

    def run(self) -> None:
        """Run the job to its end. Where this raises, it is to be called again."""
        if self._state.phase != "ended":
            try:
                remotes = self._begun() or self._begin()
                if remotes is not None:
                    self._follow(remotes)
            except NodeError as error:
                if self._begun_file.exists():
                    raise
                self._end_with(Ending(REASON_SANDBOX_FAILED, f"The job could not be run on its node: {error}"))
            self._write(ended(self._state, now=self._ended_at()))
        self._cluster.release(self._sandbox.root.name)

    # ---- before it runs ----

    def _begun(self) -> list[Remote | None] | None:
        """The instances of a job that was let begin, as far as they are there."""
        if not self._begun_file.exists():
            return None
        return [self._cluster.instance(one.name) for one in self._state.instances]

    def _begin(self) -> Sequence[Remote | None] | None:
        """Let the instances begin; None where the job is stopped before."""
        bundles = self._job["bundles"]
        group = self._cluster.group(self._job["job_id"], bundles)
        waits_since = time.monotonic()
        while not self._cluster.is_placed(group):
            if self._is_stopped():
                return None
            time.sleep(_STEP_S)
            if time.monotonic() > waits_since + _TELL_AFTER_S:
                self._write(replace(self._state, reason_message=_waiting_message(bundles)))
        names = [one.name for one in self._state.instances]
        remotes = [self._cluster.place(name, group, index, bundles[index]) for index, name in enumerate(names)]
        nodes = [self._cluster.open(remote, self._job["job_id"]) for remote in remotes]
        leaders = _leaders(nodes)
        if not self._fill([remotes[rank] for rank in leaders]):
            return None
        meeting = self._rendezvous(remotes, nodes)
        begun = {
            "nodes": nodes,
            "meeting": meeting,
            "logs_at": [self._cursor(rank)[:2] for rank in range(len(nodes))],
        }
        replace_file(self._begun_file, json.dumps(begun))
        for rank, remote in enumerate(remotes):
            remote.call("begin", self._facts(rank, begun))
        return remotes

    def _facts(self, rank: int, begun: dict[str, Any]) -> dict[str, Any]:
        """What an instance has to know to begin."""
        facts = {name: value for name, value in self._job.items() if name != "bundles"}
        facts |= {"instances": [self._job["instances"][rank]], "logs_at": begun["logs_at"][rank]}
        return {**facts, **({"rendezvous": begun["meeting"]} if begun["meeting"] else {})}

    def _fill(self, remotes: Sequence[Remote]) -> bool:
        """Send the files of the job to each node that lacks them; False where the job is stopped meanwhile."""
        empty = [remote for remote in remotes if not remote.call("is_filled")]
        if empty:
            for part in pack(self._sandbox.ml):
                if self._is_stopped():
                    return False
                self._cluster.send(empty, part)
            for remote in empty:
                remote.call("filled")
        return not self._is_stopped()

    def _rendezvous(self, remotes: Sequence[Remote], nodes: Sequence[dict[str, str]]) -> dict[str, Any] | None:
        """The place where the instances meet; None for a single one, which needs no other host."""
        if len(remotes) == 1:
            return None
        ports = [remote.call("free_ports", 1 if rank else 2) for rank, remote in enumerate(remotes)]
        workers = tuple(f"{node['address']}:{found[-1]}" for node, found in zip(nodes, ports, strict=True))
        return asdict(Rendezvous(nodes[0]["address"], ports[0][0], workers, self._job["nproc_per_node"]))

    # ---- while it runs ----

    def _follow(self, remotes: Sequence[Remote | None]) -> None:
        """Mirror the job until all instances have ended, and all that they have left is here."""
        begun = json.loads(self._begun_file.read_text())
        self._begin_again([remote for remote in remotes if remote], begun)
        present = dict(enumerate(remotes))
        for rank, remote in enumerate(remotes):
            if remote is None:
                self._lose(rank, begun["nodes"])
        leaders = _leaders(begun["nodes"])
        is_over = threading.Event()
        live = threading.Thread(target=self._mirror_live, args=(leaders, present, is_over), daemon=True)
        live.start()
        try:
            self._look_until_all_ended(present, begun["nodes"])
        finally:
            is_over.set()
            live.join()
        self._outputs.update(self._reachable(leaders, present))

    def _begin_again(self, remotes: Sequence[Remote], begun: dict[str, Any]) -> None:
        """Let those begin that an earlier process, cut off in between, has not reached."""
        ranks = {one.name: rank for rank, one in enumerate(self._state.instances)}
        for remote in remotes:
            with suppress(InstanceLost):
                remote.call("begin", self._facts(ranks[remote.name], begun))

    def _look_until_all_ended(self, present: dict[int, Remote | None], nodes: Sequence[dict[str, str]]) -> None:
        asked: dict[Any, tuple[int, str]] = {}
        stopping: set[int] = set()
        complete = {rank for rank, remote in present.items() if remote is None}

        def ask(rank: int, method: str, *arguments: Any) -> None:
            remote = present[rank]
            if remote is not None:
                asked[remote.ask(method, *arguments)] = rank, method

        for rank in present.keys() - complete:
            ask(rank, "look", *self._cursor(rank), _LOOK_S)
        while len(complete) < len(present):
            self._is_stopped()
            if self._ending is not None:
                for rank in present.keys() - complete - stopping:
                    stopping.add(rank)
                    ask(rank, "stop", self._ending.code, self._ending.message)
            for reference in self._cluster.ready(list(asked), timeout_s=_STEP_S):
                rank, method = asked.pop(reference)
                remote = present[rank]
                if remote is None:
                    continue
                try:
                    found = remote.result(reference)
                except NodeAway:
                    time.sleep(_STEP_S)
                    stopping -= {rank} if method == "stop" else set()
                    found = None
                except InstanceLost:
                    present[rank] = None
                    complete.add(rank)
                    self._lose(rank, nodes)
                    continue
                if method == "look":
                    if found is not None and self._take(rank, found, present):
                        complete.add(rank)
                    else:
                        ask(rank, "look", *self._cursor(rank), _LOOK_S)

    def _take(self, rank: int, found: dict[str, Any], present: dict[int, Remote | None]) -> bool:
        """Write what an instance has to tell; True if that is all."""
        name = self._state.instances[rank].name
        if found["state"]:
            part = self._parts[rank] = _later(self._parts[rank], found["state"])
            if self._ending is None and part is not None and part.reason_code:
                # What the others did before this failure is reported with it, not after it.
                for other, remote in present.items():
                    if remote is not None and other != rank:
                        with suppress(InstanceLost):
                            self._parts[other] = _later(self._parts[other], remote.call("state"))
                self._ending = ending_of(part)
        self._note()  # before the log: who reads what it has printed finds it running
        for file, content in (
            (self._sandbox.log_file(name), found["log"]),
            (self._sandbox.times_file(name), found["times"]),
        ):
            if content:
                with file.open("ab") as stream:
                    stream.write(content)
        return bool(found["is_all"])

    def _cursor(self, rank: int) -> tuple[int, int, str]:
        """How much of an instance is here: bytes of its log, bytes of the times, its state."""
        name, part = self._state.instances[rank].name, self._parts[rank]
        files = (self._sandbox.log_file(name), self._sandbox.times_file(name))
        log_at, times_at = (file.stat().st_size if file.exists() else 0 for file in files)
        return log_at, times_at, part.to_json() if part else ""

    def _lose(self, rank: int, nodes: Sequence[dict[str, str]]) -> None:
        one, node = self._state.instances[rank], nodes[rank]
        part = self._parts[rank]
        if part is None or part.phase != "ended":
            self._parts[rank] = lost(one.name, one.role)
            is_alive = self._cluster.has_node(node["id"])
            message = node_lost_message(one.name, node["address"], is_alive=is_alive)
            if self._ending is None or is_secondary(self._ending, one.name):
                self._ending = Ending(REASON_NODE_LOST, message, one.name)
        self._note()

    def _mirror_live(
        self, leaders: Sequence[int], present: dict[int, Remote | None], is_over: threading.Event
    ) -> None:
        while not is_over.wait(_OUTPUTS_EVERY_S):
            try:
                self._outputs.update(self._reachable(leaders, present), LIVE_CHANNELS)
            except Exception as error:  # the update at the end reports what stays wrong
                logger.info("%s: outputs could not be brought here: %s", self._sandbox.root.name, error)

    @staticmethod
    def _reachable(leaders: Sequence[int], present: dict[int, Remote | None]) -> list[tuple[int, Remote]]:
        return [(rank, remote) for rank in leaders if (remote := present[rank]) is not None]

    # ---- its state ----

    def _is_stopped(self) -> bool:
        """Look for a stop request, and whether to leave the job alone."""
        if self._is_cancelled() or not self._sandbox.root.exists():
            raise Cancelled
        request = self._journal.stop_request
        if request is not None and self._ending is None:
            self._end_with(Ending(*request.reported))
        return self._ending is not None

    def _end_with(self, ending: Ending) -> None:
        self._ending = ending
        self._note()

    def _note(self) -> None:
        state = job_state(self._state, self._parts, self._ending, now=time.time())
        if state.phase != "ended":  # that is written when the outputs are here
            self._write(state)
        else:
            self._state = replace(state, phase="running", ended_at=None, succeeded=None)

    def _ended_at(self) -> float:
        """When the last instance ended, by the clock of its node; now, where that is not known."""
        times = [part.ended_at if part else None for part in self._parts]
        known = [found for found in times if found is not None]
        return min(time.time(), max(known)) if known and len(known) == len(times) else time.time()

    def _write(self, state: ExecutionState) -> None:
        if state != self._state or state.phase == "ended":
            self._journal.write_state(state)
            self._state = state


def _later(known: ExecutionState | None, text: str) -> ExecutionState | None:
    """The later one of two states of an instance; responses may overtake each other."""
    new = ExecutionState.parse(text) if text else None
    if new is None or (known is not None and _PHASES.index(new.phase) < _PHASES.index(known.phase)):
        return known
    return new


def _leaders(nodes: Sequence[dict[str, str]]) -> list[int]:
    """The lowest rank on each node."""
    first: dict[str, int] = {}
    for rank, node in enumerate(nodes):
        first.setdefault(node["id"], rank)
    return sorted(first.values())


def _waiting_message(bundles: Sequence[dict[str, float]]) -> str:
    needed = ", ".join(f"{amount:g} {name}" for name, amount in bundles[0].items() if name != "memory")
    return (
        f"The job waits until the Ray cluster has room for {len(bundles)} instances, each with {needed}. "
        "A cluster that can grow does so now."
    )
