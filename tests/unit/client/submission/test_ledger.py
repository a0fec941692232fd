"""The submissions of a process: known for as long as the plan lives, whichever backend it goes to."""

from __future__ import annotations

import gc

import pytest

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.submission import ledger, submit
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused


def a_plan() -> Plan:
    return Plan(
        TrainingJobRequest.model_validate({"TrainingJobName": "n", "ComputeResource": {"EcsSpec": "ecs.x"}})
    )


def test_a_plan_becomes_one_job_whichever_backend_it_goes_to() -> None:
    plan, other = a_plan(), FakeBackend()
    assert submit(plan, FakeBackend()) == "train1"
    with refused(InvalidInputError, "plan"):
        submit(plan, other)
    assert other.calls == []


def test_a_submission_is_forgotten_with_its_plan() -> None:
    gc.collect()  # the plans of other tests
    before, plan = len(ledger._submissions), a_plan()
    submit(plan, FakeBackend())
    assert len(ledger._submissions) == before + 1
    del plan
    gc.collect()
    assert len(ledger._submissions) == before


def test_an_interrupt_before_the_create_leaves_nothing_behind() -> None:
    class Interrupted(FakeBackend):
        def upload(self, plan: Plan, *, progress: bool = True) -> None:
            raise KeyboardInterrupt

    plan, backend = a_plan(), FakeBackend()
    with pytest.raises(KeyboardInterrupt):
        submit(plan, Interrupted())
    assert submit(plan, backend) == "train1"
    assert backend.calls == ["upload", "create"]
