"""Samplers and pruners by their names, and samplers whose draws depend only on the number of the trial.

Optuna's pruners of successive halving learn their first step, or the number of brackets, from the longest trial
that is complete at their first decision, and store it in the object (4.4 to 5.0.0). A study stores the step of
that trial.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner, HyperbandPruner, PatientPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from pai_sdk._client.submit.problems import Problems
from pai_sdk._client.tune.population import EndedMember, PopulationBased, Successor
from pai_sdk._client.tune.space import Choice, IntRange, LogUniform, SearchSpace, Uniform
from pai_sdk._core.names.hints import name_hint, type_problem

_FACTORIES: Mapping[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "qmc": lambda seed: optuna.samplers.QMCSampler(seed=seed, scramble=True),
}
_NEEDS: Mapping[str, Sequence[str]] = {"cmaes": ["cmaes"], "gp": ["torch", "scipy"], "qmc": ["scipy"]}
_SAMPLERS = ("tpe", "random", "grid", "cmaes", "gp", "nsga2", "qmc", "pbt")


def distribution_of(value_range: Uniform | LogUniform | IntRange | Choice) -> BaseDistribution:
    """Returns the distribution of Optuna for a range."""
    if isinstance(value_range, Choice):
        return optuna.distributions.CategoricalDistribution(value_range.keys)
    if isinstance(value_range, IntRange):
        return optuna.distributions.IntDistribution(
            value_range.low, value_range.high, log=value_range.log, step=value_range.step
        )
    if isinstance(value_range, LogUniform):
        return optuna.distributions.FloatDistribution(value_range.low, value_range.high, log=True)
    return optuna.distributions.FloatDistribution(value_range.low, value_range.high, step=value_range.step)


class SeededSampler(BaseSampler):
    """Creates a new sampler for each trial, with a seed from the study's seed and the number of the trial."""

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        # A sampler that lives as long as its process would draw other values after a restart. With this one, a
        # study that was interrupted continues with the values that it would have had.
        self._make = make
        self._seed = seed
        self._of = lru_cache(maxsize=16)(self._create_sampler)

    def _create_sampler(self, number: int) -> BaseSampler:
        digest = hashlib.sha256(f"{self._seed}/{number}".encode()).digest()
        return self._make(int.from_bytes(digest[:4], "big"))

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Delegates to the sampler of the trial."""
        return self._of(trial.number).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Delegates to the sampler of the trial."""
        return self._of(trial.number).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Delegates to the sampler of the trial."""
        return self._of(trial.number).sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Delegates to the sampler of the trial."""
        self._of(trial.number).before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Delegates to the sampler of the trial."""
        self._of(trial.number).after_trial(study, trial, state, values)


class GridSampler(BaseSampler):
    """Samples each point of a grid once, in an order that depends on the seed."""

    def __init__(self, space: SearchSpace, seed: int, skipped: int) -> None:
        self._names, self._columns = [*space.ranges], space.grid()
        self._skipped = skipped
        self.size = 1
        for column in self._columns:
            self.size *= len(column)
        self._order = random.Random(seed).sample(range(self.size), self.size)  # noqa: S311 - no secret

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Returns nothing: each parameter is sampled independently, from the point of the trial."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Returns nothing, because there is no relative search space."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Returns the value of the point of the trial."""
        index = self._order[(trial.number - self._skipped) % self.size]
        for name, column in zip(self._names, self._columns, strict=True):
            index, number = divmod(index, len(column))
            if name == param_name:
                return column[number]
        raise KeyError(param_name)


