"""A job that has left the queue: its steps over tables and object store, and the uploads of its outputs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor as Threads
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._data.logs.headline import cause_in
from pai_sdk._data.logs.tail import tail
from pai_sdk._data.logs.tracebacks import find_traceback
from pai_sdk._host.agent.protocol import Ending
from pai_sdk._host.execution.base import ExecutionState, Executor, JobFiles
from pai_sdk._host.execution.contract import launch_spec
from pai_sdk._host.execution.output_uploader import OutputUploader, UploadCancelled
from pai_sdk._host.lifecycle import outcome
from pai_sdk._service.background.metrics import MetricsCollector
from pai_sdk._service.odps.table_rights import is_table
from pai_sdk._service.oss.bucket_store import BucketStore
from pai_sdk._service.services.dlc.cloning import clone_mount
from pai_sdk._service.services.dlc.records import Records
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.staging import ServiceStaging, StagingCancelled, store_uri
from pai_sdk._service.settings import Pace
from pai_sdk._service.state.models import Job
from pai_sdk._wire.pai.job_retries import JobRetries
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus

if TYPE_CHECKING:
    from pai_sdk._service.odps.job_tables import JobTables
    from pai_sdk._service.oss.store import ObjectStore

logger = logging.getLogger(__name__)

_WORKERS = 16
_MAX_CAUSE = 2000


@dataclass(frozen=True)
class JobServices:
    """What the steps of all jobs use."""

    jobs: Jobs
    store: ObjectStore
    executor: Executor
    collector: MetricsCollector
    tables: JobTables | None
    is_closing: Callable[[], bool]
    discard: Callable[[Path], None]  # deletes a folder in the background
    pace: Pace


class ServiceJob:
    """The `JobStore` of a started job: its row, and the object store with its files.

    The scheduler's thread sets `stop_requested`; threads of its pools call the other methods, one at a time.
    """

    def __init__(self, job: Job, files: JobFiles, services: JobServices, add_event: Callable[[str], None]) -> None:
        self.id = job.id
        self.request = TrainingJobRequest.model_validate(job.request)
        self.retries = replace(JobRetries.of(self.request), first_wait_s=services.pace.first_retry_wait_s)
        self.attempt, self.stop_requested = job.attempt, job.stop_requested
        self.files, self.sandbox = files, files.sandbox
        self.publisher = Publisher(services.store, files, self.request, is_cancelled=services.is_closing)
        self._services = services
        self._add_event = add_event

    @property
    def clones_code(self) -> bool:
        """Returns whether the job waits for the host of a repository before its start."""
        return any(mount.is_clone for mount in self.request.mounts or ())

    def check_cancelled(self) -> None:
        """Raises StagingCancelled if the job is stopped, or the service shuts down."""
        if self._is_cancelled():
            raise StagingCancelled

    def stage(self) -> None:
        """Fills the job's folder from the object store."""
        tables = self._services.tables
        ServiceStaging(
            self._services.store,
            self.files,
            self.request,
            is_cancelled=self._is_cancelled,
            notify=self._add_event,
            clone=partial(clone_mount, Records(self._services.jobs.database)),
            put_table=None if tables is None else partial(tables.put, self.files, self.id),
        ).fill()

    def launch(self) -> None:
        """Hands the job over to the executor, unless it was stopped meanwhile."""
        self.check_cancelled()
        self._services.executor.start(launch_spec(self.sandbox.root, self.id, self.request))

    def save_outputs(self) -> str:
        """Saves the metrics of the logs and the outputs; raises UploadCancelled if the service shuts down."""
        try:
            # First: the event files with these metrics are outputs.
            if not self._services.collector.finish(self.id, is_cancelled=self._services.is_closing):
                raise UploadCancelled
            return self.publisher.upload(live_only=False)
        except UploadCancelled:
            logger.info(
                "job %s has finished; the next service on this data folder saves its remaining outputs", self.id
            )
            raise

    def retry(self, state: ExecutionState, wait_s: float) -> bool:
        """Returns the job to the queue."""
        ending = Ending(state.reason_code, state.reason_message)
        return self._services.jobs.requeue(
            self.id,
            attempt=self.attempt,
            wait_s=wait_s,
            ending=ending,
            instances=state.instances,
            ended_at=state.ended_at,
        )

    def report(self, state: ExecutionState, unsaved: str) -> None:
        """Records the end of the job, then removes the folders that nothing reads any more."""
        message = f"The job's command succeeded, but not all of its outputs were saved: {unsaved}"
        status, reason_code, reason_message = outcome(state, unsaved_message=message if unsaved else "")
        if unsaved and status != JobStatus.FAILED:
            logger.warning("job %s: not all outputs were saved: %s", self.id, unsaved)
        self._services.jobs.move(
            self.id,
            status,
            text=reason_message or "The job succeeded.",
            reason_code=reason_code,
            reason_message=reason_message,
            instances=state.instances,
            failed_instance=state.failed_instance,
            ended_at=state.ended_at,
            cause=self._cause(state) if status.is_failure else None,
        )
        # Only after the result is recorded: a service that is killed before needs these folders to finish the job.
        channels = [channel for channel in self.request.output_channels if not is_table(channel.output_uri)]
        saved = () if unsaved else [channel.name for channel in channels]
        for folder in self.sandbox.folders_to_remove(saved_outputs=saved, are_mounts_saved=not unsaved):
            self._services.discard(folder)

    def _cause(self, state: ExecutionState) -> str | None:
        """Returns the exception or last error in the log of the instance that failed first; None without one."""
        if state.failed_instance is None:
            return None
        try:
            lines = tail(self.files.log(state.failed_instance).path)
        except OSError:
            return None  # it has no log, or the disk fails: the reason is recorded all the same
        # PostgreSQL stores no NUL.
        return cause_in(find_traceback(lines), lines).replace("\0", "")[:_MAX_CAUSE] or None

    def _is_cancelled(self) -> bool:
        return self.stop_requested or self._services.is_closing()


