"""Population-based training: selects the trial that a member continues, and its hyperparameters.

    generation 0      trials 0 … size-1       hyperparameters drawn from the seed
    generation g      trials g·size + member  each continues from the checkpoint of a trial of generation g-1

All decisions are functions of the seed, the number of the trial and the finished trials of the previous
generation. So an interrupted search makes the same decisions again. This module does not import Optuna.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from pai_sdk._client.submit.problems import Problems
from pai_sdk._client.tune.objectives import Objective
from pai_sdk._client.tune.space import Choice, Range, SearchSpace, Uniform
from pai_sdk._core.names.hints import name_hint, type_problem, wrong_value
from pai_sdk.errors import Problem

_NAME = "pbt"


@dataclass(frozen=True)
class PopulationBased:
    """Population-based training: the `sampler` of a `Tuner` whose trials continue from checkpoints of others.

    In each generation, `size` trials train for a while. In the next one, the worst members continue from the
    checkpoint of one of the best, with changed hyperparameters; other members continue from their own.

    Attributes:
        size: the number of members.
        generations: the number of generations; a study can be continued with more.
        fraction: the part of the members that is replaced after each generation, at most 0.5. A member whose
            trial failed is replaced too.
        perturbation: numbers are multiplied by one of these factors. A choice moves to a neighbour in its list.
        resample: the probability that a hyperparameter is drawn again instead.

    Example:
        >>> population = PopulationBased(size=4, generations=3)
        >>> population.trials, population.generation_of(5)
        (12, 1)
    """

    size: int = 8
    generations: int = 5
    fraction: float = 0.25
    perturbation: Sequence[float] = (0.8, 1.25)
    resample: float = 0.25

    def __post_init__(self) -> None:
        if isinstance(self.perturbation, list):
            object.__setattr__(self, "perturbation", tuple(self.perturbation))

    @property
    def trials(self) -> int:
        """The number of trials of all generations."""
        return self.size * self.generations

    def generation_of(self, number: int) -> int:
        """Returns the generation of a trial."""
        return number // self.size

    def decides_like(self, other: PopulationBased | None) -> bool:
        """Returns True if both make equal decisions about each trial; the number of generations may differ."""
        return other is not None and replace(self, generations=1) == replace(other, generations=1)

    def to_json(self) -> dict[str, Any]:
        """Returns the settings as JSON, for the study."""
        return asdict(self)

    def successor(self, number: int, seed: int, before: Sequence[EndedMember], space: SearchSpace) -> Successor:
        """Returns the parent and the hyperparameters of a trial.

        Args:
            number: of the trial.
            seed: of the study.
            before: the finished trials of the previous generation, by member; at least one has a score.
            space: the ranges.
        """
        predecessor = before[number % self.size]
        ranked = sorted(before, key=lambda member: (member.score is None, member.score or 0.0, member.number))
        replaced = max(1, math.floor(self.fraction * self.size + 1e-9))
        if predecessor.score is not None and predecessor not in ranked[-replaced:]:
            return Successor(predecessor.number, predecessor.params)
        # Seeded by the number: after an interruption, the decision is repeated without the draws of earlier
        # trials.
        chance = random.Random(f"{seed}/{number}")  # noqa: S311 - no secret
        parent = chance.choice([member for member in ranked[:replaced] if member.score is not None])
        drawn = frozenset(name for name in space.ranges if chance.random() < self.resample)
        perturbed = {
            name: _perturbed(parent.params[name], value_range, self.perturbation, chance)
            for name, value_range in space.ranges.items()
            if name not in drawn
        }
        return Successor(parent.number, perturbed)


@dataclass(frozen=True)
class EndedMember:
    """A finished trial of a generation."""

    number: int
    params: Mapping[str, Any]  # encoded for Optuna
    score: float | None  # smaller is better; None if the trial failed


@dataclass(frozen=True)
class Successor:
    """The start of a trial."""

    parent: int  # the trial whose checkpoint it starts from
    params: Mapping[str, Any]  # encoded for Optuna; missing ones are drawn again


def _perturbed(value: Any, value_range: Range, factors: Sequence[float], chance: random.Random) -> Any:
    """Returns a value near another one, in the range."""
    if isinstance(value_range, Choice):
        index = next(
            index for index, key in enumerate(value_range.keys) if key == value and type(key) is type(value)
        )
        return chance.choice(
            [*value_range.keys[max(0, index - 1) : index], *value_range.keys[index + 1 : index + 2]] or [value]
        )
    factor = chance.choice(factors)
    step = getattr(value_range, "step", None)
    if step is None:
        return min(max(value * factor, value_range.low), value_range.high)
    index, moved = round((value - value_range.low) / step), round((value * factor - value_range.low) / step)
    if moved == index and factor != 1:  # otherwise small whole numbers would never change
        moved += 1 if (factor > 1) == (value >= 0) else -1
    last = math.floor((value_range.high - value_range.low) / step + 1e-9)
    new_value = value_range.low + min(max(moved, 0), last) * step
    return float(new_value) if isinstance(value_range, Uniform) else new_value


# ---- checks


def checked_population(sampler: object, problems: Problems) -> PopulationBased | None:
    """Returns the population of the `sampler` argument; None for another sampler."""
    if sampler == _NAME:
        return PopulationBased()
    if isinstance(sampler, Mapping) and [*sampler] == [_NAME]:
        sampler = _from_mapping(sampler[_NAME], problems)
    if not isinstance(sampler, PopulationBased):
        return None
    problems.entries += settings_problems(sampler)
    return sampler


def _from_mapping(settings: object, problems: Problems) -> PopulationBased:
    names = [item.name for item in fields(PopulationBased)]
    if not isinstance(settings, Mapping | None):
        problems.add(f"sampler.{_NAME}", type_problem("a mapping", settings), "settings by name, such as size: 8")
        return PopulationBased()
    arguments = {}
    for name, value in (settings or {}).items():
        if name in names:
            arguments[name] = value
        else:
            problems.add(f"sampler.{name}", "is unknown", name_hint(str(name), names))
    return PopulationBased(**arguments)


def settings_problems(population: PopulationBased) -> list[Problem]:
    """Returns the errors of the settings themselves."""
    factors = population.perturbation
    checks = [
        ("size", _is_int(population.size, 2), "an integer (minimum 2)"),
        ("generations", _is_int(population.generations, 1), "an integer (minimum 1)"),
        (
            "fraction",
            _is_number(population.fraction) and 0 < population.fraction <= 0.5,
            "a number above 0, maximum 0.5",
        ),
        (
            "perturbation",
            isinstance(factors, tuple)
            and bool(factors)
            and all(_is_number(factor) and factor > 0 for factor in factors),
            "factors above 0, such as (0.8, 1.25)",
        ),
        (
            "resample",
            _is_number(population.resample) and 0 <= population.resample <= 1,
            "a probability, from 0 to 1",
        ),
    ]
    return [
        wrong_value(f"sampler.{name}", getattr(population, name), expected)
        for name, is_valid, expected in checks
        if not is_valid
    ]


def check_combination(
    objectives: Sequence[Objective], pruner: object, warm_start: object, estimator: object, problems: Problems
) -> None:
    """Reports the arguments of a tuner that cannot be combined with a population."""
    if len(objectives) > 1:
        problems.add("objective", "population-based training needs one objective, and there are several")
    for item in objectives:
        if item.at not in ("last", "best"):
            hint = "leave at= out: each generation has its own steps"
            problems.add("objective", f"population-based training compares no values at step {item.at}", hint)
    if pruner is not None:
        hint = "leave it out: poor members continue from the checkpoint of a good one"
        problems.add("pruner", "cannot be combined with population-based training", hint)
    if warm_start is not None:
        hint = "leave it out; resume= of the estimator starts from an earlier checkpoint"
        problems.add("warm_start", "cannot be combined with population-based training", hint)
    if estimator is not None and not hasattr(estimator, "resume"):
        problems.add("estimator", type_problem("an Estimator, whose jobs can resume", estimator))


def _is_int(value: object, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
