"""Attributes of a job by the names that alipai gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.status import KNOWN_STATUSES, JobStatus

if TYPE_CHECKING:
    from pai_sdk.schemas.record import JobRecord

__all__ = ["AlipaiNames", "TrainingJobStatus"]


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
        return [status for name in KNOWN_STATUSES if (status := JobStatus(name)).is_terminal]

    @classmethod
    def failed_status(cls) -> list[JobStatus]:
        """The statuses of jobs that ended by an error."""
        return [status for name in KNOWN_STATUSES if (status := JobStatus(name)).is_failure]


class AlipaiNames:
    """Parts of a job's last snapshot by the names of alipai's `TrainingJob`."""

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
        """The same page."""
        return self.record.training_job_url

    @property
    def workspace_id(self) -> str | None:
        """The workspace that the job belongs to."""
        return self.record.workspace_id

    @property
    def experiment_config(self) -> dict[str, Any] | None:
        """The experiment that the job belongs to: `{"ExperimentId": …, "ExperimentName": …}`."""
        return self.record.experiment_config

    @property
    def hyperparameters(self) -> dict[str, str]:
        """The hyperparameters as text, by name."""
        return {each.name: each.value or "" for each in self.record.hyperparameters if each.name}

    @property
    def reason_code(self) -> str | None:
        """The service's code of the reason for the status."""
        return self.record.reason_code

    @property
    def reason_message(self) -> str | None:
        """The service's text of the reason for the status."""
        return self.record.reason_message

    def output_path(self, channel_name: str = "model") -> str:
        """The URI of an output channel.

        Raises:
            InvalidInputError: the job has no such output channel.
        """
        if channel_name not in self.outputs:
            known = ", ".join(self.outputs) or "none"
            what = f"job {self.id} has no output {channel_name!r}"
            raise InvalidInputError([Problem("channel_name", what, f"it has: {known}")])
        return self.outputs[channel_name]

    def is_completed(self) -> bool:
        """True if the job has ended, with success or without."""
        return self.status.is_terminal

    def is_succeeded(self) -> bool:
        """True if the job has ended with success."""
        return self.status.is_success
