"""A search for hyperparameters as a step: its function runs the tuner, and its result is the best trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.submit.submitter import EstimatorBase
from pai_sdk._client.tune.trials import Trial
from pai_sdk._client.tune.tuner import Tuner
from pai_sdk.errors import InvalidInputError, Problem


class SearchCall:
    """Runs a search. Its arguments are the inputs of all trials, by channel."""

    def __init__(self, tuner: Tuner) -> None:
        self.tuner = tuner

    def within(self, run_uri: str, step: str) -> SearchCall:
        """Returns the search with its study in the folder of the run, unless it has an explicit study."""
        if self.tuner.has_given_study:
            return self
        return SearchCall(self.tuner.with_study(f"{run_uri.rstrip('/')}/studies/{quote(step, safe='')}/"))

    def plan(self, inputs: Mapping[str, Any]) -> Plan | None:
        """Returns the plan of a first trial's job; None if the trials are calls."""
        if isinstance(self.tuner.estimator, EstimatorBase):
            return self.tuner.plan(dict(inputs) or None)
        hint = "give values to the function by a closure or functools.partial"
        problems = [
            Problem(f"inputs[{name!r}]", "is for jobs; the trials call a function", hint) for name in inputs
        ]
        if problems:
            raise InvalidInputError(problems)
        return None

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Runs the missing trials, and returns the best one."""
        trials = self.tuner.run(inputs or None, show=False)
        if (best := trials.best) is None:  # trials are complete, or the search would have failed
            message = f"no trial of {self.tuner.study} is complete and satisfies all constraints"
            raise InvalidInputError([Problem("the search", message)])
        return {
            "trial": best.number,
            "params": best.params,
            "value": best.value,
            "values": best.values,
            "job": best.job_id,
            "model": _model_of(best),
        }


def _model_of(trial: Trial) -> str | None:
    try:
        return trial.model
    except InvalidInputError:  # its job has no such output, or it was a function without a folder
        return None
