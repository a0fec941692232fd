"""The parameter `watch`: rules travel with a job as an environment variable."""

from __future__ import annotations

import pytest

from pai_sdk import Estimator
from pai_sdk._data.rules.codec import rules_of_variables
from pai_sdk.errors import InvalidInputError
from pai_sdk.jobs import IdleCpu, NoProgress
from tests.unit.client.submit.test_submitting import FakeSession

_TYPE = "ecs.c6.large"


def _variables(watch: object) -> dict[str, str]:
    estimator = Estimator("python:3.11", "true", watch=watch, instance_type=_TYPE, session=FakeSession())  # type: ignore[arg-type]
    return dict(estimator.plan().request.environments or {})


def test_rules_and_mappings_travel_as_a_variable() -> None:
    variables = _variables([NoProgress(min_s=600, action="stop"), {"rule": "IdleCpu", "minutes": 5}])
    assert rules_of_variables(variables) == (NoProgress(min_s=600, action="stop"), IdleCpu(minutes=5))


@pytest.mark.parametrize("watch", [None, True, []])
def test_the_default_rules_need_no_variable(watch: object) -> None:
    assert _variables(watch) == {}


def test_false_switches_all_rules_off() -> None:
    assert not any(rule.enabled for rule in rules_of_variables(_variables(False)))


@pytest.mark.parametrize(
    ("watch", "where"),
    [
        ("NoProgress", "watch"),
        ([{"rule": "NoProgres"}], "watch[0].rule"),
        ([{"rule": "NoProgress", "min": 3}], "watch[0].min"),
        ([{"rule": "NoProgress", "min_s": -3}], "watch[0].NoProgress.min_s"),
        (["NoProgress"], "watch[0]"),
    ],
)
def test_wrong_rules_are_refused(watch: object, where: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        _variables(watch)
    assert [problem.where for problem in error.value.problems] == [where]


def test_a_wrong_threshold_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidInputError):
        NoProgress(min_s=float("nan"))
    with pytest.raises(InvalidInputError):
        NoProgress(action="explode")  # type: ignore[arg-type]
