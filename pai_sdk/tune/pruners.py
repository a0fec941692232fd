"""Pruners by their names, and what a pruner has learned, so that it is the same after a restart.

Optuna's pruners of successive halving learn their first step, or the number of brackets, from the longest trial
that is complete at their first decision, and keep it in the object (4.4 to 5.0.0). A study keeps the step of that
trial.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, PatientPruner, SuccessiveHalvingPruner

from pai_sdk.base.hints import is_of_type, name_hint
from pai_sdk.submit.problems import Problems

__all__ = ["checked_pruner", "is_learning", "pruner_of_study", "teach"]

_PRUNERS: Mapping[str, Callable[[], BasePruner]] = {
    "asha": optuna.pruners.SuccessiveHalvingPruner,
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
}


def is_learning(pruner: BasePruner) -> bool:
    """Returns whether the decisions of a pruner depend on the longest complete trial at the first of them."""
    return isinstance(_unwrapped(pruner), SuccessiveHalvingPruner | HyperbandPruner)


def pruner_of_study(pruner: BasePruner) -> BasePruner:
    """Copies a pruner that learns, since it would keep in another study what it has learned in this one."""
    return copy.deepcopy(pruner) if is_learning(pruner) else pruner


def teach(pruner: BasePruner, longest: int) -> None:
    """Lets a pruner that learns make its first decision in a study with one complete trial.

    Args:
        pruner: the pruner; one that has learned already does not change.
        longest: the last step of that trial.
    """
    study = optuna.create_study(pruner=_unwrapped(pruner))
    study.add_trial(optuna.trial.create_trial(value=0.0, intermediate_values={longest: 0.0}))
    trial = study.ask()
    trial.report(0.0, step=0)
    trial.should_prune()


def _unwrapped(pruner: BasePruner) -> BasePruner:
    while isinstance(pruner, PatientPruner) and pruner._wrapped_pruner is not None:
        pruner = pruner._wrapped_pruner
    return pruner


def checked_pruner(pruner: object, objectives: int, problems: Problems) -> BasePruner:
    """The pruner that a user has given, as it is or by its name; None prunes nothing.

    Args:
        pruner: a name or a pruner of Optuna.
        objectives: how many there are: only a search for one objective is pruned.
        problems: notes what is wrong.
    """
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
