"""The program of a job: code, channels, algorithm, hyperparameters. Plain data, named as on the wire.

Source of every field: CreateTrainingJob of paistudio 2022-01-12. Python names are snake_case, wire names
PascalCase; where the service deviates from that rule the alias stands at the field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pai_sdk._wire.pai.secret_values import masked, masked_arguments
from pai_sdk._wire.pai.wire import Sent

_LOCAL = "file"

# ---- fields that this module writes strictly and `definitions` reads tolerantly ------------------------------


class _Fields(BaseModel):
    """Fields without a behaviour; that comes from `Sent` or `Received`."""

    model_config = ConfigDict(defer_build=True)


class RangeFields(_Fields):
    """Of the values that a hyperparameter may take."""

    enum: list[str] | None = None
    minimum: str | None = None
    maximum: str | None = None
    exclusive_minimum: bool | None = None
    exclusive_maximum: bool | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


class ParameterFields(_Fields):
    """Of a hyperparameter, but for its range."""

    name: str
    type: str | None = None
    default_value: str | None = None
    description: str | None = None
    display_name: str | None = None
    required: bool | None = None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked(self.name, value) if name == "default_value" and value else value


class ChannelFields(_Fields):
    """Of an input or output channel."""

    name: str
    description: str | None = None
    required: bool | None = None
    supported_channel_types: list[str] | None = None
    properties: dict[str, Any] | None = None


# ---- code -------------------------------------------------------------------------------------------------


class OssLocation(Sent):
    """The location of code in OSS. `key` is a folder and ends with `/`, or the key of one file."""

    bucket: str
    key: str
    endpoint: str | None = None


class CodeDir(Sent):
    """The code folder of a job.

    Example:
        >>> CodeDir.oss("models", "pai/code/3f2a/", endpoint="oss-cn-hangzhou.aliyuncs.com").location_type
        'oss'
    """

    location_value: OssLocation | dict[str, Any]
    location_type: str = "oss"

    @classmethod
    def oss(cls, bucket: str, key: str, *, endpoint: str | None = None) -> CodeDir:
        """A folder (`key` ends with `/`) or a file in OSS."""
        return cls(location_value=OssLocation(bucket=bucket, key=key, endpoint=endpoint))

    @classmethod
    def local(cls, path: str) -> CodeDir:
        """A folder of this machine, for jobs that run on it."""
        return cls(location_type=_LOCAL, location_value={"Path": path})

    @property
    def oss_uri(self) -> str | None:
        """The URI of code in OSS; None for code elsewhere."""
        location = self.location_value
        return f"oss://{location.bucket}/{location.key}" if isinstance(location, OssLocation) else None

    @property
    def local_path(self) -> str:
        """The folder of code on this machine.

        Raises:
            KeyError: the code is elsewhere.
        """
        return str(dict(self.location_value)["Path"])


# ---- channels ---------------------------------------------------------------------------------------------


class Channel(Sent, ChannelFields):
    """A channel as the algorithm defines it."""


class InputChannel(Sent):
    """The source of an input channel of one job: a URI or a dataset, never both."""

    name: str
    input_uri: str | None = None
    dataset_id: str | None = None
    options: str | None = None
    role_arn: str | None = None
    version_name: str | None = None

    @model_validator(mode="after")
    def _check_source(self) -> InputChannel:
        if (self.input_uri is None) == (self.dataset_id is None):
            raise ValueError(f"input channel {self.name!r} needs either an InputUri or a DatasetId")
        return self


class OutputChannel(Sent):
    """The target of an output channel of one job: a URI or a dataset, never both."""

    name: str
    output_uri: str | None = None
    dataset_id: str | None = None
    role_arn: str | None = None
    version_name: str | None = None

    @model_validator(mode="after")
    def _check_target(self) -> OutputChannel:
        if (self.output_uri is None) == (self.dataset_id is None):
            raise ValueError(f"output channel {self.name!r} needs either an OutputUri or a DatasetId")
        return self


class UriInput(InputChannel):
    """An input channel filled from a URI."""


class UriOutput(OutputChannel):
    """An output channel that goes to a URI."""


class DatasetConfig(Sent):
    """A dataset registered in the workspace, as an input or output of a job.

    Example:
        >>> DatasetConfig(dataset_id="d-123", version_name="v2").version_name
        'v2'
    """

    dataset_id: str
    version_name: str | None = None
    options: str | None = None
    role_arn: str | None = None


# ---- the algorithm ----------------------------------------------------------------------------------------


class HyperParameterRange(Sent, RangeFields):
    """The values that a hyperparameter may take."""


class HyperParameterDefinition(Sent, ParameterFields):
    """A hyperparameter as the algorithm defines it."""

    range: HyperParameterRange | None = None


class MetricDefinition(Sent):
    """A metric read from the log: the first group of `regex` is its value.

    Example:
        >>> MetricDefinition(name="loss", regex="loss=([0-9.]+)").name
        'loss'
    """

    name: str
    regex: str
    description: str | None = None


class ProgressDefinition(Sent):
    """A progress figure read from the log: the first group of `regex` is its value."""

    regex: str
    description: str | None = None


class ProgressDefinitions(Sent):
    """A pattern that finds a job's progress in its log."""

    overall_progress: ProgressDefinition | None = None
    remaining_time: ProgressDefinition | None = None


class ConditionExpression(Sent):
    """A condition on the hardware an algorithm needs."""

    key: str
    operator: str
    values: list[str]


class ComputePolicy(Sent):
    """The compute policy of an algorithm."""

    value: str | None = None
    version: str | None = None


class SpecComputeResource(Sent):
    """The hardware that an algorithm supports."""

    policy: ComputePolicy | None = None


class Customization(Sent):
    """The parts of an algorithm that a job may replace."""

    code_dir: bool | None = None


class AlgorithmSpec(Sent):
    """The program of a job: image, command, code, and the definitions of its channels and parameters."""

    command: list[str]
    image: str
    job_type: str = "PyTorchJob"
    code_dir: CodeDir | None = None
    input_channels: list[Channel] = Field(default_factory=list)
    output_channels: list[Channel] = Field(default_factory=list)
    hyperparameter_definitions: list[HyperParameterDefinition] = Field(
        default_factory=list, alias="HyperParameters"
    )
    metric_definitions: list[MetricDefinition] = Field(default_factory=list)
    progress_definitions: ProgressDefinitions | None = None
    resource_requirements: list[ConditionExpression] | None = None
    supported_instance_types: list[str] | None = None
    supports_distributed_training: bool | None = True
    compute_resource: SpecComputeResource | None = None
    customization: Customization | None = None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked_arguments(self.command) if name == "command" else value


# ---- the job's own values ---------------------------------------------------------------------------------


class HyperParameter(Sent):
    """The value of a hyperparameter, as text."""

    name: str
    value: str

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield "name", self.name
        yield "value", masked(self.name, self.value)


class Label(Sent):
    """A label of a job: free text, searchable."""

    key: str
    value: str
