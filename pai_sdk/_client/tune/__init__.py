"""Searches for hyperparameters: `Tuner`, the ranges of a search space, objectives. Needs the extra `[tune]`."""

from pai_sdk._client.tune.objectives import Objective
from pai_sdk._client.tune.population import PopulationBased
from pai_sdk._client.tune.space import Choice, IntRange, LogUniform, Uniform
from pai_sdk._client.tune.trials import Trial, TrialList
from pai_sdk._client.tune.tuner import Tuner

__all__ = [
    "Choice",
    "IntRange",
    "LogUniform",
    "Objective",
    "PopulationBased",
    "Trial",
    "TrialList",
    "Tuner",
    "Uniform",
]
