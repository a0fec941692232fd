"""pai_sdk: describe a training job once, run it on Alibaba Cloud PAI, in Docker, or on a service of your own.

from pai_sdk import Estimator

estimator = Estimator("python:3.11", "python train.py $PAI_USER_ARGS", source_dir="src",
                      hyperparameters={"lr": 0.1}, instance_type="ecs.c6.large")
estimator.fit({"train": "data/train.csv"}).download("model", "model/")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pai_sdk.base.default_session import register
from pai_sdk.base.version import __version__

if TYPE_CHECKING:
    from pai_sdk.execution.docker.options import LocalOptions
    from pai_sdk.experiment import Experiment
    from pai_sdk.job.training_job import TrainingJob
    from pai_sdk.schemas.status import JobStatus
    from pai_sdk.session import Session, get_default_session, setup_default_session
    from pai_sdk.submit.algorithm_estimator import AlgorithmEstimator
    from pai_sdk.submit.estimator import Estimator
    from pai_sdk.submit.processor import Processor

__all__ = [
    "AlgorithmEstimator",
    "Estimator",
    "Experiment",
    "JobStatus",
    "LocalOptions",
    "Processor",
    "Session",
    "TrainingJob",
    "__version__",
    "get_default_session",
    "setup_default_session",
]

_HOMES = {
    "AlgorithmEstimator": "pai_sdk.submit.algorithm_estimator",
    "Estimator": "pai_sdk.submit.estimator",
    "Experiment": "pai_sdk.experiment",
    "JobStatus": "pai_sdk.schemas.status",
    "LocalOptions": "pai_sdk.execution.docker.options",
    "Processor": "pai_sdk.submit.processor",
    "Session": "pai_sdk.session",
    "TrainingJob": "pai_sdk.job.training_job",
    "get_default_session": "pai_sdk.session",
    "setup_default_session": "pai_sdk.session",
}


def _given_or_default(session: Any, *, local: bool) -> Any:
    from pai_sdk.session import given_or_default

    return given_or_default(session, local=local)


# Packages below the session ask for the default one; this is the one place above all of them that always runs.
register(_given_or_default)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
