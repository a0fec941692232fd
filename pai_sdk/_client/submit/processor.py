"""Processor: a job that runs a command on data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pai_sdk._client.submit.parameters import Description
from pai_sdk._client.submit.submitter import JobSubmitter
from pai_sdk._core.names.keywords import checks_keywords, init_checks_keywords
from pai_sdk._core.short_traceback import short_tracebacks

if TYPE_CHECKING:
    from pai_sdk._client.job.training_job import TrainingJob
    from pai_sdk._client.submit.channels import InputSource, OutputTarget
    from pai_sdk._wire.pai.spec import Channel


@short_tracebacks
@init_checks_keywords
@dataclass(repr=False, eq=False)
class Processor(JobSubmitter):
    """Runs a command on data: preparing, evaluating, converting.

    All parameters of `JobParameters` are taken too, by name: `instance_type`, `instance_count`, `environments`,
    `requirements`, `max_run_time`, `output_path`, `labels`, `session` and more. All of them are shown by
    `help(pai_sdk.jobs.JobParameters)`.

    Attributes:
        image_uri: image that the command runs in.
        command: command to run in the code folder; a string runs by `sh -c`, a list is not changed.
        source_dir: folder with the code, or an `oss://` folder; it becomes the working directory.
        job_type: `PyTorchJob`, `TFJob`, `XGBoostJob`, …: how the instances of a job find each other.
        parameters: maps names to values; the command reads them as `$PAI_USER_ARGS`, `$PAI_HPS_<NAME>` and in
            `/ml/input/config/hyperparameters.json`.
        allow_secrets: upload files that look like keys, too (`.env`, `*.pem`).

    Example:
        >>> processor = Processor(
        ...     image_uri="python:3.11",
        ...     command="python prepare.py $PAI_USER_ARGS",
        ...     parameters={"rows": 100},
        ...     instance_type="ecs.c6.large",
        ... )
        >>> processor.parameters
        {'rows': 100}
    """

    image_uri: str
    command: str | Sequence[str]
    source_dir: str | os.PathLike[str] | None = None
    job_type: str = "PyTorchJob"
    parameters: Mapping[str, Any] | None = None
    allow_secrets: bool = field(default=False, kw_only=True)
    _inputs_defined: list[Channel] = field(default_factory=list, init=False)
    _outputs_defined: list[Channel] = field(default_factory=list, init=False)

    def set_input_channels(self, channels: Sequence[Channel]) -> None:
        """Define the inputs. Other inputs are then refused, and so is a missing required one."""
        self._inputs_defined = _checked(channels, "input_channels")

    def set_output_channels(self, channels: Sequence[Channel]) -> None:
        """Define the outputs; each gets a URI, given or by default."""
        self._outputs_defined = _checked(channels, "output_channels")

    @checks_keywords
    def run(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        wait: bool = True,
        show_logs: bool = True,
    ) -> TrainingJob:
        """Submit a job.

        Args:
            inputs: maps each input channel to its data: a URI, a local file or folder, a dataset.
            outputs: maps each output channel to its destination: a URI or a dataset.
            wait: return when the job has ended, not when it is submitted.
            show_logs: show status and log while waiting.

        Returns:
            The job; it has succeeded when it was waited for.

        Raises:
            PaiError: as `plan` and `submit`.
        """
        return self.submit(self.plan(inputs, outputs), wait=wait, show_logs=show_logs)

    def describe(self) -> Description:
        """The description of the processor's jobs."""
        return Description(
            self.image_uri,
            self.command,
            self.parameters,
            hyperparameters_name="parameters",
            input_channels=self._inputs_defined,
            output_channels=self._outputs_defined,
            source_dir=self.source_dir,
            allow_secrets=self.allow_secrets,
            job_type=self.job_type,
        )


def _checked(channels: Sequence[Channel], parameter: str) -> list[Channel]:
    from pai_sdk._client.submit.channels import channel_definitions  # for weight: it needs pydantic

    return channel_definitions(channels, parameter)
