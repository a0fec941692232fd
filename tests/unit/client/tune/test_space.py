"""Search spaces: every way of writing a range, and everything that can be wrong with one."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import optuna
import pytest

from pai_sdk._client.submit.problems import Problems
from pai_sdk._client.tune.objectives import Objective, StepValue, checked_objectives
from pai_sdk._client.tune.samplers import distribution_of
from pai_sdk._client.tune.space import Choice, IntRange, LogUniform, SearchSpace, Uniform, checked_space
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Uniform(0, 1), Uniform(0, 1)),
        ([1, 2], Choice([1, 2])),
        ((True, False), Choice([True, False])),
        (range(3), Choice([0, 1, 2])),
        ({"uniform": [0, 1]}, Uniform(0, 1)),
        ({"uniform": [0, 1], "step": 0.5}, Uniform(0, 1, step=0.5)),
        ({"log_uniform": [1e-5, 1e-1]}, LogUniform(1e-5, 1e-1)),
        ({"int": [1, 64], "log": True}, IntRange(1, 64, log=True)),
        ({"choice": ["adam", "sgd"]}, Choice(["adam", "sgd"])),
        (optuna.distributions.FloatDistribution(1e-5, 1, log=True), LogUniform(1e-5, 1)),
        (optuna.distributions.FloatDistribution(0, 1, step=0.25), Uniform(0, 1, 0.25)),
        (optuna.distributions.IntDistribution(1, 9, step=2), IntRange(1, 9, 2)),
        (optuna.distributions.CategoricalDistribution(["a", None]), Choice(["a", None])),
    ],
)
def test_a_range_is_written_in_many_ways(given: Any, expected: Any) -> None:
    space = checked_space({"x": given})
    assert space.ranges == {"x": expected}
    assert SearchSpace.from_json(space.to_json()).ranges == space.ranges
    distribution_of(expected)


@pytest.mark.parametrize(
    "given",
    [
        0.1,
        [],
        [1, 1],
        [object()],
        [float("nan")],
        Choice("adam"),
        [{1: "a", "1": "b"}],
        [{(1, 2): 3}],
        np.array([1.0, np.nan]),
        Uniform(1, 0),
        Uniform(0, 10**400),
        Uniform(-1.7e308, 1.7e308),
        Uniform(0, 1, step=1e-320),
        IntRange(0, 2**64),
        Uniform(0, float("inf")),
        Uniform(0, 1, step=0),
        Uniform("0", 1),  # type: ignore[arg-type]
        IntRange(0.5, 2),  # type: ignore[arg-type]
        IntRange(True, 2),
        LogUniform(0, 1),
        IntRange(1, 8, step=2, log=True),
        {"loguniform": [1, 2]},
        {"int": [1, 2], "stp": 1},
        {"uniform": 3},
        {},
    ],
)
def test_what_is_wrong_with_a_range_is_said(given: Any) -> None:
    with refused(InvalidInputError, "search['x']", "search['y']"):  # all at once
        checked_space({"x": given, "y": 5})


_CYCLE: list[Any] = []
_CYCLE.append(_CYCLE)


def test_a_choice_that_contains_itself_is_a_problem() -> None:
    with refused(InvalidInputError, "search['x']"):
        checked_space({"x": [_CYCLE, 1]})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (list(np.arange(1, 4)), Choice([1, 2, 3])),
        (np.array(["a", "b"]), Choice(["a", "b"])),
        (Choice(np.arange(2)), Choice([0, 1])),
        ([{"n": np.int64(1)}, (np.float64(0.5), np.bool_(True))], Choice([{"n": 1}, (0.5, True)])),
        (IntRange(np.int64(1), np.int64(9), np.int64(2)), IntRange(1, 9, 2)),
        (Uniform(np.float64(0), np.int32(1)), Uniform(0.0, 1)),
    ],
)
def test_numbers_of_numpy_become_those_of_python(given: Any, expected: Any) -> None:
    space = checked_space({"x": given})
    assert repr(space.ranges) == repr({"x": expected})
    assert space.encoded({"x": np.int64(1)}) in ({"x": 1}, {"x": 1.0}, None)


@pytest.mark.parametrize(
    "values",
    [
        [(0.9, 0.999), (0.8, 0.99)],
        [(1, 2), [1, 2]],
        [{1: "a"}, {"1": "a"}],
        [{1: "a", "b": (2,)}, {None: 0}],
        [[1, (2, 3)], [{"x": (4,)}]],
        [1, True, 1.0],
        [0, False, None, "null"],
        [10**400, 1],
        [{"$tuple": [1]}, {"$dict": []}, (1,)],
    ],
)
def test_values_of_a_choice_are_the_same_after_json(values: list[Any]) -> None:
    space = checked_space({"x": values})
    again = SearchSpace.from_json(json.loads(json.dumps(space.to_json())))
    assert repr(again.ranges) == repr(space.ranges)
    assert again.continues(space)
    distribution = distribution_of(again.ranges["x"])
    stored = [distribution.to_external_repr(distribution.to_internal_repr(key)) for key in space.ranges["x"].keys]  # type: ignore[union-attr]
    assert repr([again.decoded({"x": key})["x"] for key in stored]) == repr(values)


def test_a_space_continues_one_whose_values_optuna_knows_alike() -> None:
    lists, tuples, others = ({"x": values} for values in ([[1, 2]], [(1, 2)], [[1.0, 2]]))
    assert checked_space(tuples).continues(checked_space(lists))  # of a study of an earlier version
    assert not checked_space(others).continues(checked_space(lists))
    assert not checked_space({"x": Uniform(0, 1)}).continues(checked_space({"x": LogUniform(0.1, 1)}))
    assert not checked_space({"x": [1]}).continues(checked_space({"x": [1], "y": [1]}))


def test_a_grid_has_an_end() -> None:
    for given in (IntRange(0, 2**62), Uniform(0, 1, step=1e-12), IntRange(-(2**63), 2**63 - 1)):
        with refused(InvalidInputError, "search"):
            checked_space({"x": given}).grid()
    assert len(checked_space({"x": IntRange(0, 999_999)}).grid()[0]) == 1_000_000


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, [math.nan], object(), _CYCLE, "x" * 9])
def test_a_value_of_another_program_is_outside(value: Any) -> None:
    for given in ([1, 2], Uniform(0, 1), IntRange(0, 5)):
        assert checked_space({"x": given}).encoded({"x": value}) is None


def test_values_that_optuna_does_not_know_come_back_as_they_were() -> None:
    space = checked_space({"layers": [[64], [64, 32]], "spec": Choice([{"cpu": 2}, None])})
    keys = [distribution_of(one) for one in space.ranges.values()]
    assert [each.choices for each in keys] == [("[64]", "[64, 32]"), ('{"cpu": 2}', "null")]  # type: ignore[attr-defined]
    assert space.decoded({"layers": "[64]", "spec": "null"}) == {"layers": [64], "spec": None}


def test_earlier_values_fit_as_numbers_or_text() -> None:
    space = checked_space(
        {"lr": LogUniform(1e-3, 1), "n": IntRange(1, 9), "opt": ["adam", "sgd"], "on": [True, False]}
    )
    assert space.encoded({"lr": "0.1", "n": "3", "opt": "sgd", "on": True, "more": 1}) == {
        "lr": 0.1,
        "n": 3,
        "opt": "sgd",
        "on": True,
    }
    for wrong in ({"lr": "2"}, {"n": "2.5"}, {"opt": "lion"}, {"lr": "fast"}):
        assert space.encoded({"lr": 0.1, "n": 3, "opt": "sgd", "on": True, **wrong}) is None
    assert space.encoded({"lr": 0.1}) is None


def test_a_grid_needs_a_finite_number_of_values() -> None:
    space = checked_space({"a": Uniform(0, 1, step=0.25), "b": IntRange(1, 5, 2), "c": ["x"]})
    assert space.grid() == [[0.0, 0.25, 0.5, 0.75, 1.0], [1, 3, 5], ["x"]]
    with refused(InvalidInputError, "search['lr']"):
        checked_space({"lr": LogUniform(1e-3, 1)}).grid()


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("loss", "minimize"),
        ("val_error", "minimize"),
        ("rmse", "minimize"),
        ("accuracy", "maximize"),
        ("mAP", "maximize"),
        ("val/auc", "maximize"),
        ("throughput", None),
        ("map_time", None),
    ],
)
def test_the_direction_is_known_where_the_name_is_clear(metric: str, direction: str | None) -> None:
    problems = Problems()
    (found,) = checked_objectives(metric, None, problems)
    assert found.direction == direction
    assert bool(problems.entries) == (direction is None)
    assert checked_objectives(metric, "maximize", Problems())[0].direction == "maximize"


@pytest.mark.parametrize(
    ("objective", "direction", "what"),
    [
        (Objective("loss", "minimize"), "maximize", "the objective has 'minimize'"),
        ("loss", "min", "unknown value 'min'"),
        (["loss", "accuracy"], ["minimize"], "has 1 directions for 2"),
        (["loss", "loss"], None, "'loss' twice"),
        (Objective("loss", at="first"), None, "at='first'"),  # type: ignore[arg-type]
        (7, None, "got an integer"),
        ([], None, "is empty"),
        ("", None, "has no metric"),
    ],
)
def test_objectives_that_contradict_themselves(objective: Any, direction: Any, what: str) -> None:
    problems = Problems()
    checked_objectives(objective, direction, problems)
    assert what in "; ".join(map(str, problems.entries))


def test_the_value_of_an_objective() -> None:
    points = [StepValue(1, 3.0), StepValue(2, float("nan")), StepValue(3, 1.0), StepValue(4, 2.0)]
    assert Objective("loss", "minimize").value_of(points) == 2.0
    assert Objective("loss", "minimize", at="best").value_of(points) == 1.0
    assert Objective("loss", "maximize", at="best").value_of(points) == 3.0
    assert Objective("loss", "minimize", at=3).value_of(points) == 1.0
    assert Objective("loss", "minimize", at=9).value_of(points) is None
    assert Objective("loss", "minimize").value_of([]) is None
