"""Population-based training: from which trial a member goes on, and with which hyperparameters.

    generation 0      trials 0 … size-1       hyperparameters drawn from the seed
    generation g      trials g·size + member  each goes on from the checkpoint of a trial of generation g-1

All decisions are functions of the seed, the number of the trial and the ended trials of the generation before. So
a search that was interrupted decides the same again. This module does not import Optuna.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from pai_sdk.base.hints import is_of_type, name_hint
from pai_sdk.errors import Problem
from pai_sdk.submit.problems import Problems
from pai_sdk.tune.objectives import Objective
from pai_sdk.tune.space import Choice, Range, SearchSpace, Uniform

__all__ = [
    "EndedMember",
    "PopulationBased",
    "Successor",
    "check_combination",
    "checked_population",
    "settings_problems",
]

_NAME = "pbt"


@dataclass(frozen=True)
class PopulationBased:
    """Population-based training, the `sampler` of a `Tuner` whose trials go on from checkpoints of other trials.

    In each generation, `size` trials train for a while. In the next one, the worst members go on from the
    checkpoint of one of the best, with changed hyperparameters; the others go on from their own.

    Attributes:
        size: the number of members.
        generations: how often each of them trains; a study can be continued with more.
        fraction: the part of the members that is replaced after each generation, at most a half. A member whose
            trial failed is replaced too.
        perturbation: numbers are multiplied with one of these factors. A choice moves to a neighbour in its list.
        resample: the probability that a hyperparameter is drawn anew instead.

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
        """The number of all trials."""
        return self.size * self.generations

    def generation_of(self, number: int) -> int:
        """The generation of a trial."""
        return number // self.size

    def decides_like(self, other: PopulationBased | None) -> bool:
        """True if both decide the same about each trial; the number of generations may differ."""
        return other is not None and replace(self, generations=1) == replace(other, generations=1)

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON, for the study."""
        return asdict(self)

    def successor(self, number: int, seed: int, before: Sequence[EndedMember], space: SearchSpace) -> Successor:
        """The trial of a generation that goes on from the one before it.

        Args:
            number: of the trial.
            seed: of the study.
            before: the ended trials of the generation before, by member; at least one has a score.
            space: the ranges.
        """
        mine = before[number % self.size]
        ranked = sorted(before, key=lambda one: (one.score is None, one.score or 0.0, one.number))
        replaced = max(1, math.floor(self.fraction * self.size + 1e-9))
        if mine.score is not None and mine not in ranked[-replaced:]:
            return Successor(mine.number, mine.params)
        chance = random.Random(f"{seed}/{number}")  # noqa: S311 - no secret
        parent = chance.choice([one for one in ranked[:replaced] if one.score is not None])
        drawn = frozenset(name for name in space.ranges if chance.random() < self.resample)
        kept = {
            name: _perturbed(parent.params[name], one, self.perturbation, chance)
            for name, one in space.ranges.items()
            if name not in drawn
        }
        return Successor(parent.number, kept)


@dataclass(frozen=True)
class EndedMember:
    """An ended trial of a generation.

    Attributes:
        number: of the trial.
        params: its hyperparameters, as Optuna knows them.
        score: its value, smaller is better; None if it failed.
    """

    number: int
    params: Mapping[str, Any]
    score: float | None


@dataclass(frozen=True)
class Successor:
    """How a trial goes on.

    Attributes:
        parent: the trial whose checkpoint it begins with.
        params: its hyperparameters, as Optuna knows them; those that are missing are drawn anew.
    """

    parent: int
    params: Mapping[str, Any]


def _perturbed(value: Any, given: Range, factors: Sequence[float], chance: random.Random) -> Any:
    """A value near another one, in the range."""
    if isinstance(given, Choice):
        at = next(at for at, key in enumerate(given.keys) if key == value and type(key) is type(value))
        return chance.choice([*given.keys[max(0, at - 1) : at], *given.keys[at + 1 : at + 2]] or [value])
    factor = chance.choice(factors)
    step = getattr(given, "step", None)
    if step is None:
        return min(max(value * factor, given.low), given.high)
    at, moved = round((value - given.low) / step), round((value * factor - given.low) / step)
    if moved == at and factor != 1:  # else small whole numbers would never change
        moved += 1 if (factor > 1) == (value >= 0) else -1
    last = math.floor((given.high - given.low) / step + 1e-9)
    found = given.low + min(max(moved, 0), last) * step
    return float(found) if isinstance(given, Uniform) else found


# ---- checks


def checked_population(sampler: object, problems: Problems) -> PopulationBased | None:
    """The population that a user has given as the sampler; None if it is another sampler.

    Args:
        sampler: a `PopulationBased`, `"pbt"`, or a mapping as in a file: `{"pbt": {"size": 8}}`.
        problems: notes what is wrong.
    """
    if sampler == _NAME:
        return PopulationBased()
    if isinstance(sampler, Mapping) and [*sampler] == [_NAME]:
        sampler = _from_mapping(sampler[_NAME], problems)
    if not isinstance(sampler, PopulationBased):
        return None
    problems.found += settings_problems(sampler)
    return sampler


def _from_mapping(given: object, problems: Problems) -> PopulationBased:
    names = [one.name for one in fields(PopulationBased)]
    if not isinstance(given, Mapping | None):
        problems.add(f"sampler.{_NAME}", is_of_type(given), "give the settings by name, such as size: 8")
        return PopulationBased()
    known = {}
    for name, value in (given or {}).items():
        if name in names:
            known[name] = value
        else:
            problems.add(f"sampler.{name}", "is not known", name_hint(str(name), names))
    return PopulationBased(**known)


def settings_problems(given: PopulationBased) -> list[Problem]:
    """What is wrong with the settings themselves."""
    factors = given.perturbation
    checks = [
        ("size", _is_whole(given.size, 2), "a whole number, 2 or more"),
        ("generations", _is_whole(given.generations, 1), "a whole number, 1 or more"),
        ("fraction", _is_number(given.fraction) and 0 < given.fraction <= 0.5, "above 0, and at most 0.5"),
        (
            "perturbation",
            isinstance(factors, tuple) and bool(factors) and all(_is_number(one) and one > 0 for one in factors),
            "factors above 0, such as (0.8, 1.25)",
        ),
        ("resample", _is_number(given.resample) and 0 <= given.resample <= 1, "a probability, from 0 to 1"),
    ]
    return [
        Problem(f"sampler.{name}", f"{getattr(given, name)!r} is not possible", hint)
        for name, is_right, hint in checks
        if not is_right
    ]


def check_combination(
    objectives: Sequence[Objective], pruner: object, warm_start: object, estimator: object, problems: Problems
) -> None:
    """Note the parameters of a tuner that do not go with a population.

    Args:
        objectives: what is searched for.
        pruner: as given.
        warm_start: as given.
        estimator: as given; None for a function.
        problems: notes what is wrong.
    """
    if len(objectives) > 1:
        problems.add("objective", "population-based training needs one objective, and there are several")
    for one in objectives:
        if one.at not in ("last", "best"):
            hint = "leave at= out: each generation has steps of its own"
            problems.add("objective", f"population-based training compares no values at step {one.at}", hint)
    if pruner is not None:
        hint = "leave it out: poor members go on from the checkpoint of a good one"
        problems.add("pruner", "does not go with population-based training", hint)
    if warm_start is not None:
        hint = "leave it out; resume= of the estimator begins with an earlier checkpoint"
        problems.add("warm_start", "does not go with population-based training", hint)
    if estimator is not None and not hasattr(estimator, "resume"):
        problems.add("estimator", f"{is_of_type(estimator)}, whose jobs cannot resume", "give an Estimator")


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
