"""Attributes of a job by the names that alipai gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pai_sdk._wire.pai.status import STATUSES, JobStatus
from pai_sdk.alipai.helpers import snake_to_camel
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pai_sdk._wire.pai.record import ChannelUri, JobRecord

_T = TypeVar("_T")


class RecordPart(dict[str, Any]):
    """A part of a job as the service sends it, with its fields as attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # asked by Python itself
        value = self.get(snake_to_camel(name))
        return RecordPart(value) if isinstance(value, dict) else value

    def to_dict(self) -> dict[str, Any]:
        """A plain dict of it."""
        return dict(self)

    model_dump = to_dict


class TrainingJobStatus:
    """The statuses as constants, as code written for alipai compares them; `JobStatus` knows what they mean."""

    CreateFailed = JobStatus.CREATE_FAILED
    InitializeFailed = JobStatus.INITIALIZE_FAILED
    Succeed = JobStatus.SUCCEED
    Failed = JobStatus.FAILED
    Terminated = JobStatus.TERMINATED
    Creating = JobStatus.CREATING
    Created = JobStatus.CREATED
    Initializing = JobStatus.INITIALIZING
    Submitted = JobStatus.SUBMITTED
    Running = JobStatus.RUNNING

    @classmethod
    def completed_status(cls) -> list[JobStatus]:
        """The statuses of jobs that have ended, `CreateFailed` among them, on which alipai waits for ever."""
        return [status for name in STATUSES if (status := JobStatus(name)).is_terminal]

    @classmethod
    def failed_status(cls) -> list[JobStatus]:
        """The statuses of jobs that ended by an error."""
        return [status for name in STATUSES if (status := JobStatus(name)).is_failure]


class JobAliases:
    """Members of alipai's `TrainingJob`, read from the last snapshot of ours."""

    id: str

    if TYPE_CHECKING:

        @property
        def record(self) -> JobRecord:
            """The last snapshot."""
            ...

        @property
        def status(self) -> JobStatus:
            """The current status."""
            ...

        @property
        def outputs(self) -> dict[str, str]:
            """Output channel to URI."""
            ...

    @property
    def training_job_id(self) -> str:
        """The job's id."""
        return self.id

    @property
    def training_job_name(self) -> str | None:
        """The job's name."""
        return self.record.training_job_name

    @property
    def training_job_url(self) -> str | None:
        """The job's page in the console, where the service has one."""
        return self.record.training_job_url

    @property
    def console_uri(self) -> str | None:
        """The job's page in the console, where the service has one."""
        return self.record.training_job_url

    @property
    def workspace_id(self) -> str | None:
        """The workspace that the job belongs to."""
        return self.record.workspace_id

    @property
    def training_job_description(self) -> str | None:
        """The description of the job."""
        return self.record.training_job_description

    @property
    def experiment_config(self) -> RecordPart | None:
        """The experiment that the job belongs to: `{"ExperimentId": …, "ExperimentName": …}`."""
        return _part(self.record.experiment_config)

    @property
    def algorithm_id(self) -> str | None:
        """The id of the registered algorithm; None for a job with a command of its own."""
        return self.record.algorithm_id

    @property
    def algorithm_name(self) -> str | None:
        """The name of the registered algorithm."""
        return self.record.algorithm_name

    @property
    def algorithm_version(self) -> str | None:
        """The version of the registered algorithm."""
        return self.record.algorithm_version

    @property
    def algorithm_provider(self) -> str | None:
        """The provider of the registered algorithm."""
        return self.record.algorithm_provider

    @property
    def algorithm_spec(self) -> RecordPart | None:
        """The program of the job: `job.algorithm_spec.image`, `.command` and more."""
        return _part(self.record.algorithm_spec)

    @property
    def compute_resource(self) -> RecordPart | None:
        """What the job runs on: `job.compute_resource.ecs_spec`, `.ecs_count` and more."""
        return _part(self.record.compute_resource)

    @property
    def scheduler(self) -> RecordPart | None:
        """The limits of the job: `job.scheduler.max_running_time_in_seconds`."""
        return _part(self.record.scheduler)

    @property
    def inputs(self) -> Sequence[ChannelUri]:
        """The input channels, each with `name` and `input_uri`."""
        return self.record.input_channels

    @property
    def hyperparameters(self) -> dict[str, str]:
        """The hyperparameters as text, by name."""
        return {each.name: each.value or "" for each in self.record.hyperparameters if each.name}

    def to_dict(self) -> dict[str, Any]:
        """The job as the service sent it last, with the names of the wire: `{"TrainingJobId": …, "Status": …}`."""
        return self.record.to_dict()

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """The job as `to_dict()` has it; options of pydantic are ignored, since alipai overrides them too."""
        return self.to_dict()

    def output_path(self, channel_name: str = "model") -> str:
        """The URI of an output channel.

        Raises:
            InvalidInputError: the job has no such output channel.
        """
        if channel_name not in self.outputs:
            available = ", ".join(self.outputs) or "none"
            message = f"job {self.id} has no output {channel_name!r}"
            raise InvalidInputError([Problem("channel_name", message, f"it has: {available}")])
        return self.outputs[channel_name]

    def is_completed(self) -> bool:
        """True if the job has ended, with success or without."""
        return self.status.is_terminal

    def is_succeeded(self) -> bool:
        """True if the job has ended with success."""
        return self.status.is_success


def _part(value: dict[str, Any] | None) -> RecordPart | None:
    return None if value is None else RecordPart(value)
