"""A job on a cluster that loses a node, without a cluster: what a job mirror makes of what its instances say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest

from pai_sdk._host.agent.distributed import Instance, name_instances
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionState, InstanceState
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.gang_state import initial_states

pytest.importorskip("ray")

from pai_sdk._host.execution.ray.cluster import Cluster, InstanceLost
from pai_sdk._host.execution.ray.job_mirror import JobMirror


def state_of(name: str, status: str, *, exit_code: int | None = None, reason: str = "") -> ExecutionState:
    phase = "running" if status == "Running" else "ended"
    state = ExecutionState(
        "running", started_at=1.0, instances=(InstanceState(name, "worker", status, exit_code),)
    )
    failed = name if status == "Failed" else None
    return replace(state, phase=phase, reason_code=reason, reason_message=reason, failed_instance=failed)  # type: ignore[arg-type]


class Node:
    """An instance on its node: the states that it gives, one a call of `look`; then it is lost or has ended."""

    def __init__(self, name: str, *states: ExecutionState, is_lost: bool = False) -> None:
        self.name = name
        self._states = list(states)
        self._is_lost = is_lost
        self.stopped: list[str] = []
        self.was_started = False

    def ask(self, method: str, *arguments: Any) -> tuple[Node, str, object]:
        if method == "stop":
            self.stopped.append(arguments[0])
        return self, method, object()

    def call(self, method: str, *arguments: Any) -> Any:
        self.was_started |= method == "begin"
        state = self._states[0].to_json() if self._states and self.was_started else ""
        return {"state": state, "outputs": ({}, []), "begin": None}[method]

    def result(self, reference: tuple[Node, str, object]) -> Any:
        if reference[1] != "look":
            return None
        if not self.was_started:
            return {"state": "", "log": b"", "times": b"", "is_all": False}
        if len(self._states) == 1 and self._is_lost:
            raise InstanceLost(self.name)
        state = self._states[0] if len(self._states) == 1 else self._states.pop(0)
        is_all = state.phase == "ended"
        return {"state": state.to_json(), "log": b"", "times": b"", "is_all": is_all}


class Nodes:
    """Stands for the cluster: it gives what was asked first first."""

    def __init__(self, *nodes: Node) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._polls = 0
        self.released: list[str] = []

    def instance(self, name: str) -> Node:
        return self._nodes[name]

    def ready(self, references: Sequence[Any], *, timeout_s: float) -> list[Any]:
        self._polls += 1
        return [references[self._polls % len(references)]] if references else []

    def has_node(self, node_id: str) -> bool:
        return node_id == "alive"

    def release(self, job_id: str) -> None:
        self.released.append(job_id)


def container_exit(
    tmp_path: Path,
    *nodes: Node,
    instances: Sequence[Instance] = (),
    waits_for: Mapping[str, list[tuple[list[str], int]]] | None = None,
) -> ExecutionState:
    """The end of a job whose instances were let begin on these nodes."""
    sandbox = Sandbox(tmp_path / "j")
    for folder in (sandbox.state_dir, sandbox.logs_dir, sandbox.ml / "output"):
        folder.mkdir(parents=True)
    journal = Journal(sandbox.state_dir)
    instances = instances or name_instances("j", "PyTorchJob", len(nodes))
    contents = [{"instance": asdict(one), "waits_for": (waits_for or {}).get(one.name, [])} for one in instances]
    journal.write_job({"job_id": "j", "instances": contents, "bundles": [{}] * len(nodes)})
    journal.write_state(ExecutionState("preparing", instances=initial_states(instances)))
    where = [{"id": f"node-{rank}", "address": f"10.0.0.{rank}"} for rank in range(len(nodes))]
    begun = {"nodes": where, "meeting": None, "logs_at": [[0, 0]] * len(nodes)}
    (sandbox.state_dir / "ray.json").write_text(json.dumps(begun))
    cluster = Nodes(*nodes)
    JobMirror(cast("Cluster", cluster), sandbox.root, lambda: False).run()
    assert cluster.released == ["j"]
    state = journal.read_state()
    assert state is not None
    assert state.phase == "ended"
    return state


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("NonZeroExit", "NodeLost"), ("KilledBySignal", "NodeLost"), ("OutOfMemory", "OutOfMemory")],
)
def test_an_instance_that_misses_a_lost_one_is_not_the_cause(tmp_path: Path, reason: str, expected: str) -> None:
    """Its broken connection makes it fail before Ray says that the other one's node is gone."""
    misses = Node("j-master-0", state_of("j-master-0", "Failed", exit_code=1, reason=reason))
    running = state_of("j-worker-0", "Running")
    gone = Node("j-worker-0", running, running, is_lost=True)
    state = container_exit(tmp_path, misses, gone)
    failed = "j-worker-0" if expected == "NodeLost" else "j-master-0"
    assert (state.reason_code, state.failed_instance, state.succeeded) == (expected, failed, False)
    assert [one.exit_code for one in state.instances] == [1, None]


