"""Estimator: a job that trains a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pai_sdk.base.keywords import init_checks_keywords
from pai_sdk.base.short_traceback import short_tracebacks
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.filesystems import CpfsFileSystemInput, FileSystemInput, FileSystemInputBase
from pai_sdk.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk.submit.estimator_base import CHECKPOINTS, MODEL, TENSORBOARD, EstimatorBase
from pai_sdk.submit.submitter import Description

if TYPE_CHECKING:
    from pai_sdk.schemas.spec import MetricDefinition
    from pai_sdk.submit.function_estimator import FunctionEstimator

__all__ = ["AlgorithmEstimator", "CpfsFileSystemInput", "Estimator", "FileSystemInput", "FileSystemInputBase"]


@short_tracebacks
@init_checks_keywords
@dataclass(repr=False, eq=False)
class Estimator(EstimatorBase):
    """Trains a model with your own code.

    Every job has the outputs `model`, `checkpoints` and `tensorboard`; `fit(outputs=…)` may add others.

    All parameters of `JobParameters` are taken too, by name: `instance_type`, `instance_count`, `environments`,
    `requirements`, `max_run_time`, `output_path`, `labels`, `session` and more. All of them are shown by
    `help(pai_sdk.submit.parameters.JobParameters)`.

    Attributes:
        image_uri: the image the command runs in.
        command: what runs, in the code folder; text goes through `sh -c`, a list is taken as it is.
        source_dir: folder with the code, or an `oss://` folder; it becomes the working directory.
        git_config: take the code from a repository: `repo`, and if needed `branch`, `commit`, `username`,
            `password`, `token`. `source_dir` is then a folder inside it.
        job_type: `PyTorchJob`, `TFJob`, `XGBoostJob`, …: how the instances of a job find each other.
        hyperparameters: values by name; the code finds them as `$PAI_USER_ARGS`, `$PAI_HPS_<NAME>` and in
            `/ml/input/config/hyperparameters.json`.
        metric_definitions: metrics to be read from the log, for `job.metrics()`. The first group of each regex is
            the value: `[{"name": "loss", "regex": r"loss=([0-9.]+)"}]`.
        checkpoints_path: URI of the checkpoints; a job given the one of an earlier job can go on from there.
        resume: the checkpoint to resume from, which `get_checkpoint()` returns in the job. True: the newest
            complete one in `checkpoints_path`; without one, the job starts from scratch. The id of an earlier job,
            or the URI or path of checkpoints: the newest complete one there, copied to the new job's checkpoints
            before it starts. If `checkpoints_path` has one that is not older, the job resumes from that.
        allow_secrets: take files along that look like keys (`.env`, `*.pem`).

    Example:
        >>> estimator = Estimator(
        ...     image_uri="python:3.11",
        ...     command="python train.py $PAI_USER_ARGS",
        ...     hyperparameters={"lr": 0.1},
        ...     instance_type="ecs.c6.large",
        ... )
        >>> estimator.set_hyperparameters(epochs=3)
        >>> estimator.hyperparameters
        {'lr': 0.1, 'epochs': 3}
    """

    image_uri: str
    command: str | Sequence[str]
    source_dir: str | os.PathLike[str] | None = None
    git_config: Mapping[str, str] | None = None
    job_type: str = "PyTorchJob"
    hyperparameters: Mapping[str, Any] | None = None
    metric_definitions: Sequence[MetricDefinition | Mapping[str, Any]] | None = field(default=None, kw_only=True)
    checkpoints_path: str | None = field(default=None, kw_only=True)
    allow_secrets: bool = field(default=False, kw_only=True)
    resume: bool | str | os.PathLike[str] | None = field(default=None, kw_only=True)

    @classmethod
    def from_function(cls, function: Callable[..., Any], **parameters: Any) -> FunctionEstimator:
        """An estimator whose jobs call a function with the hyperparameters, as `FunctionRun` does here.

        Args:
            function: `f(config)`, `f(config, checkpoint_dir=None)` or `f(config, reporter)`; also a generator.
            parameters: those of an `Estimator` but `command` and `git_config`. The image needs the Python that
                runs here. Modules in `source_dir`, and installed ones, are imported in the job; other code is
                pickled.

        Raises:
            InvalidInputError: it is no such function.

        Example:
            >>> def train(config):
            ...     return {"loss": 1 - config["lr"]}
            >>> estimator = Estimator.from_function(
            ...     train, image_uri="python:3.11", hyperparameters={"lr": 0.1}, instance_type="ecs.c6.large")
            >>> job = estimator.fit()  # doctest: +SKIP
            >>> job.result()  # doctest: +SKIP
            {'loss': 0.9}
        """
        # For weight: most estimators run no function.
        from pai_sdk.run.calling import kind_of
        from pai_sdk.submit.function_estimator import FunctionEstimator

        try:
            kind_of(function)
        except ValueError as error:
            raise InvalidInputError([Problem("function", str(error))]) from None
        return FunctionEstimator(function=function, **parameters)

    def describe(self) -> Description:
        """The description of the estimator's jobs."""
        from pai_sdk.schemas.spec import Channel

        checkpoints = self.checkpoints_path
        return Description(
            self.image_uri,
            self.command,
            self.hyperparameters,
            metric_definitions=self.metric_definitions or (),
            output_channels=[
                Channel(name=MODEL, required=True),
                Channel(name=CHECKPOINTS, required=False),
                # TensorBoard files grow while the job runs: the service mounts this channel so that they can.
                Channel(name=TENSORBOARD, required=False, properties={"ossAppendable": "true"}),
            ],
            takes_more_outputs=True,
            placed_outputs={} if checkpoints is None else {CHECKPOINTS: ("checkpoints_path", checkpoints)},
            source_dir=self.source_dir,
            git_config=self.git_config,
            allow_secrets=self.allow_secrets,
            job_type=self.job_type,
            resume=self.resume,
        )
