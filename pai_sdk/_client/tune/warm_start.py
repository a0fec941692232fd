"""Trials for a warm start: those of an earlier study, or runs of a store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.tune.journal import open_journal
from pai_sdk._client.tune.objectives import Objective, step_values
from pai_sdk._client.tune.space import SearchSpace
from pai_sdk._client.tune.study import EarlierTrial, Study
from pai_sdk._client.tune.trials import Trial, TrialList
from pai_sdk._core.names.hints import wrong_type
from pai_sdk._data.run.store.run_store import RunStore
from pai_sdk._data.run.watch.manager import RunManager
from pai_sdk._data.storage.store import open_store
from pai_sdk.errors import InvalidInputError, Problem

_Candidate: TypeAlias = tuple[Mapping[str, Any], Mapping[str, float], str, Sequence[float]]
"""Hyperparameters, values of metrics, origin and constraints."""

_EXPECTED = "the URI of a study or of a run store, a RunStore, a Tuner, its trials, or jobs"


def earlier_trials(
    source: Any, space: SearchSpace, objectives: Sequence[Objective], session: Any = None
) -> list[EarlierTrial]:
    """Returns the trials of a source that are points of a search space and have a value of each objective."""
    sources = source if isinstance(source, list | tuple) and not isinstance(source, TrialList) else [source]
    earlier: list[EarlierTrial] = []
    num_candidates = 0
    for item in sources:
        for params, values, origin, constraints in _candidates(item, objectives, session):
            num_candidates += 1
            point = space.encoded(params)
            numbers = [values.get(objective.metric, math.nan) for objective in objectives]
            if point is not None and not any(math.isnan(number) for number in numbers):
                earlier.append(EarlierTrial(point, numbers, origin, constraints))
    if not earlier:
        names = ", ".join(objective.metric for objective in objectives)
        message = f"has no trial in the search space with a value of {names}; {num_candidates} were checked"
        raise InvalidInputError([Problem("warm_start", message)])
    return earlier


def _candidates(source: Any, objectives: Sequence[Objective], session: Any) -> Iterator[_Candidate]:
    trials = getattr(source, "trials", source)
    if isinstance(source, TrainingJob):
        yield _of_job(source, objectives)
    elif isinstance(trials, Sequence) and not isinstance(trials, str):
        yield from _of_trials(trials)
    elif isinstance(source, str | Path):
        store = open_store(source, session)
        journal = open_journal(store)
        if len(journal):
            yield from _of_trials(Study.load(journal, store.uri).trials())
        else:
            yield from _of_runs(source, objectives, session)
    elif isinstance(source, RunStore):
        yield from _of_runs(source, objectives, session)
    else:
        raise InvalidInputError([wrong_type("warm_start", source, _EXPECTED)])


def _of_trials(trials: Sequence[Any]) -> Iterator[_Candidate]:
    for trial in trials:
        if not isinstance(trial, Trial):
            raise InvalidInputError([wrong_type("warm_start", trial, _EXPECTED)])
        if trial.state == "complete":
            yield trial.params, trial.values, f"trial {trial.number} of an earlier study", trial.constraints


def _of_job(job: TrainingJob, objectives: Sequence[Objective]) -> _Candidate:
    values = {
        objective.metric: objective.value_of(step_values(job.metrics(objective.metric)))
        for objective in objectives
    }
    present = {name: value for name, value in values.items() if value is not None}
    return job.record.hyperparameter_values, present if job.status.is_success else {}, f"job {job.id}", ()


def _of_runs(source: Any, objectives: Sequence[Objective], session: Any) -> Iterator[_Candidate]:
    with RunManager(source, refresh_s=0, session=session) as manager:
        manager.wait_until_loaded()
        for brief in manager.runs().runs:
            values: dict[str, float] = {}
            for objective in objectives:
                tag = brief.tags.get(objective.metric) or brief.tags.get(f"metrics.{objective.metric}")
                if tag is None or tag.last is None:
                    continue
                extreme = tag.max if objective.is_maximized else tag.min
                value = extreme if objective.at == "best" else tag.last.value
                values[objective.metric] = math.nan if value is None else float(value)
            yield brief.hparams, values, f"run {brief.id}", ()
