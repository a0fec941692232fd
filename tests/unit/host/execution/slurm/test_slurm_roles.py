"""Roles of a job on Slurm, without a cluster: what the batch script and the executor make of their states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from pai_sdk._host.agent.distributed import Instance
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionState
from pai_sdk._host.agent.slurm.batch import _forward_ends
from pai_sdk._host.execution.contract import launch_spec
from pai_sdk._host.execution.gang_state import initial_states
from pai_sdk._host.execution.slurm.options import SlurmOptions
from pai_sdk._host.execution.slurm.submission import instance_resources
from tests.unit.host.execution.conftest import make_request
from tests.unit.host.execution.slurm.test_lost_nodes import Gang

MASTER = Instance("j-master-0", "master", 0, 0)
EVALUATOR = Instance("j-worker-0", "evaluator", 1, 0, group=1, is_awaited=False)
HELPER = Instance("j-worker-0", "helper", 1, 0, group=1, is_awaited=False, can_fail_job=False)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    found = Gang(tmp_path / "j")
    yield found
    found.executor.close()


def with_roles(gang: Gang, *instances: Instance) -> list[dict[str, object]]:
    """Has the instances of a gang belong to roles; returns them as in the description of the job."""
    state = ExecutionState("preparing", instances=initial_states(instances))
    Journal(gang.job.state_dir).write_state(state)
    return [asdict(instance) for instance in instances]


def test_a_job_is_complete_without_its_evaluator(gang: Gang) -> None:
    instances = with_roles(gang, MASTER, EVALUATOR)
    _forward_ends(gang.gang, instances)
    assert gang.gang.signs()[:3] == (False, False, False)
    gang.write(MASTER.name, "Succeed", 0)
    _forward_ends(gang.gang, instances)
    assert gang.gang.signs().is_complete
    assert gang.state().phase == "running"
    gang.write(EVALUATOR.name, "Terminated", 143, "Complete")
    state = gang.state()
    assert (state.phase, state.succeeded, state.reason_code) == ("ended", True, "")
    assert [one.status for one in state.instances] == ["Succeed", "Terminated"]


def test_a_job_of_like_instances_is_never_complete_before_its_end(gang: Gang) -> None:
    instances = with_roles(gang, MASTER, Instance("j-worker-0", "worker", 1, 0))
    for instance in instances:
        gang.write(str(instance["name"]), "Succeed", 0)
    _forward_ends(gang.gang, instances)
    assert not gang.gang.signs().is_complete


@pytest.mark.parametrize(("other", "succeeded"), [(HELPER, True), (EVALUATOR, False)], ids=["helper", "evaluator"])
def test_only_a_role_that_counts_ends_the_job_by_its_failure(gang: Gang, other: Instance, succeeded: bool) -> None:
    instances = with_roles(gang, MASTER, other)
    gang.write(other.name, "Failed", 4, "NonZeroExit")
    gang.fall_silent(other.name)
    _forward_ends(gang.gang, instances)
    assert (gang.gang.ending is None) == succeeded
    gang.write(MASTER.name, "Succeed" if succeeded else "Terminated", 0)
    state = gang.state()
    assert (state.succeeded, state.failed_instance) == (succeeded, None if succeeded else other.name)


def test_each_instance_gets_what_the_largest_role_needs(tmp_path: Path) -> None:
    roles = [
        {"Name": "Worker", "InstanceSpec": {"CPU": "2", "Memory": "4GiB", "GPU": "1"}},
        {"Name": "PS", "InstanceSpec": {"CPU": "8", "Memory": "1GiB"}},
    ]
    spec = launch_spec(tmp_path / "j", "j", make_request("true", Roles=roles))
    assert instance_resources(spec, SlurmOptions()) == {"cpus": 8, "memory_mib": 4096, "gpus": 1}
