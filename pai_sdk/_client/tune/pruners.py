"""Pruners by their names, and the learned state of a pruner, which is restored after a restart.

Optuna's pruners of successive halving learn their first step, or the number of brackets, from the longest trial
that is complete at their first decision, and store it in the object (4.4 to 5.0.0). A study stores the step of
that trial.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, PatientPruner, SuccessiveHalvingPruner

from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.names.hints import is_of_type, name_hint

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
        problems.add("pruner", f"{pruner!r} is not known", name_hint(pruner, _PRUNERS))
    else:
        problems.add("pruner", is_of_type(pruner), "give 'asha', 'median' or a pruner of Optuna")
    return optuna.pruners.NopPruner()
