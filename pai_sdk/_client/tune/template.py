"""The job of a trial: the user's estimator with the hyperparameters and resources of that trial."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.session import Session
from pai_sdk._client.submit.channels import InputSource
from pai_sdk._client.submit.problems import Problems
from pai_sdk._client.submit.submitter import EstimatorBase
from pai_sdk._client.tune.objectives import Objective
from pai_sdk._client.tune.space import Choice, SearchSpace
from pai_sdk._core.names.hints import nearest, wrong_type
from pai_sdk._data.run.store.stored_checkpoints import latest_checkpoint
from pai_sdk._wire.pai.request import IDEMPOTENCY_LABEL
from pai_sdk.errors import InvalidInputError, Problem

STUDY_LABEL, TRIAL_LABEL = "pai-sdk-study", "pai-sdk-trial"
"""Labels of the job of a trial: the id of the study, the number of the trial."""

OBJECTIVE_LABEL, TRIALS_LABEL, PRUNED_LABEL = "pai-sdk-objective", "pai-sdk-trials", "pai-sdk-pruned"
"""Further labels, for the page of the service: `minimize loss at best`, the number of trials of the study, and the
step at which the trial was pruned."""

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
"""Names in a search space that are parameters of the estimator; other names are hyperparameters."""


class TrialTemplate:
    """Plans and submits the jobs of trials, which have names with one prefix."""

    def __init__(self, estimator: EstimatorBase, name: str, labels: Mapping[str, str] | None = None) -> None:
        self._estimator = estimator
        self._name = name
        self._labels = labels  # of all trials; None to plan without a study

    @property
    def session(self) -> Session:
        """The session of the jobs."""
        return self._estimator.resolved_session()

    def estimator_of(self, params: Mapping[str, Any]) -> EstimatorBase:
        """Returns a copy of the estimator with the hyperparameters and resources of a trial."""
        estimator = copy.copy(self._estimator)
        hyperparameter_names = {*(self._estimator.hyperparameters or {})}
        resources = {
            name: value for name, value in params.items() if self._is_resource(name, hyperparameter_names)
        }
        for name, value in resources.items():
            setattr(estimator, name, value)
        hyperparameters = {name: value for name, value in params.items() if name not in resources}
        estimator.hyperparameters = {**(self._estimator.hyperparameters or {}), **hyperparameters}
        return estimator

    def _is_resource(self, name: str, hyperparameter_names: set[str]) -> bool:
        return name in RESOURCES and name not in hyperparameter_names and hasattr(self._estimator, name)

    def plan(
        self,
        params: Mapping[str, Any],
        number: int,
        key: str | None = None,
        inputs: Mapping[str, InputSource] | None = None,
        parent: str = "",
    ) -> tuple[EstimatorBase, Plan]:
        """Returns the plan of a trial's job, with the estimator that submits it."""
        estimator = self.estimator_of(params)
        labels = {**self._labels, TRIAL_LABEL: str(number)} if self._labels is not None else {}
        estimator.labels = {**(estimator.labels or {}), **labels}
        estimator.idempotency_key = key
        # A parent may have no checkpoint: the trial then starts from scratch.
        if parent and latest_checkpoint(self.session.get_job(parent)) is not None:
            estimator.resume = parent  # type: ignore[attr-defined] # a tuner with a population has checked it
        return estimator, estimator.plan(inputs, job_name=f"{self._name}-{number}")

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
        """Submits a trial's job, or returns the one that was submitted with this key before."""
        estimator, plan = self.plan(params, number, key, inputs, parent)
        # No such job can exist yet, so the search for it is skipped. The submission sets the same label, by which
        # the job is found later.
        if is_new:
            labels = [label for label in plan.request.labels or () if label.key != IDEMPOTENCY_LABEL]
            plan = replace(plan, request=plan.request.model_copy(update={"labels": labels}))
        return estimator.submit(plan, show_logs=False)

    def check(
        self,
        space: SearchSpace,
        objectives: list[Objective],
        inputs: Mapping[str, InputSource] | None,
        problems: Problems,
    ) -> None:
        """Plans a first trial, and one for each value of a resource, and reports their problems."""
        _check_shared(self._estimator, problems)
        _check_metrics(self._estimator, objectives, problems)
        hyperparameter_names = {*(self._estimator.hyperparameters or {})}
        if "image" in space.ranges and "image" not in hyperparameter_names:
            problems.add(
                "search['image']", "is not a hyperparameter of the estimator", "did you mean 'image_uri'?"
            )
        for params in self.samples(space):
            try:
                self.plan(params, 0, None, inputs)
            except InvalidInputError as error:
                problems.entries += [problem for problem in error.problems if problem not in problems.entries]

    def samples(self, space: SearchSpace) -> list[dict[str, Any]]:
        """Returns hyperparameters to plan with: the first value of each range, and each value of a resource."""
        hyperparameter_names = {*(self._estimator.hyperparameters or {})}
        first: dict[str, Any] = {
            name: value_range.values[0] if isinstance(value_range, Choice) else value_range.low
            for name, value_range in space.ranges.items()
        }
        samples = [first]
        for name, value_range in space.ranges.items():
            if self._is_resource(name, hyperparameter_names):
                values = value_range.values[1:] if isinstance(value_range, Choice) else [value_range.high]
                samples += [{**first, name: value} for value in values]
        return samples


def study_labels(study_id: str, objective: Objective, trials: int) -> dict[str, str]:
    """Returns the labels of the jobs of a study; `objective` is the first one."""
    at = "" if objective.at == "last" else f" at {objective.at}"
    return {
        STUDY_LABEL: study_id,
        OBJECTIVE_LABEL: f"{objective.direction} {objective.metric}{at}",
        TRIALS_LABEL: str(trials),
    }


def _check_shared(estimator: EstimatorBase, problems: Problems) -> None:
    """Reports parameters that cannot be equal for all trials."""
    if getattr(estimator, "checkpoints_path", None) is not None:
        hint = "leave it out: each trial has its own checkpoints"
        problems.add("checkpoints_path", "would be written by all trials", hint)
    if estimator.idempotency_key is not None:
        problems.add("idempotency_key", "would be shared by all trials", "leave it out: each trial has its own")


def _check_metrics(estimator: EstimatorBase, objectives: list[Objective], problems: Problems) -> None:
    """Reports an objective whose name is similar to a metric that the estimator defines."""
    definitions = getattr(estimator, "metric_definitions", None) or ()
    names = [
        item.get("name") if isinstance(item, Mapping) else getattr(item, "name", None) for item in definitions
    ]
    metric_names = [name for name in names if isinstance(name, str)]
    for objective in objectives:
        if (
            metric_names
            and objective.metric not in metric_names
            and (near := nearest(objective.metric, metric_names))
        ):
            problems.add(
                "objective", f"{objective.metric!r} is not in metric_definitions", f"did you mean {near[0]!r}?"
            )


def no_estimator(value: object) -> Problem:
    """Returns the problem of a value that is neither an estimator nor a function."""
    expected = "an Estimator, an AlgorithmEstimator, Estimator.from_function(…) or a function f(config)"
    return wrong_type("estimator", value, expected)


def is_suggestion(name: object) -> bool:
    """Returns True for the name of a method that objectives of Optuna call, such as `suggest_float`."""
    return isinstance(name, str) and name.startswith("suggest_")


def optuna_objective(name: str) -> Problem:
    """Returns the problem of a function that is written for Optuna, since it calls `name`."""
    return Problem(
        "estimator",
        f"is an objective of Optuna: it calls {name}",
        "a function gets a dict of values, such as config['lr'], whose ranges are the search of the Tuner",
    )