class Publisher(OutputUploader):
    """The uploader of a job of the service."""

    def __init__(
        self,
        store: ObjectStore,
        files: JobFiles,
        request: TrainingJobRequest,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        targets = {
            channel.name: partial(self._target, f"output channel {channel.name!r}", channel.output_uri)
            for channel in request.output_channels
            if not is_table(channel.output_uri)  # the job writes the table itself
        }
        mounts = {
            number: partial(self._target, f"mount {mount.path!r}", mount.uri)
            for number, mount in enumerate(request.mounts or ())
            if mount.is_saved
        }
        super().__init__(files, targets, is_cancelled=is_cancelled, options={"workers": _WORKERS}, mounts=mounts)
        self._store = store

    def _target(self, description: str, uri: str | None) -> BucketStore:
        folder = store_uri(uri, description).as_dir()
        return BucketStore(self._store, folder, check_cancelled=self.check_cancelled)


class LiveOutputs:
    """Publishes the live outputs of one job, on a shared thread pool. Used by the scheduler's thread only."""

    def __init__(
        self,
        publisher: OutputUploader,
        threads: Threads,
        *,
        interval_s: float,
        add_event: Callable[[str], None],
        log_error: Callable[[str, Exception], None],
    ) -> None:
        self._publisher = publisher
        self._threads = threads
        self._interval_s = interval_s
        self._add_event = add_event
        self._log_error = log_error
        self._upload: Future[str] | None = None
        self._last_problems = ""
        self._next_at = time.monotonic() + self._interval_s

    def poll(self) -> None:
        """Starts an upload if it is due; called often, and never blocks."""
        # At most one upload per job: a second one would copy the same files.
        if self._upload is not None and self._upload.done():
            done, self._upload = self._upload, None
            self._report_problems(done)
        is_due = time.monotonic() >= self._next_at and self._publisher.has_live_channels
        if is_due and self._upload is None:
            # From the start of the upload: a slow one does not delay the next one further.
            self._next_at = time.monotonic() + self._interval_s
            self._upload = self._threads.submit(self._publisher.upload, live_only=True)

    def _report_problems(self, done: Future[str]) -> None:
        try:
            problems = done.result()
        except UploadCancelled:
            return
        except Exception as error:
            self._log_error("its live outputs cannot be saved now, and are tried again", error)
            return
        # One event per new problem, not one per interval.
        if problems and problems != self._last_problems:
            self._add_event(f"Some outputs are not saved yet: {problems}")
        self._last_problems = problems