class PopulationSampler(SeededSampler):
    """Samples the members of a population: new ones in the first generation, then successors of members."""

    def __init__(self, population: PopulationBased, space: SearchSpace, seed: int) -> None:
        super().__init__(_FACTORIES["random"], seed)
        self._population = population
        self._space = space
        self._successors = lru_cache(maxsize=16)(self._successor)

    def parent(self, study: Study, number: int) -> int | None:
        """Returns the trial that a trial continues from; None in the first generation."""
        successor = self._successors(study, number)
        return None if successor is None else successor.parent

    def _successor(self, study: Study, number: int) -> Successor | None:
        sign = -1 if study.direction == StudyDirection.MAXIMIZE else 1
        before = [
            EndedMember(
                member.number,
                member.params,
                sign * member.values[0] if member.state == TrialState.COMPLETE else None,
            )
            for member in generation_before(self._population, study, number)
        ]
        return self._population.successor(number, self._seed, before, self._space) if before else None

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Returns the value of the parent, changed or not; in the first generation a new one."""
        successor = self._successors(study, trial.number)
        if successor is not None and param_name in successor.params:
            return successor.params[param_name]
        return super().sample_independent(study, trial, param_name, param_distribution)


def generation_before(population: PopulationBased, study: Study, number: int) -> list[FrozenTrial]:
    """Returns the trials of the generation before that of a trial; none in the first one."""
    end = population.generation_of(number) * population.size
    return study.get_trials(deepcopy=False)[max(0, end - population.size) : end]


def checked_sampler(sampler: object, space: SearchSpace, problems: Problems) -> Callable[[int, int], BaseSampler]:
    """Returns a function that creates the sampler of a study from the seed and the number of earlier trials."""
    if sampler is None:
        sampler = "tpe"
    if isinstance(sampler, BaseSampler):
        fixed_sampler: BaseSampler = sampler
        return lambda seed, skipped: fixed_sampler
    if isinstance(sampler, PopulationBased):
        population = sampler
        return lambda seed, skipped: PopulationSampler(population, space, seed)
    if sampler == "grid":
        with problems.under("sampler"):
            GridSampler(space, 0, 0)
        return lambda seed, skipped: GridSampler(space, seed, skipped)
    make: Any = _FACTORIES.get(sampler) if isinstance(sampler, str) else sampler
    if isinstance(sampler, type) and issubclass(sampler, BaseSampler):
        kind: Any = sampler
        make = lambda seed: kind(seed=seed)  # noqa: E731
    if not callable(make):
        hint = name_hint(sampler, _SAMPLERS) if isinstance(sampler, str) else "such as 'tpe'"
        message = f"unknown value {sampler!r}" if isinstance(sampler, str) else type_problem("a name", sampler)
        problems.add("sampler", message, hint)
        return lambda seed, skipped: SeededSampler(_FACTORIES["random"], seed)
    missing = [name for name in _NEEDS.get(str(sampler), ()) if importlib.util.find_spec(name) is None]
    if missing:  # Optuna imports them when the second trial starts, or later
        problems.add("sampler", f"{sampler!r} needs {missing[0]}", f"run: pip install {' '.join(missing)}")
        return lambda seed, skipped: SeededSampler(_FACTORIES["random"], seed)
    try:
        make(0)
    except ImportError as error:  # of a package that only this sampler needs
        problems.add("sampler", f"{sampler!r} cannot be used: {error}", f"run: pip install {error.name or '…'}")
    except Exception as error:  # of any kind: runs a function of the user
        problems.add("sampler", f"cannot be created: {type(error).__name__}: {error}", "a function from a seed")
    return lambda seed, skipped: SeededSampler(make, seed)


_PRUNERS: Mapping[str, Callable[[], BasePruner]] = {
    "asha": optuna.pruners.SuccessiveHalvingPruner,
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
}


def is_learning(pruner: BasePruner) -> bool:
    """Returns whether a pruner learns from the longest trial that is complete at its first decision."""
    return isinstance(_unwrapped(pruner), SuccessiveHalvingPruner | HyperbandPruner)


def pruner_of_study(pruner: BasePruner) -> BasePruner:
    """Copies a pruner that learns, because its learned state must not be used in another study."""
    return copy.deepcopy(pruner) if is_learning(pruner) else pruner


def teach(pruner: BasePruner, last_step: int) -> None:
    """Makes a pruner learn: it makes its first decision in a study with one complete trial of `last_step`."""
    study = optuna.create_study(pruner=_unwrapped(pruner))
    study.add_trial(optuna.trial.create_trial(value=0.0, intermediate_values={last_step: 0.0}))
    trial = study.ask()
    trial.report(0.0, step=0)
    trial.should_prune()


def _unwrapped(pruner: BasePruner) -> BasePruner:
    while isinstance(pruner, PatientPruner) and pruner._wrapped_pruner is not None:
        pruner = pruner._wrapped_pruner
    return pruner


def checked_pruner(pruner: object, objectives: int, problems: Problems) -> BasePruner:
    """Returns the pruner of the `pruner` argument, or one by its name; None prunes nothing."""
    if pruner is None:
        return optuna.pruners.NopPruner()
    if objectives > 1:
        problems.add("pruner", "is for one objective, and there are several", "leave it out")
    if isinstance(pruner, BasePruner):
        return pruner
    if isinstance(pruner, str) and pruner in _PRUNERS:
        return _PRUNERS[pruner]()
    if isinstance(pruner, str):
        problems.add("pruner", f"unknown value {pruner!r}", name_hint(pruner, _PRUNERS))
    else:
        problems.add("pruner", type_problem("'asha', 'median' or a pruner of Optuna", pruner))
    return optuna.pruners.NopPruner()
