"""The job of a trial: the user's estimator with the hyperparameters and resources of that trial."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pai_sdk.backend.base import Plan
from pai_sdk.base.hints import nearest
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.run.stored_checkpoints import latest_checkpoint
from pai_sdk.schemas.request import IDEMPOTENCY_LABEL
from pai_sdk.session import Session
from pai_sdk.submit.channels import InputSource
from pai_sdk.submit.problems import Problems
from pai_sdk.submit.submitter import EstimatorBase
from pai_sdk.tune.objectives import Objective
from pai_sdk.tune.space import Choice, SearchSpace

__all__ = [
    "RESOURCES",
    "STUDY_LABEL",
    "TRIAL_LABEL",
    "TrialTemplate",
    "is_suggestion",
    "no_estimator",
    "optuna_objective",
]

STUDY_LABEL, TRIAL_LABEL = "pai-sdk-study", "pai-sdk-trial"

RESOURCES = (
    "image_uri",
    "instance_type",
    "instance_count",
    "instance_spec",
    "resource_id",
    "spot_spec",
    "max_run_time",
    "requirements",
    "source_dir",
    "command",
    "job_type",
)
"""Names in a search space that are parameters of the estimator; all others are hyperparameters."""


class TrialTemplate:
    """Makes the jobs of trials.

    Args:
        estimator: the user's; it is not changed.
        name: what the names of the jobs begin with.
        study_id: of the study; for a label.
    """

    def __init__(self, estimator: EstimatorBase, name: str, study_id: str = "") -> None:
        self._estimator = estimator
        self._name = name
        self._study_id = study_id

    @property
    def session(self) -> Session:
        """Where the jobs run."""
        return self._estimator._session()

    def estimator_of(self, params: Mapping[str, Any]) -> EstimatorBase:
        """A copy of the estimator with the hyperparameters, and the resources, of a trial."""
        one = copy.copy(self._estimator)
        own = {*(self._estimator.hyperparameters or {})}
        resources = {name: value for name, value in params.items() if self._is_resource(name, own)}
        for name, value in resources.items():
            setattr(one, name, value)
        rest = {name: value for name, value in params.items() if name not in resources}
        one.hyperparameters = {**(self._estimator.hyperparameters or {}), **rest}
        return one

    def _is_resource(self, name: str, own: set[str]) -> bool:
        return name in RESOURCES and name not in own and hasattr(self._estimator, name)

    def plan(
        self,
        params: Mapping[str, Any],
        number: int,
        key: str | None = None,
        inputs: Mapping[str, InputSource] | None = None,
        parent: str = "",
    ) -> tuple[EstimatorBase, Plan]:
        """The plan of a trial's job, with the estimator that submits it.

        Args:
            params: the hyperparameters.
            number: of the trial.
            key: the idempotency key.
            inputs: of all trials.
            parent: the job that it resumes from, if that has a checkpoint; empty for none.
        """
        one = self.estimator_of(params)
        labels = {STUDY_LABEL: self._study_id, TRIAL_LABEL: str(number)} if self._study_id else {}
        one.labels = {**(one.labels or {}), **labels}
        one.idempotency_key = key
        if parent and latest_checkpoint(self.session.get_job(parent)) is not None:
            one.resume = parent  # type: ignore[attr-defined] # a tuner with a population has checked it
        return one, one.plan(inputs, job_name=f"{self._name}-{number}")

    def submit(
        self,
        params: Mapping[str, Any],
        number: int,
        key: str,
        inputs: Mapping[str, InputSource] | None,
        *,
        is_new: bool,
        parent: str = "",
    ) -> TrainingJob:
        """Submit a trial's job; one that was submitted with this key before is the same job.

        Args:
            params: the hyperparameters.
            number: of the trial.
            key: the idempotency key.
            inputs: of all trials.
            is_new: there can be no such job yet, so none is searched for. The label of the submission, by which it
                is found later, is the same.
            parent: the job that it resumes from, if that has a checkpoint; empty for none.
        """
        one, plan = self.plan(params, number, key, inputs, parent)
        if is_new:
            labels = [label for label in plan.request.labels or () if label.key != IDEMPOTENCY_LABEL]
            plan = replace(plan, request=plan.request.model_copy(update={"labels": labels}))
        return one.submit(plan, show_logs=False)

    def check(
        self,
        space: SearchSpace,
        objectives: list[Objective],
        inputs: Mapping[str, InputSource] | None,
        problems: Problems,
    ) -> None:
        """Plan a first trial, and one for each value of a resource, and note what is wrong with them."""
        _check_shared(self._estimator, problems)
        _check_metrics(self._estimator, objectives, problems)
        own = {*(self._estimator.hyperparameters or {})}
        if "image" in space.ranges and "image" not in own:
            problems.add(
                "search['image']", "is not a hyperparameter of the estimator", "did you mean 'image_uri'?"
            )
        for params in self.samples(space):
            try:
                self.plan(params, 0, None, inputs)
            except InvalidInputError as error:
                problems.found += [one for one in error.problems if one not in problems.found]

    def samples(self, space: SearchSpace) -> list[dict[str, Any]]:
        """Hyperparameters to plan with: the first value of each range, and each value of a resource."""
        own = {*(self._estimator.hyperparameters or {})}
        first: dict[str, Any] = {
            name: one.values[0] if isinstance(one, Choice) else one.low for name, one in space.ranges.items()
        }
        samples = [first]
        for name, one in space.ranges.items():
            if self._is_resource(name, own):
                values = one.values[1:] if isinstance(one, Choice) else [one.high]
                samples += [{**first, name: value} for value in values]
        return samples


def _check_shared(estimator: EstimatorBase, problems: Problems) -> None:
    """Note parameters that cannot be the same for all trials."""
    if getattr(estimator, "checkpoints_path", None) is not None:
        hint = "leave it out: each trial has checkpoints of its own"
        problems.add("checkpoints_path", "would be written by all trials", hint)
    if estimator.idempotency_key is not None:
        problems.add("idempotency_key", "would be that of all trials", "leave it out: each trial has its own")


def _check_metrics(estimator: EstimatorBase, objectives: list[Objective], problems: Problems) -> None:
    """Note an objective that is nearly the name of a metric that the estimator defines."""
    definitions = getattr(estimator, "metric_definitions", None) or ()
    names = [one.get("name") if isinstance(one, Mapping) else getattr(one, "name", None) for one in definitions]
    known = [name for name in names if isinstance(name, str)]
    for one in objectives:
        if known and one.metric not in known and (near := nearest(one.metric, known)):
            problems.add("objective", f"{one.metric!r} is not in metric_definitions", f"did you mean {near[0]!r}?")


def no_estimator(given: object) -> Problem:
    """The problem of something that is neither an estimator nor a function."""
    return Problem(
        "estimator",
        f"is of type {type(given).__name__}",
        "give an Estimator, an AlgorithmEstimator, Estimator.from_function(…), or a function f(config)",
    )


def is_suggestion(name: object) -> bool:
    """Returns whether a name is one by which an objective of Optuna asks for a value: `suggest_float`."""
    return isinstance(name, str) and name.startswith("suggest_")


def optuna_objective(name: str) -> Problem:
    """The problem of a function that is written for Optuna.

    Args:
        name: what it calls, such as `suggest_float`.
    """
    return Problem(
        "estimator",
        f"is an objective of Optuna: it calls {name}",
        "a function gets a dict of values, such as config['lr'], whose ranges are the search of the Tuner",
    )
