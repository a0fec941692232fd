"""What all estimators share: hyperparameters, `fit`, and the model that it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pai_sdk.base.keywords import checks_keywords
from pai_sdk.base.left_out import SERVING
from pai_sdk.base.short_traceback import short_tracebacks
from pai_sdk.errors import InvalidInputError, NotOfferedError, Problem
from pai_sdk.submit.submitter import JobSubmitter

if TYPE_CHECKING:
    from pai_sdk.job.training_job import TrainingJob
    from pai_sdk.submit.channels import InputSource, OutputTarget
    from pai_sdk.tensorboard import TensorBoard

MODEL, CHECKPOINTS, TENSORBOARD = "model", "checkpoints", "tensorboard"


@short_tracebacks
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

    def checkpoints_data(self) -> str:
        """URI of the checkpoints of the job submitted last; errors as for `model_data`."""
        return self._output(CHECKPOINTS)

    def tensorboard_data(self) -> str:
        """URI of the TensorBoard logs of the job submitted last; errors as for `model_data`."""
        return self._output(TENSORBOARD)

    def tensorboard(self, wait: bool = True) -> TensorBoard:
        """Start TensorBoard on what the job submitted last reports; it goes on to show what the job reports.

        Args:
            wait: it listens when this returns, also with False.

        Raises:
            InvalidInputError: nothing has been submitted yet, or the job has no output `tensorboard`.
            MissingExtraError: TensorBoard is not installed.
            ServiceStartError: it did not start.
        """
        from pai_sdk.tensorboard import TensorBoard

        uri = self.tensorboard_data()
        return TensorBoard.create(uri, wait, display_name=self.jobs[-1].name, session=self._session())

    def deploy(self, *_: Any, **__: Any) -> NoReturn:
        """Left out: pai_sdk does not serve models.

        Raises:
            NotOfferedError: always; it names the replacement.
        """
        raise NotOfferedError("Estimator.deploy", SERVING)

    def create_model(self, *_: Any, **__: Any) -> NoReturn:
        """Left out: pai_sdk does not serve models.

        Raises:
            NotOfferedError: always; it names the replacement.
        """
        raise NotOfferedError("Estimator.create_model", SERVING)

    def _output(self, channel: str) -> str:
        outputs = self.get_outputs_data()
        if channel not in outputs:
            what = f"job {self.jobs[-1].id} has no output {channel!r}"
            raise InvalidInputError([Problem("job", what, f"it has: {', '.join(outputs) or 'none'}")])
        return outputs[channel]
