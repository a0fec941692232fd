"""JobSubmitter: plans jobs from parameters, and submits them.

Importing this module is cheap: `submit.planning` is loaded when the first plan is made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk.base.keywords import checks_keywords
from pai_sdk.base.short_traceback import short_tracebacks
from pai_sdk.errors import InvalidInputError, JobFailed, JobStopped, PaiError, Problem
from pai_sdk.schemas.names import LOCAL_TYPES, is_local_id
from pai_sdk.submit.parameters import Description, JobParameters

if TYPE_CHECKING:
    from pai_sdk.backend.base import Plan
    from pai_sdk.display.base import Display
    from pai_sdk.job.training_job import TrainingJob
    from pai_sdk.session import Session
    from pai_sdk.submit.channels import InputSource, OutputTarget

__all__ = ["Description", "JobSubmitter"]

logger = logging.getLogger(__name__)


@short_tracebacks
@dataclass(kw_only=True, repr=False, eq=False)
class JobSubmitter(JobParameters):
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
        """The exact request, without network and without upload. `session.submit(plan)` sends this very thing.

        `print(plan)` shows it. Three things need the network: a `git_config`, since the code's hash is not known
        without the code, an algorithm that is given by its name, and `resume`, which looks for the checkpoint.

        Args:
            inputs: input channel to what fills it: a URI, a local file or folder, a dataset.
            outputs: output channel to where it goes: a URI or a dataset.
            job_name: the job's name; otherwise `base_job_name`, the time and a few digits.

        Raises:
            InvalidInputError: with all that is wrong, not just the first; a `CodeError` for the code folder.
            SettingsError: no bucket is set to put code and outputs into.
        """
        from pai_sdk.submit.planning import make_plan

        return make_plan(self, self._session(), inputs, outputs, job_name)

    def submit(self, plan: Plan, *, wait: bool = False, show_logs: bool = True) -> TrainingJob:
        """Submit what was planned, and keep the job among `jobs`.

        Args:
            plan: from `plan()`.
            wait: return when the job has ended, not when it is submitted.
            show_logs: show status and log while waiting.

        Raises:
            SettingsError: a setting or a key that the job needs is missing.
            ApiError: the service refused it, as for a key that may not do this.
            ConnectionFailedError: no answer, after the retries of the session's policy.
            TransferError: code or inputs could not be uploaded; there is no job.
            LocalRunError: with `instance_type="local"`, there is no Docker engine or no such image.
            JobFailed: while waiting, the job failed.
            JobStopped: while waiting, the job was stopped.
        """
        from pai_sdk.display.base import Silent
        from pai_sdk.display.choice import choose_display

        job = self._session().submit(plan, instance_type=self.instance_type)
        self._keep(job, plan)
        display = choose_display(job=job, is_waited_for=wait) if show_logs else Silent()
        if show_logs:
            job.shown_by(display)
            _show_submitted(job, display, (*plan.warnings, *plan.notes))
        else:
            for warning in plan.warnings:
                logger.warning("job %s: %s", job.id, warning)
        if wait:
            # A local job ends with the program that waits for it in the foreground.
            on_interrupt: Literal["detach", "stop"] = "stop" if is_local_id(job.id) else "detach"
            return self._wait_with_fallback(
                job, lambda one: one.wait(show_logs=show_logs, display=display, on_interrupt=on_interrupt)
            )
        else:
            job.keep_card_live()
        return job

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
            WaitTimeoutError: the timeout has passed; the job goes on.
        """
        failures: list[JobFailed | JobStopped] = []
        last = self._last_job()
        for job in self.jobs[:] if all_jobs else self.jobs[-1:]:
            try:
                last = self._wait_with_fallback(
                    job, lambda one: one.wait(timeout, interval=interval, show_logs=show_logs)
                )
            except (JobFailed, JobStopped) as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return last

    def _wait_with_fallback(self, job: TrainingJob, wait_for: Callable[[TrainingJob], object]) -> TrainingJob:
        """Wait for a job; one that found no capacity is submitted again with its next resources.

        Only when it has ended, and never began, so that no two run at once. Its end is not announced then.
        """
        from pai_sdk.job.notifications import notify_all
        from pai_sdk.session.capacity import plan_after

        while True:
            notifications, job.notifications = job.notifications, ()
            try:
                wait_for(job)
            except JobFailed as failure:
                plan = self._plans.get(job.id)
                following = plan_after(failure, job.record, plan) if plan is not None else None
                if following is None:
                    notify_all(notifications, job.record, failure)
                    raise
            except JobStopped as stop:
                notify_all(notifications, job.record, stop)
                raise
            except BaseException:
                job.notifications = notifications  # it goes on, and a later wait may see its end
                raise
            else:
                notify_all(notifications, job.record, None)
                return job
            job = self._session().submit(following, instance_type=self.instance_type)
            self._keep(job, following)

    def _keep(self, job: TrainingJob, plan: Plan) -> None:
        job.notifications = tuple(self.notify or ())
        self.jobs.append(job)
        self._plans[job.id] = plan

    @property
    def latest_job(self) -> TrainingJob | None:
        """The job submitted last, by this object."""
        return self.jobs[-1] if self.jobs else None

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

    def _session(self) -> Session:
        from pai_sdk.session import given_or_default

        self.session = given_or_default(self.session, local=self.instance_type in LOCAL_TYPES)
        return self.session


def _show_submitted(job: TrainingJob, display: Display, notes: Sequence[str]) -> None:
    """Show a job that has just been created. An error raised here would hide the job's id from the user."""
    from pai_sdk.display.commands import next_commands
    from pai_sdk.job.interrupt_messages import detached
    from pai_sdk.schemas.record import JobRecord

    try:
        display.submitted(job.record)
        for note in notes:
            display.notice(note)
    except PaiError as fault:
        display.submitted(JobRecord(training_job_id=job.id))
        display.notice(f"its state cannot be read: {fault}")
    except KeyboardInterrupt:
        raise detached(job.id, next_commands(JobRecord(training_job_id=job.id))) from None
