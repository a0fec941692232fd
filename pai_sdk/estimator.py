"""Estimator: a job that trains a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pai_sdk.algorithm_estimator import AlgorithmEstimator
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.job.filesystems import CpfsFileSystemInput, FileSystemInput, FileSystemInputBase
from pai_sdk.job.keywords import checks_keywords, init_checks_keywords
from pai_sdk.job.submitter import Description, JobSubmitter

if TYPE_CHECKING:
    from pai_sdk.job.channels import InputSource, OutputTarget
    from pai_sdk.job.spec import MetricDefinition
    from pai_sdk.job.training_job import TrainingJob

__all__ = ["AlgorithmEstimator", "CpfsFileSystemInput", "Estimator", "FileSystemInput", "FileSystemInputBase"]

MODEL, CHECKPOINTS, TENSORBOARD = "model", "checkpoints", "tensorboard"


@init_checks_keywords
@dataclass(repr=False, eq=False)
class Estimator(JobSubmitter):
    """Trains a model with your own code.

    Every job has the outputs `model`, `checkpoints` and `tensorboard`.

    All parameters of `JobParameters` are taken too, by name: `instance_type`, `instance_count`, `environments`,
    `requirements`, `max_run_time`, `output_path`, `labels`, `session` and more. All of them are shown by
    `help(pai_sdk.job.parameters.JobParameters)`.

    Attributes:
        image_uri: the image the command runs in.
        command: what runs, in the code folder; text goes through `sh -c`, a list is taken as it is.
        source_dir: folder with the code, or an `oss://` folder; it becomes the working directory.
        git_config: take the code from a repository: `repo`, and if needed `branch`, `commit`, `username`,
            `password`, `token`. `source_dir` is then a folder inside it.
        job_type: `PyTorchJob`, `TFJob`, `XGBoostJob`, …: how the instances of a job find each other.
        hyperparameters: values by name; the code finds them as `$PAI_USER_ARGS`, `$PAI_HPS_<NAME>` and in
            `/ml/input/config/hyperparameters.json`.
        metric_definitions: metrics to be read from the log.
        checkpoints_path: URI of the checkpoints; a job given the one of an earlier job can go on from there.
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

    def set_hyperparameters(self, **hyperparameters: Any) -> None:
        """Add or replace hyperparameters of the jobs to come."""
        self.hyperparameters = {**(self.hyperparameters or {}), **hyperparameters}

    @checks_keywords
    def fit(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        wait: bool = True,
        show_logs: bool = True,
        job_name: str | None = None,
    ) -> TrainingJob:
        """Submit a training job.

        Args:
            inputs: input channel to what fills it: a URI, a local file or folder, a dataset.
            outputs: output channel to where it goes, for those that shall not go to the default place.
            wait: return when the job has ended, not when it is submitted.
            show_logs: show status and log while waiting.
            job_name: the job's name; otherwise `base_job_name`, the time and a few digits.

        Raises:
            InvalidInputError: the description is wrong; nothing was sent.
            SettingsError: a setting or a key that the job needs is missing.
            JobFailed: while waiting, the job failed.
            JobStopped: while waiting, somebody stopped it.
        """
        return self.submit(self.plan(inputs, outputs, job_name=job_name), wait=wait, show_logs=show_logs)

    def model_data(self) -> str:
        """URI of the model of the job submitted last."""
        return self._output(MODEL)

    def checkpoints_data(self) -> str:
        """URI of the checkpoints of the job submitted last."""
        return self._output(CHECKPOINTS)

    def tensorboard_data(self) -> str:
        """URI of the TensorBoard logs of the job submitted last."""
        return self._output(TENSORBOARD)

    def _output(self, channel: str) -> str:
        outputs = self.get_outputs_data()
        if channel not in outputs:
            what = f"job {self.jobs[-1].id} has no output {channel!r}"
            raise InvalidInputError([Problem("job", what, f"it has: {', '.join(outputs) or 'none'}")])
        return outputs[channel]

    def describe(self) -> Description:
        """What an estimator has to say of its jobs."""
        from pai_sdk.job.spec import Channel

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
            placed_outputs={} if checkpoints is None else {CHECKPOINTS: ("checkpoints_path", checkpoints)},
            source_dir=self.source_dir,
            git_config=self.git_config,
            allow_secrets=self.allow_secrets,
            job_type=self.job_type,
        )
