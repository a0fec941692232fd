"""JobSubmitter and EstimatorBase: plan jobs from parameters, submit them, wait for them.

Importing this module is cheap: `submit.planning` is loaded when the first plan is made.
"""

from __future__ import annotations

import posixpath
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from pai_sdk._client.backend.specs import backend_for_job, backend_for_type
from pai_sdk._client.submit.parameters import JobParameters
from pai_sdk._core.names.aliases import Aliased
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._core.names.lazy_names import load_modules
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk.errors import InvalidInputError, JobFailed, JobStopped, NotOfferedError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.backend.base import Plan
    from pai_sdk._client.job.training_job import TrainingJob
    from pai_sdk._client.session import Session
    from pai_sdk._client.submit.channels import InputSource, OutputTarget
    from pai_sdk._client.tensorboard import TensorBoard
    from pai_sdk._wire.pai.request import TrainingJobRequest
    from pai_sdk._wire.pai.spec import Channel

MODEL, CHECKPOINTS, TENSORBOARD = "model", "checkpoints", "tensorboard"


def training_outputs() -> list[Channel]:
    """Returns the outputs of jobs that train, where nothing else is defined."""
    from pai_sdk._wire.pai.spec import Channel

    return [
        Channel(name=MODEL, required=True),
        Channel(name=CHECKPOINTS, required=False),
        # TensorBoard files grow while the job runs: the service mounts this channel so that they can.
        Channel(name=TENSORBOARD, required=False, properties={"ossAppendable": "true"}),
    ]


