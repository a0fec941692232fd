"""Attributes of a job by the names that alipai gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pai_sdk._wire.pai.status import STATUSES, JobStatus
from pai_sdk.alipai.pai.common.utils import snake_to_camel
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._wire.pai.record import JobRecord

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


def _field(name: str, description: str) -> property:
    """Returns a property that reads a field of the last snapshot; a dict has its fields as attributes, too."""

    def read(job: JobAliases) -> Any:
        value = getattr(job.record, name)
        return RecordPart(value) if isinstance(value, dict) else value

    return property(read, doc=description)


class JobAliases:
    """Members of alipai's `TrainingJob`, read from the last snapshot of ours."""

    id: str
    record: JobRecord
    status: JobStatus
    outputs: dict[str, str]

    training_job_name = _field("training_job_name", "The job's name.")
    training_job_url = _field("training_job_url", "The job's page in the console, where the service has one.")
    console_uri = training_job_url
    workspace_id = _field("workspace_id", "The workspace that the job belongs to.")
    training_job_description = _field("training_job_description", "The description of the job.")
    experiment_config = _field(
        "experiment_config", 'The experiment that the job belongs to: `{"ExperimentId": …, "ExperimentName": …}`.'
    )
    algorithm_id = _field(
        "algorithm_id", "The id of the registered algorithm; None for a job with a command of its own."
    )
    algorithm_name = _field("algorithm_name", "The name of the registered algorithm.")
    algorithm_version = _field("algorithm_version", "The version of the registered algorithm.")
    algorithm_provider = _field("algorithm_provider", "The provider of the registered algorithm.")
    algorithm_spec = _field(
        "algorithm_spec", "The program of the job: `job.algorithm_spec.image`, `.command` and more."
    )
    compute_resource = _field(
        "compute_resource", "What the job runs on: `job.compute_resource.ecs_spec`, `.ecs_count` and more."
    )
    scheduler = _field("scheduler", "The limits of the job: `job.scheduler.max_running_time_in_seconds`.")
    inputs = _field("input_channels", "The input channels, each with `name` and `input_uri`.")

    @property
    def training_job_id(self) -> str:
        """The job's id."""
        return self.id

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
