"""What all estimators share: hyperparameters, `fit`, and the model that it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pai_sdk.base.keywords import checks_keywords
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.submit.submitter import JobSubmitter

if TYPE_CHECKING:
    from pai_sdk.job.training_job import TrainingJob
    from pai_sdk.submit.channels import InputSource, OutputTarget

MODEL = "model"


class EstimatorBase(JobSubmitter):
    """Submits jobs that train a model; use `Estimator` or `AlgorithmEstimator`."""

    # A field of each estimator, where its own order of parameters has it.
    hyperparameters: Mapping[str, Any] | None

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
            outputs: output channel to where it goes, for those that shall not go to the default place: a URI or a
                dataset.
            wait: return when the job has ended, not when it is submitted.
            show_logs: show status and log while waiting.
            job_name: the job's name; otherwise `base_job_name`, the time and a few digits.

        Returns:
            The job; it has succeeded when it was waited for.

        Raises:
            PaiError: as `plan` and `submit`.
        """
        return self.submit(self.plan(inputs, outputs, job_name=job_name), wait=wait, show_logs=show_logs)

    def model_data(self) -> str:
        """URI of the model of the job submitted last.

        Raises:
            InvalidInputError: nothing has been submitted yet, or the job has no output `model`.
        """
        return self._output(MODEL)

    def _output(self, channel: str) -> str:
        outputs = self.get_outputs_data()
        if channel not in outputs:
            what = f"job {self.jobs[-1].id} has no output {channel!r}"
            raise InvalidInputError([Problem("job", what, f"it has: {', '.join(outputs) or 'none'}")])
        return outputs[channel]