class _ChannelBuilder:
    """Parts of the request of a job to come, as subclasses written for alipai ask for them."""

    base_job_name: str | None

    def job_name(self, job_name: str | None = None) -> str:
        """Returns the name given, or a new one that begins with `base_job_name`."""
        base = self.base_job_name or type(self).__name__.lower()
        return job_name or f"{base}-{time.strftime('%Y%m%d%H%M%S')}-{secrets.token_hex(3)}"

    def build_inputs(
        self,
        inputs: Mapping[str, Any] | None = None,
        input_channels: Sequence[Any] | None = None,
        default_inputs: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Returns the input channels of a request; nothing is uploaded, `fit()` and `submit()` do this.

        Args:
            inputs: maps each input channel to its data.
            input_channels: the definitions of the channels; required ones must be filled.
            default_inputs: for channels that `inputs` does not fill.

        Raises:
            InvalidInputError: a required channel is missing, or the parameters are wrong.
        """
        sources = {**(default_inputs or {}), **(inputs or {})}
        problems = [
            Problem(f"inputs[{channel.name!r}]", "is required")
            for channel in input_channels or ()
            if channel.required and channel.name not in sources
        ]
        if problems:
            raise InvalidInputError(problems)
        return [channel.to_wire() for channel in self._planned_request(inputs=sources).input_channels]

    def build_outputs(
        self,
        job_name: str,
        output_channels: Sequence[Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Returns the output channels of a request.

        Args:
            job_name: the name of the job; it is part of the default place.
            output_channels: the definitions of the channels; the outputs that every job has otherwise.
            outputs: maps each output channel to its destination, for those without the default target.

        Raises:
            InvalidInputError: the parameters are wrong.
        """
        request = self._planned_request(outputs=outputs, job_name=job_name)
        planned = {channel.name: channel for channel in request.output_channels}
        names = dict.fromkeys(planned)
        if output_channels is not None:
            names = {channel.name: None for channel in output_channels} | dict.fromkeys(outputs or ())
        default = next((channel for name, channel in planned.items() if name not in (outputs or ())), None)
        if default is not None:
            parent = posixpath.dirname(str(default.output_uri).rstrip("/"))
            for name in names.keys() - planned.keys():
                planned[name] = default.model_copy(update={"name": name, "output_uri": f"{parent}/{name}/"})
        return [planned[name].to_wire() for name in names if name in planned]

    def _planned_request(self, **arguments: Any) -> TrainingJobRequest:
        request: TrainingJobRequest = self.plan(**arguments).request  # type: ignore[attr-defined]
        return request


def _load_planning() -> Callable[..., Plan]:
    from pai_sdk._client.submit.planning import make_plan

    return make_plan


@short_tracebacks
@dataclass(kw_only=True, repr=False, eq=False)
class JobSubmitter(_ChannelBuilder, Aliased, JobParameters):
    """Plans jobs and submits them; takes all parameters of `JobParameters`, by name.

    Use `Processor` or `Estimator`. For a kind of job of your own, subclass this and implement `describe`.
    """

    jobs: list[TrainingJob] = field(default_factory=list, init=False)
    """The jobs submitted by this object, oldest first."""
    _plans: dict[str, Plan] = field(default_factory=dict, init=False)
    """Their plans, by the ids of the jobs."""

    def __getstate__(self) -> dict[str, Any]:
        # A copy, and what arrives in another process, has not submitted anything yet.
        return {**vars(self), "jobs": [], "_plans": {}}

    @checks_keywords
    def plan(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        *,
        job_name: str | None = None,
    ) -> Plan:
        """Plan a job: the exact request, without network and upload. `session.submit(plan)` sends exactly this.

        `print(plan)` shows it. Three things need the network: a `git_config`, since the code's hash is not known
        without the code, an algorithm that is given by its name, and `resume`, which looks for the checkpoint.
        Where nothing is configured, the plan is one for the embedded service, which is started: its bucket is in
        the request. It ends when it is idle for half an hour. With a region of Alibaba Cloud, nothing is started.

        Args:
            inputs: maps each input channel to its data: a URI, a local file or folder, a dataset.
            outputs: maps each output channel to its destination: a URI or a dataset.
            job_name: the job's name; otherwise a readable one, such as `train-lr0.1-3f2a9c`.

        Raises:
            InvalidInputError: with all problems, not just the first; a `CodeError` for the code folder.
            SettingsError: no bucket is set to put code and outputs into.
        """
        make_plan = load_modules(_load_planning)
        return make_plan(self, self.resolved_session(), inputs, outputs, job_name)

    def submit(self, plan: Plan, *, wait: bool = False, show_logs: bool = True) -> TrainingJob:
        """Submit a plan, and add the job to `jobs`.

        Args:
            plan: from `plan()`.
            wait: return when the job has ended, not when it is submitted.
            show_logs: show status and log while waiting.

        Raises:
            SettingsError: a setting or a key that the job needs is missing.
            ApiError: the service refused it, as for a key that may not do this.
            ConnectionFailedError: no response, after the retries of the session's policy.
            TransferError: code or inputs could not be uploaded; there is no job.
            LocalRunError: with `instance_type="local"`, there is no Docker engine or no such image.
            JobFailed: while waiting, the job failed.
            JobStopped: while waiting, the job was stopped.
        """
        from pai_sdk._client.submission.announce import announce

        job = self._send(plan)
        display = announce(job, plan, is_visible=show_logs)
        if wait:
            on_interrupt = backend_for_job(job.id).capabilities.on_interrupt
            return self._wait(
                job, lambda job: job.wait(show_logs=show_logs, display=display, on_interrupt=on_interrupt)
            )
        job.keep_card_live()
        return job

    @checks_keywords
    def wait(
        self,
        timeout: float | None = None,
        *,
        interval: float | None = None,
        show_logs: bool = True,
        all_jobs: bool = False,
    ) -> TrainingJob:
        """Wait for the end of the job submitted last.

        Args:
            timeout: the longest wait for a job, in seconds; none by default.
            interval: the longest pause between two polls, in seconds; a few by default.
            show_logs: show status and log meanwhile.
            all_jobs: wait for every job submitted by this object, one after the other, failures among them or not.

        Returns:
            The job submitted last.

        Raises:
            InvalidInputError: nothing has been submitted yet.
            JobFailed: a job ended without success; of several the first, when all have ended.
            JobStopped: the job was stopped.
            WaitTimeoutError: the timeout has passed; the job continues.
        """
        failures: list[JobFailed | JobStopped] = []
        last = self._last_job()
        for job in self.jobs[:] if all_jobs else self.jobs[-1:]:
            try:
                last = self._wait(job, lambda job: job.wait(timeout, interval=interval, show_logs=show_logs))
            except (JobFailed, JobStopped) as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return last

    def _wait(self, job: TrainingJob, wait_for: Callable[[TrainingJob], object]) -> TrainingJob:
        from pai_sdk._client.submission.capacity import wait_with_fallback

        return wait_with_fallback(job, wait_for, lambda job: self._plans.get(job.id), self._send)

    def _send(self, plan: Plan) -> TrainingJob:
        job = self.resolved_session().submit(plan, instance_type=self.instance_type)
        # Targets of a class of the user; those of the plan are sent by the service, or are in the job already.
        custom = [
            each
            for each in self.notify or ()
            if not isinstance(each, str) and not getattr(each, "is_in_plans", False)
        ]
        job.notifications = (*job.notifications, *custom)
        self.jobs.append(job)
        self._plans[job.id] = plan
        return job

    @property
    def latest_job(self) -> TrainingJob | None:
        """The job submitted last, by this object."""
        return self.jobs[-1] if self.jobs else None

    @property
    def latest_training_job(self) -> TrainingJob | None:
        """The job submitted last; SageMaker's name of `latest_job`."""
        return self.latest_job

    @classmethod
    def attach(cls, *_: Any, **__: Any) -> NoReturn:
        """Left out: a `TrainingJob` is a handle of its own.

        Raises:
            NotOfferedError: always; it names the replacement.
        """
        raise NotOfferedError(f"{cls.__name__}.attach", "TrainingJob.get('<job id>') is the job, from any process")

    def get_outputs_data(self) -> dict[str, str]:
        """Output channel to URI (or to the id of a dataset), of the job submitted last.

        Raises:
            InvalidInputError: nothing has been submitted yet.
        """
        channels = self._last_job().record.output_channels
        return {c.name: where for c in channels if c.name and (where := c.uri or c.dataset_id)}

    def _last_job(self) -> TrainingJob:
        if not self.jobs:
            raise InvalidInputError([Problem("job", "nothing has been submitted by this object yet")])
        return self.jobs[-1]

    def resolved_session(self) -> Session:
        """The session of the jobs: `session`, or the default session, which is then set."""
        from pai_sdk._client.session import session_or_default

        self.session = session_or_default(self.session, local=backend_for_type(self.instance_type).is_local)
        return self.session


class _Hyperparameters(dict[str, Any]):
    """Hyperparameters that can be called, as SageMaker's method `hyperparameters()`."""

    def __call__(self) -> dict[str, Any]:
        return {**self}


@short_tracebacks
class EstimatorBase(JobSubmitter):
    """Submits jobs that train a model; use `Estimator` or `AlgorithmEstimator`."""

    # A field of each estimator, where its own order of parameters has it.
    hyperparameters: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        # None becomes a dict for `estimator.hyperparameters["lr"] = 0.1`. Other mappings and wrong types stay.
        if self.hyperparameters is None or type(self.hyperparameters) is dict:
            self.hyperparameters = _Hyperparameters(self.hyperparameters or {})

    def set_hyperparameters(self, **hyperparameters: Any) -> None:
        """Add or replace hyperparameters of the jobs to come."""
        self.hyperparameters = _Hyperparameters({**(self.hyperparameters or {}), **hyperparameters})

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
            inputs: maps each input channel to its data: a URI, a local file or folder, a dataset.
            outputs: maps each output channel to its destination, for those without the default target: a URI or a
                dataset.
            wait: return when the job has ended, not when it is submitted.
            show_logs: show status and log while waiting.
            job_name: the job's name; otherwise a readable one, such as `train-lr0.1-3f2a9c`.

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
        """Start TensorBoard on what the job submitted last reports; it shows what the job reports from then on.

        Args:
            wait: it listens when this returns, also with False.

        Raises:
            InvalidInputError: nothing has been submitted yet, or the job has no output `tensorboard`.
            MissingExtraError: TensorBoard is not installed.
            ServiceStartError: it did not start.
        """
        from pai_sdk._client.tensorboard import TensorBoard

        uri = self.tensorboard_data()
        return TensorBoard.create(uri, wait, display_name=self.jobs[-1].name, session=self.resolved_session())

    def _output(self, channel: str) -> str:
        outputs = self.get_outputs_data()
        if channel not in outputs:
            message = f"job {self.jobs[-1].id} has no output {channel!r}"
            raise InvalidInputError([Problem("job", message, f"it has: {', '.join(outputs) or 'none'}")])
        return outputs[channel]