def test_a_failure_in_a_job_that_loses_no_node_is_the_reason(tmp_path: Path) -> None:
    fails = Node("j-master-0", state_of("j-master-0", "Failed", exit_code=3, reason="NonZeroExit"))
    ended = state_of("j-worker-0", "Terminated", exit_code=143)
    other = Node("j-worker-0", state_of("j-worker-0", "Running"), ended)
    state = container_exit(tmp_path, fails, other)
    assert (state.reason_code, state.failed_instance) == ("NonZeroExit", "j-master-0")
    assert other.stopped == ["NonZeroExit"]


def test_an_instance_that_has_failed_and_is_lost_then_is_its_own_cause(tmp_path: Path) -> None:
    failed = state_of("j-master-0", "Failed", exit_code=3, reason="NonZeroExit")
    running = state_of("j-worker-0", "Running")
    state = container_exit(
        tmp_path,
        Node("j-master-0", failed, failed, is_lost=True),
        Node("j-worker-0", running, state_of("j-worker-0", "Terminated", exit_code=143)),
    )
    assert (state.reason_code, state.failed_instance) == ("NonZeroExit", "j-master-0")


WORKER = Instance("j-worker-0", "worker", 0, 0)
EVALUATOR = Instance("j-evaluator-0", "evaluator", 1, 0, group=1, is_awaited=False)
HELPER = Instance("j-helper-0", "helper", 1, 0, group=1, is_awaited=False, can_fail_job=False)


def test_instances_that_the_job_does_not_wait_for_are_stopped_at_its_end(tmp_path: Path) -> None:
    worker = Node(WORKER.name, state_of(WORKER.name, "Running"), state_of(WORKER.name, "Succeed", exit_code=0))
    # It fails because the others have gone.
    failed = state_of(EVALUATOR.name, "Failed", exit_code=1, reason="NonZeroExit")
    evaluator = Node(EVALUATOR.name, *[state_of(EVALUATOR.name, "Running")] * 8, failed)
    state = container_exit(tmp_path, worker, evaluator, instances=[WORKER, EVALUATOR])
    assert (state.succeeded, state.reason_code, state.failed_instance) == (True, "", None)
    assert [one.status for one in state.instances] == ["Succeed", "Terminated"]
    assert (worker.stopped, evaluator.stopped) == ([], ["Complete"])


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_instance_that_does_not_count_may_fail_or_be_lost(tmp_path: Path, is_lost: bool) -> None:
    failed = state_of(HELPER.name, "Failed", exit_code=4, reason="NonZeroExit")
    running = state_of(HELPER.name, "Running")
    helper = Node(HELPER.name, running, running, is_lost=True) if is_lost else Node(HELPER.name, failed)
    worker_states = [*[state_of(WORKER.name, "Running")] * 8, state_of(WORKER.name, "Succeed", exit_code=0)]
    worker = Node(WORKER.name, *worker_states)
    state = container_exit(tmp_path, worker, helper, instances=[WORKER, HELPER])
    assert (state.succeeded, state.reason_code) == (True, "")
    assert [one.status for one in state.instances] == ["Succeed", "Failed"]


def test_an_instance_starts_after_those_that_it_waits_for(tmp_path: Path) -> None:
    waits_for = {WORKER.name: [([EVALUATOR.name], 1)]}
    worker = Node(WORKER.name, state_of(WORKER.name, "Succeed", exit_code=0))
    evaluator = Node(EVALUATOR.name, state_of(EVALUATOR.name, "Running"), state_of(EVALUATOR.name, "Terminated"))
    state = container_exit(tmp_path, worker, evaluator, instances=[WORKER, EVALUATOR], waits_for=waits_for)
    assert state.succeeded
    assert (worker.was_started, evaluator.was_started) == (True, True)


def test_an_instance_that_still_waits_never_starts_when_the_job_fails(tmp_path: Path) -> None:
    waits_for = {WORKER.name: [([EVALUATOR.name, "j-evaluator-1"], 2)]}
    worker = Node(WORKER.name, state_of(WORKER.name, "Succeed", exit_code=0))
    evaluator = Node(EVALUATOR.name, state_of(EVALUATOR.name, "Failed", exit_code=2, reason="NonZeroExit"))
    state = container_exit(tmp_path, worker, evaluator, instances=[WORKER, EVALUATOR], waits_for=waits_for)
    assert (state.reason_code, state.failed_instance) == ("NonZeroExit", EVALUATOR.name)
    assert [one.status for one in state.instances] == ["Terminated", "Failed"]
    assert not worker.was_started
