"""A handle on one job: any process that knows its id can wait for it, read its log, stop it, fetch its outputs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.backend.base import Backend
from pai_sdk.display.base import Display, Silent, duration_text, elapsed_s
from pai_sdk.display.choice import choose_display
from pai_sdk.display.commands import next_commands
from pai_sdk.errors import InvalidInputError, JobStopped, PaiError, Problem, WaitTimeoutError
from pai_sdk.job.failure import job_failure
from pai_sdk.job.logs import FollowPolicy, LogStream
from pai_sdk.job.record import ErrorInfo, JobRecord, LogLine, MetricPoint
from pai_sdk.job.status import JobStatus

if TYPE_CHECKING:
    from pai_sdk.session import Session

__all__ = ["TrainingJob"]

_LONGEST_HOLD_S = 10.0


class TrainingJob:
    """One job on one backend. It holds no state but the last snapshot it saw.

    Attributes:
        id: the job's id.

    Example:
        >>> def finish(job: TrainingJob) -> Path:
        ...     job.wait(timeout=3600)
        ...     return job.download("model", "./model")
    """

    def __init__(self, job_id: str, backend: Backend, *, record: JobRecord | None = None) -> None:
        self.id = job_id
        self._backend = backend
        self._record = record

    @classmethod
    def get(cls, job_id: str, *, session: Session | None = None) -> TrainingJob:
        """Attach to a job by its id.

        Args:
            job_id: the id, as `run()` and `pai-sdk ps` show it.
            session: where the job runs; the default session otherwise.

        Raises:
            NotFoundError: there is no such job.
        """
        return _session(session).get_job(job_id)

    @classmethod
    def list(
        cls,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        session: Session | None = None,
    ) -> Iterator[TrainingJob]:
        """All jobs that fit, the newest first; pages are fetched as the caller goes on.

        Args:
            status: only jobs in this status.
            name: only jobs with this text in their name.
            labels: only jobs that bear all of these labels.
            session: where the jobs run; the default session otherwise.
        """
        return _session(session).list_jobs(status=status, name=name, labels=labels)

    # ---- what it is now

    def refresh(self) -> JobRecord:
        """Ask for a new snapshot."""
        self._record = self._backend.get(self.id)
        return self._record

    @property
    def record(self) -> JobRecord:
        """The last snapshot; asked for when there is none yet. `refresh()` gives a new one."""
        return self._record if self._record is not None else self.refresh()

    @property
    def status(self) -> JobStatus:
        """The status now. A job that has ended is not asked again."""
        if self._record is not None and self._record.status.is_terminal:
            return self._record.status
        return self.refresh().status

    @property
    def name(self) -> str:
        """The job's name."""
        return self.record.training_job_name or self.id

    @property
    def console_url(self) -> str | None:
        """The job's page in the console, where the service has one."""
        return self.record.training_job_url

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the last snapshot."""
        return {label.key: label.value or "" for label in self.record.labels if label.key}

    # ---- waiting and reading

    def wait(
        self,
        timeout: float | None = None,
        *,
        show_logs: bool = True,
        display: Display | None = None,
        policy: FollowPolicy | None = None,
    ) -> TrainingJob:
        """Wait for the end, showing the log as it grows.

        Ctrl-C stops the waiting, not the job. A log that cannot be read is told, and does not fail the wait.

        Args:
            timeout: the longest wait, in seconds; none by default.
            show_logs: read the log and show it; False shows at most the end.
            display: what shows it; by default a card in a notebook, lines elsewhere, nothing without logs.
            policy: how patiently to follow.

        Returns:
            This job, so that `job.wait().download("model")` reads well.

        Raises:
            JobFailed: the job ended without success; the error tells why.
            JobStopped: somebody stopped it.
            WaitTimeoutError: the timeout has passed; the job goes on.
        """
        shown = display or (choose_display() if show_logs else Silent())
        if timeout is not None and (not isinstance(timeout, int | float) or math.isnan(timeout)):
            raise InvalidInputError(
                [Problem("timeout", f"{timeout!r} is not a number of seconds", "such as 3600")]
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if show_logs:
                self._follow(shown, deadline, policy)
            self._await_end(deadline, timeout)
        except KeyboardInterrupt:
            shown.detached(self.record)
            # Raised afresh: where in our waiting it was cut off would only push the commands off the screen.
            raise KeyboardInterrupt(
                f"{self.id} goes on; come back with: {next_commands(self.record)[0]}"
            ) from None
        shown.ended(self.record)
        self.raise_for_status()
        return self

    def _follow(self, display: Display, deadline: float | None, policy: FollowPolicy | None) -> None:
        stream = LogStream(self._backend, self.id, follow=True, policy=policy)
        try:
            for update in stream.updates(deadline=deadline):
                if isinstance(update, LogLine):
                    display.line(update)
                else:
                    self._record = update
                    display.changed(update)
        except PaiError as fault:
            display.notice(f"the log cannot be shown: {fault}")

    def _await_end(self, deadline: float | None, timeout: float | None) -> None:
        pause_s = 0.2
        while not self.record.status.is_terminal:
            left_s = _LONGEST_HOLD_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                raise WaitTimeoutError(
                    f"job {self.id} is still {self.record.status} after {timeout:g} s; it goes on. "
                    f"Wait longer, or stop it: {next_commands(self.record)[-1]}",
                    job_id=self.id,
                    status=self.record.status,
                    timeout_s=timeout or 0.0,
                )
            asked = time.monotonic()
            hold_s = min(left_s, _LONGEST_HOLD_S)
            self._record = self._backend.get(self.id, changed_from=self._record, wait_s=hold_s)
            if not self._record.status.is_terminal and time.monotonic() - asked < pause_s:
                time.sleep(min(pause_s, max(left_s, 0.0)))
                pause_s = min(pause_s * 1.5, 5.0)

    def logs(
        self, *, follow: bool = False, instance: str | None = None, start: Mapping[str, int] | None = None
    ) -> LogStream:
        """The log as records.

        Args:
            follow: go on until the job has ended and its last line is there.
            instance: one instance, by its full name or its ending (`master-0`, `worker-1`).
            start: the number of the first line wanted, per instance (a former stream's `cursor`).
        """
        return LogStream(self._backend, self.id, follow=follow, instance=instance, start=start)

    def metrics(self, name: str | None = None) -> Iterator[MetricPoint]:
        """The values the job's metric definitions found in its log, oldest first."""
        return self._backend.metrics(self.id, name=name)

    def events(self) -> Sequence[str]:
        """What happened to the job, as the service tells it."""
        return self._backend.events(self.id)

    def error_info(self) -> ErrorInfo | None:
        """Why it failed, as the service tells it; None when it did not."""
        return self._backend.error_info(self.id)

    # ---- its outputs

    @property
    def outputs(self) -> dict[str, str]:
        """Output channel to URI."""
        return self.record.outputs

    def download(self, channel: str, target: str | Path, *, progress: bool = True) -> Path:
        """Fetch an output channel.

        Args:
            channel: its name: `model`, `checkpoints`, …
            target: the local folder it goes to; made when missing.
            progress: show a progress bar.

        Raises:
            InvalidInputError: the job has no such output channel.
            TransferError: some files could not be fetched; the others are there.
        """
        if not isinstance(target, str | os.PathLike) or not os.fspath(target):
            raise InvalidInputError([Problem("target", f"{target!r} is not a folder", "such as 'model/'")])
        outputs = self.outputs
        if channel not in outputs:
            known = ", ".join(outputs) or "none"
            raise InvalidInputError(
                [Problem("channel", f"job {self.id} has no output {channel!r}", f"it has: {known}")]
            )
        return self._backend.download(outputs[channel], Path(target), progress=progress)

    # ---- changing it

    def stop(self) -> None:
        """Ask for its end; returns before it has come. `wait()` tells when it has."""
        self._backend.stop(self.id)

    def delete(self) -> None:
        """Forget a job that has ended. Its outputs stay."""
        self._backend.delete(self.id)

    def update_labels(self, labels: Mapping[str, str]) -> None:
        """Add or replace labels.

        Raises:
            InvalidInputError: they are not texts by name.
        """
        if not isinstance(labels, Mapping) or not all(
            isinstance(text, str) for pair in labels.items() for text in pair
        ):
            raise InvalidInputError([Problem("labels", "must be a dict of texts", "such as {'team': 'vision'}")])
        self._backend.update_labels(self.id, labels)
        self.refresh()

    # ---- its end

    def raise_for_status(self) -> None:
        """Do nothing for a job that succeeded or goes on; raise what tells why it did not.

        Raises:
            JobFailed: it ended without success.
            JobStopped: somebody stopped it.
        """
        record = self.record
        if record.status.is_failure:
            raise job_failure(self._backend, record)
        if record.status.is_stopped:
            why = f": {record.reason_message}" if record.reason_message else ""
            raise JobStopped(
                f"job {self.name} ({self.id}) was stopped{why}", job_id=self.id, reason_code=record.reason_code
            )

    def __repr__(self) -> str:
        if self._record is None:
            return f"<TrainingJob {self.id}>"
        seconds = elapsed_s(self._record)
        took = f" {duration_text(seconds)}" if seconds is not None else ""
        return f"<TrainingJob {self.id} {self._record.status}{took}>"

    def _repr_html_(self) -> str:
        from pai_sdk.display.card import card_html

        return card_html(self.record)


def _session(session: Session | None) -> Session:
    if session is not None:
        return session
    from pai_sdk.session import get_default_session

    return get_default_session()
