"""The state of a job, from those of its instances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pai_sdk._host.agent.protocol import Ending, ExecutionState, InstanceState
from pai_sdk._host.execution.gang_state import ended, has_succeeded, is_complete, job_state, lost

BEFORE = ExecutionState(
    "preparing", instances=(InstanceState("j-master-0", "master"), InstanceState("j-worker-0", "worker"))
)
FAILURE = Ending("NonZeroExit", "it ended with 3", "j-worker-0")


def part(status: str, exit_code: int | None = None) -> ExecutionState:
    phase = {"Pending": "preparing", "Running": "running"}.get(status, "ended")
    state = ExecutionState("ended", instances=(InstanceState("any", "worker", status, exit_code),))
    return replace(state, phase=phase)  # type: ignore[arg-type] - one of the phases


def statuses(state: ExecutionState) -> list[tuple[str, int | None]]:
    return [(one.status, one.exit_code) for one in state.instances]


def test_a_job_prepares_until_one_instance_runs() -> None:
    assert job_state(BEFORE, [None, part("Pending")], None, now=5).phase == "preparing"
    state = job_state(BEFORE, [part("Running"), part("Pending")], None, now=5)
    assert (state.phase, state.started_at) == ("running", 5)
    assert job_state(state, [part("Running"), part("Running")], None, now=9).started_at == 5


def test_a_failure_is_reported_while_others_still_run() -> None:
    state = job_state(BEFORE, [part("Running"), part("Failed", 3)], FAILURE, now=5)
    assert (state.phase, state.succeeded, state.failed_instance) == ("running", None, "j-worker-0")
    assert statuses(state) == [("Running", None), ("Failed", 3)]


def test_the_end_is_when_all_have_ended() -> None:
    state = job_state(BEFORE, [part("Terminated", 143), part("Failed", 3)], FAILURE, now=7)
    assert (state.phase, state.succeeded, state.ended_at) == ("ended", False, 7)
    assert (state.reason_code, state.failed_instance) == ("NonZeroExit", "j-worker-0")


def test_a_stop_that_came_too_late_changes_nothing() -> None:
    state = job_state(BEFORE, [part("Succeed", 0)] * 2, Ending("StoppedByUser", "by Ann"), now=7)
    assert (state.succeeded, state.reason_code, state.reason_message) == (True, "", "")


def test_a_lost_instance_has_failed_without_exit_code() -> None:
    ending = Ending("NodeLost", "with its node", "j-master-0")
    state = job_state(BEFORE, [lost("j-master-0", "master"), part("Terminated", 143)], ending, now=7)
    assert statuses(state) == [("Failed", None), ("Terminated", 143)]
    assert (state.reason_code, state.succeeded) == ("NodeLost", False)


def test_a_job_that_is_stopped_before_it_began_has_terminated_instances() -> None:
    state = ended(job_state(BEFORE, [None, None], Ending("StoppedByUser", "by Ann"), now=7), now=8)
    assert statuses(state) == [("Terminated", None)] * 2
    assert (state.started_at, state.ended_at, state.reason_code) == (8, 8, "StoppedByUser")


@pytest.mark.parametrize(
    ("worker", "evaluator", "helper", "complete", "succeeded"),
    [
        ("Running", "Succeed", "Succeed", False, False),
        ("Succeed", "Running", "Running", True, True),
        ("Succeed", "Terminated", "Failed", True, True),
        ("Succeed", "Failed", "Succeed", True, False),
        ("Failed", "Succeed", "Succeed", False, False),
    ],
)
def test_roles_that_do_not_count(
    worker: str, evaluator: str, helper: str, complete: bool, succeeded: bool
) -> None:
    instances = (
        InstanceState("j-worker-0", "worker", worker),
        InstanceState("j-evaluator-0", "evaluator", evaluator, is_awaited=False),
        InstanceState("j-helper-0", "helper", helper, is_awaited=False, can_fail_job=False),
    )
    assert (is_complete(instances), has_succeeded(instances)) == (complete, succeeded)


def test_an_instance_that_does_not_count_fails_alone() -> None:
    failed = replace(part("Failed", 3), reason_code="NonZeroExit", failed_instance="j-helper-0")
    ending = failed.failure(can_fail_job=True)
    assert ending is not None
    assert (ending.code, ending.failed_instance) == ("NonZeroExit", "j-helper-0")
    assert failed.failure(can_fail_job=False) is None
    # What is no exit of its command concerns all instances.
    ended_by_limit = replace(part("Terminated", 143), reason_code="MaxRunningTimeExceeded")
    assert ended_by_limit.failure(can_fail_job=False) is not None
    assert replace(ended_by_limit, reason_code="Complete").failure(can_fail_job=True) is None
