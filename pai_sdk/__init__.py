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
    from pai_sdk.job.compare_jobs import compare
    from pai_sdk.job.gather import as_completed, gather
    from pai_sdk.job.gather_async import gather_async
    from pai_sdk.job.notifications import DingTalk, Webhook
    from pai_sdk.job.training_job import TrainingJob
    from pai_sdk.run.checkpoints import Checkpoint, CheckpointConfig
    from pai_sdk.run.function import FunctionRun
    from pai_sdk.run.manager import RunManager
    from pai_sdk.run.preemption import get_preemption_info
    from pai_sdk.run.report import (
        ReportSession,
        StopTraining,
        checkpoint_dir,
        get_all_reported_checkpoints,
        get_checkpoint,
        get_context,
        is_session_enabled,
        report,
        set_checkpoint_config,
    )
    from pai_sdk.run.store import RunStore
    from pai_sdk.schemas.secret_values import Secret
    from pai_sdk.schemas.status import JobStatus
    from pai_sdk.session import Session, get_default_session, setup_default_session
    from pai_sdk.submit.algorithm_estimator import AlgorithmEstimator
    from pai_sdk.submit.estimator import Estimator
    from pai_sdk.submit.function_estimator import remote
    from pai_sdk.submit.processor import Processor
    from pai_sdk.submit.run_all import run_all

__all__ = [
    "AlgorithmEstimator",
    "Checkpoint",
    "CheckpointConfig",
    "DingTalk",
    "Estimator",
    "Experiment",
    "FunctionRun",
    "JobStatus",
    "LocalOptions",
    "Processor",
    "ReportSession",
    "RunManager",
    "RunStore",
    "Secret",
    "Session",
    "StopTraining",
    "TrainingJob",
    "Webhook",
    "__version__",
    "as_completed",
    "checkpoint_dir",
    "compare",
    "gather",
    "gather_async",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_default_session",
    "get_preemption_info",
    "is_session_enabled",
    "remote",
    "report",
    "run_all",
    "set_checkpoint_config",
    "setup_default_session",
]

_HOMES = {
    "AlgorithmEstimator": "pai_sdk.submit.algorithm_estimator",
    "Checkpoint": "pai_sdk.run.checkpoints",
    "CheckpointConfig": "pai_sdk.run.checkpoints",
    "DingTalk": "pai_sdk.job.notifications",
    "Estimator": "pai_sdk.submit.estimator",
    "Experiment": "pai_sdk.experiment",
    "FunctionRun": "pai_sdk.run.function",
    "JobStatus": "pai_sdk.schemas.status",
    "LocalOptions": "pai_sdk.execution.docker.options",
    "Processor": "pai_sdk.submit.processor",
    "ReportSession": "pai_sdk.run.report",
    "RunManager": "pai_sdk.run.manager",
    "RunStore": "pai_sdk.run.store",
    "Secret": "pai_sdk.schemas.secret_values",
    "Session": "pai_sdk.session",
    "StopTraining": "pai_sdk.run.report",
    "TrainingJob": "pai_sdk.job.training_job",
    "as_completed": "pai_sdk.job.gather",
    "Webhook": "pai_sdk.job.notifications",
    "checkpoint_dir": "pai_sdk.run.report",
    "compare": "pai_sdk.job.compare_jobs",
    "gather": "pai_sdk.job.gather",
    "gather_async": "pai_sdk.job.gather_async",
    "get_all_reported_checkpoints": "pai_sdk.run.report",
    "get_checkpoint": "pai_sdk.run.report",
    "get_context": "pai_sdk.run.report",
    "get_default_session": "pai_sdk.session",
    "get_preemption_info": "pai_sdk.run.preemption",
    "is_session_enabled": "pai_sdk.run.report",
    "remote": "pai_sdk.submit.function_estimator",
    "report": "pai_sdk.run.report",
    "run_all": "pai_sdk.submit.run_all",
    "set_checkpoint_config": "pai_sdk.run.report",
    "setup_default_session": "pai_sdk.session",
}


# `import pai_sdk` is enough for `pai_sdk.session.get_default_session()`, as it is with alipai.
_SUBMODULES = frozenset(
    (
        *("callbacks", "common", "config", "credentials", "errors", "estimator", "exception", "experiment"),
        *("huggingface", "image", "job", "model", "modelscope", "predictor", "processor", "serializers"),
        *("session", "tensorboard"),
    )
)


def _given_or_default(session: Any, *, local: bool) -> Any:
    from pai_sdk.session import given_or_default

    return given_or_default(session, local=local)


def _reference(session: Any) -> Any:
    from pai_sdk.session.default import reference

    return reference(session)


# Packages below the session ask for the default one; this is the one place above all of them that always runs.
register(_given_or_default, _reference)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext pai_sdk` in a notebook: the cell magic `%%pai_job`."""
    from pai_sdk.cli.cell_magic import load

    load(shell)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
