"""Samplers by their names, and samplers whose draws depend on the number of the trial only."""

from __future__ import annotations

import hashlib
import importlib.util
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from pai_sdk.base.hints import is_of_type, name_hint
from pai_sdk.submit.problems import Problems
from pai_sdk.tune.population import EndedMember, PopulationBased, Successor
from pai_sdk.tune.space import Choice, IntRange, LogUniform, SearchSpace, Uniform

__all__ = ["PopulationSampler", "checked_sampler", "distribution_of", "generation_before"]

_MAKERS: Mapping[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "qmc": lambda seed: optuna.samplers.QMCSampler(seed=seed, scramble=True),
}
_NEEDS: Mapping[str, Sequence[str]] = {"cmaes": ["cmaes"], "gp": ["torch", "scipy"], "qmc": ["scipy"]}
_SAMPLERS = ("tpe", "random", "grid", "cmaes", "gp", "nsga2", "qmc", "pbt")


def distribution_of(one: Uniform | LogUniform | IntRange | Choice) -> BaseDistribution:
    """The distribution of Optuna for a range."""
    if isinstance(one, Choice):
        return optuna.distributions.CategoricalDistribution(one.keys)
    if isinstance(one, IntRange):
        return optuna.distributions.IntDistribution(one.low, one.high, log=one.log, step=one.step)
    if isinstance(one, LogUniform):
        return optuna.distributions.FloatDistribution(one.low, one.high, log=True)
    return optuna.distributions.FloatDistribution(one.low, one.high, step=one.step)


class SeededSampler(BaseSampler):
    """Makes a new sampler for each trial, whose seed comes from the study's seed and the number of the trial.

    A sampler that lives as long as its process would draw other values after a restart. With this one, a study
    that was interrupted goes on with the values that it would have had.

    Args:
        make: makes a sampler from a seed.
        seed: of the study.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self._make = make
        self._seed = seed
        self._of = lru_cache(maxsize=16)(self._made)

    def _made(self, number: int) -> BaseSampler:
        digest = hashlib.sha256(f"{self._seed}/{number}".encode()).digest()
        return self._make(int.from_bytes(digest[:4], "big"))

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """As the sampler of the trial."""
        return self._of(trial.number).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As the sampler of the trial."""
        return self._of(trial.number).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """As the sampler of the trial."""
        return self._of(trial.number).sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """As the sampler of the trial."""
        self._of(trial.number).before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """As the sampler of the trial."""
        self._of(trial.number).after_trial(study, trial, state, values)


class GridSampler(BaseSampler):
    """Each point of a grid once, in an order that the seed decides.

    Args:
        space: its ranges have a finite number of values.
        seed: of the study.
        skipped: the number of trials of the study before the first one of the grid.
    """

    def __init__(self, space: SearchSpace, seed: int, skipped: int) -> None:
        self._names, self._columns = [*space.ranges], space.grid()
        self._skipped = skipped
        self.size = 1
        for column in self._columns:
            self.size *= len(column)
        self._order = random.Random(seed).sample(range(self.size), self.size)  # noqa: S311 - no secret

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing: each parameter is taken from the point of the trial."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing, likewise."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The value of the point of the trial."""
        at = self._order[(trial.number - self._skipped) % self.size]
        for known, column in zip(self._names, self._columns, strict=True):
            at, number = divmod(at, len(column))
            if known == param_name:
                return column[number]
        raise KeyError(param_name)


class PopulationSampler(SeededSampler):
    """The members of a population: drawn in the first generation, then those of the generation before, changed.

    Args:
        population: its settings.
        space: the ranges.
        seed: of the study.
    """

    def __init__(self, population: PopulationBased, space: SearchSpace, seed: int) -> None:
        super().__init__(_MAKERS["random"], seed)
        self._population = population
        self._space = space
        self._successors = lru_cache(maxsize=16)(self._successor)

    def parent(self, study: Study, number: int) -> int | None:
        """The trial that a trial goes on from; None in the first generation."""
        found = self._successors(study, number)
        return None if found is None else found.parent

    def _successor(self, study: Study, number: int) -> Successor | None:
        sign = -1 if study.direction == StudyDirection.MAXIMIZE else 1
        before = [
            EndedMember(one.number, one.params, sign * one.values[0] if one.state == TrialState.COMPLETE else None)
            for one in generation_before(self._population, study, number)
        ]
        return self._population.successor(number, self._seed, before, self._space) if before else None

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The value of the parent, changed or not; in the first generation a new one."""
        found = self._successors(study, trial.number)
        if found is not None and param_name in found.params:
            return found.params[param_name]
        return super().sample_independent(study, trial, param_name, param_distribution)


def generation_before(population: PopulationBased, study: Study, number: int) -> list[FrozenTrial]:
    """The trials of the generation before that of a trial; none before the first one.

    Args:
        population: its settings.
        study: with all of these trials.
        number: of the trial.
    """
    end = population.generation_of(number) * population.size
    return study.get_trials(deepcopy=False)[max(0, end - population.size) : end]


def checked_sampler(sampler: object, space: SearchSpace, problems: Problems) -> Callable[[int, int], BaseSampler]:
    """What makes the sampler of a study from its seed and the number of trials that it begins with.

    Args:
        sampler: a name, a population, a sampler of Optuna, or a function from a seed to a sampler, such as its
            class.
        space: the ranges.
        problems: notes what is wrong.
    """
    if sampler is None:
        sampler = "tpe"
    if isinstance(sampler, BaseSampler):
        its: BaseSampler = sampler
        return lambda seed, skipped: its
    if isinstance(sampler, PopulationBased):
        population = sampler
        return lambda seed, skipped: PopulationSampler(population, space, seed)
    if sampler == "grid":
        with problems.under("sampler"):
            GridSampler(space, 0, 0)
        return lambda seed, skipped: GridSampler(space, seed, skipped)
    make: Any = _MAKERS.get(sampler) if isinstance(sampler, str) else sampler
    if isinstance(sampler, type) and issubclass(sampler, BaseSampler):
        kind: Any = sampler
        make = lambda seed: kind(seed=seed)  # noqa: E731
    if not callable(make):
        hint = name_hint(sampler, _SAMPLERS) if isinstance(sampler, str) else "give a name, such as 'tpe'"
        what = f"{sampler!r} is not known" if isinstance(sampler, str) else is_of_type(sampler)
        problems.add("sampler", what, hint)
        return lambda seed, skipped: SeededSampler(_MAKERS["random"], seed)
    missing = [name for name in _NEEDS.get(str(sampler), ()) if importlib.util.find_spec(name) is None]
    if missing:  # Optuna imports them when the second trial begins, or later
        problems.add("sampler", f"{sampler!r} needs {missing[0]}", f"run: pip install {' '.join(missing)}")
        return lambda seed, skipped: SeededSampler(_MAKERS["random"], seed)
    try:
        make(0)
    except ImportError as error:  # of what only this sampler needs
        problems.add("sampler", f"{sampler!r} cannot be used: {error}", f"run: pip install {error.name or '…'}")
    except Exception as error:  # whatever the user's function raises
        problems.add("sampler", f"cannot be made: {type(error).__name__}: {error}", "a function from a seed")
    return lambda seed, skipped: SeededSampler(make, seed)
