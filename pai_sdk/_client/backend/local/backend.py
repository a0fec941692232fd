"""Backend that runs jobs in Docker on this machine. Its state is in the jobs' folders and in the engine."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from pai_sdk._client.backend.base import JobChanges, Plan
from pai_sdk._client.backend.connection import Connection
from pai_sdk._client.backend.local.files import LocalFiles
from pai_sdk._client.backend.local.jobs import LocalJob, LocalJobs
from pai_sdk._client.backend.local.readers import STATE, Readers
from pai_sdk._client.backend.local.staging import LocalStaging
from pai_sdk._client.backend.local.steps import LocalSteps
from pai_sdk._client.backend.local.support import (
    check_supported,
    file_errors_explained,
    unused_locally,
)
from pai_sdk._client.backend.local.watching import LatestMetrics, LocalLogs, metric_values
from pai_sdk._client.backend.specs import LOCAL
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.input_cache import InputCache
from pai_sdk._host.agent.tunnel.transports import SocketTransport
from pai_sdk._host.execution.docker.containers import tolerate_missing_engine
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.usage import usage_of_job
from pai_sdk._host.execution.output_uploader import UPLOAD_INTERVAL_S
from pai_sdk._wire.pai.record import (
    ErrorInfo,
    FailedInstance,
    InstanceUsage,
    JobRecord,
    LogPage,
    MetricPoint,
    from_time,
)
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk.errors import (
    ConflictError,
    NotFoundError,
)

if TYPE_CHECKING:
    from pai_sdk._client.tunnel.opening import JobTunnel
    from pai_sdk._data.storage.oss.client import OssClient

logger = logging.getLogger(__name__)

_COMPARED = ("status", "reason_message", "instances", "labels", "latest_metrics")
_POLL_INTERVAL_S = 0.05
_POLL_INTERVAL_PER_JOB_S = 0.01  # additional interval per job: 1 % of a core if a job takes 0.1 ms


class LocalBackend(LocalFiles):
    """Runs jobs in containers on this machine. Safe for several threads and processes.

    It has no state: `LocalJobs` has the jobs' folders, the executor their containers. In memory are only caches,
    each with its own lock; none of these is held during a request to the engine or OSS.
    """

    capabilities = LOCAL.capabilities
    endpoint = "docker"
    dedupes = True  # a lock and the submission label ensure one job per submission across processes
    retry = RetryPolicy()  # calls of the engine are not repeated

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        files: Callable[[Path | None], OssClient] | None = None,
        embedded_dir: Path | None = None,
        executor: DockerExecutor | None = None,
        upload_interval_s: float = UPLOAD_INTERVAL_S,
    ) -> None:
        super().__init__(data_dir, files)
        self._embedded_dir = embedded_dir
        cache = self.data_dir / "cache"
        self._executor = executor or DockerExecutor(
            pip_cache=cache / "pip", requirements_dir=cache / "requirements"
        )
        self._jobs = LocalJobs(self.data_dir / "jobs", self._executor)
        self._input_cache = InputCache(cache / "oss")
        self._logs = LocalLogs()
        self._latest = LatestMetrics()
        self.steps = LocalSteps(
            lambda job: self.oss(job.metadata.get("embedded")), self._latest, upload_interval_s=upload_interval_s
        )
        self._readers = Readers()

    @classmethod
    def open(cls, connection: Connection) -> LocalBackend:
        """Opens the backend of a session."""
        return cls(files=connection.files_of_local_jobs, embedded_dir=connection.embedded_dir)

    def __repr__(self) -> str:
        return f"<LocalBackend {self.data_dir}>"

    def close(self) -> None:
        """Closes the connections to the engine; jobs continue."""
        self._readers.close()
        self._executor.close()

    # ---- before a job

    def upload(self, plan: Plan, *, progress: bool = True) -> None:
        """Checks that the job can run locally; its files are copied when it is created."""
        check_supported(plan.request)
        _ = self._executor.engine  # raises without an engine, before files are copied
        unused = unused_locally(plan.request)
        if unused:
            logger.warning("ignored by local jobs: %s", ", ".join(unused))

    def create(self, plan: Plan, *, progress: bool = True) -> str:
        """Copies code and inputs, and starts the containers; after an error nothing is left behind."""
        jobs = self._jobs.submitting(plan.request, self._embedded_dir)
        with file_errors_explained(self.data_dir), jobs as (job, is_new):
            if not is_new:
                logger.info("this plan was submitted by another process: it is job %s", job.id)
                return job.id
            try:
                staging = LocalStaging(job.files, plan, self._input_cache, self.oss, progress=progress)
                self.steps.start(job, staging, progress=progress)
            except BaseException as error:
                # The folder last: without it, the job's containers could not be found by its id.
                with tolerate_missing_engine():
                    self._executor.remove(job.root)
                if isinstance(error, KeyboardInterrupt):  # its traceback does not help
                    raise KeyboardInterrupt(f"{job.id} was cancelled before it started") from None
                raise
            return job.id

    def find(self, request: TrainingJobRequest, *, of_any_age: bool = False) -> Sequence[str]:
        """Returns the job with the submission label of a request, if there is one."""
        job = self._jobs.job_of(request.label(SUBMISSION_LABEL) or "")
        return [] if job is None else [job.id]

    # ---- a job

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        """Returns the current record. The first call after the end of the job saves outputs to OSS."""
        changes = self.changes({job_id: changed_from}, wait_s=wait_s)
        return changes.records.get(job_id) or self._record_for_waiter(job_id)

    def changes(
        self, snapshots: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        """Returns the jobs that differ from their snapshots, with one request to the engine for all jobs."""
        deadline = time.monotonic() + wait_s
        while True:
            self._executor.refresh_many(self._jobs.folder / job_id for job_id in snapshots)
            records, missing = dict[str, JobRecord](), set[str]()
            for job_id, before in snapshots.items():
                try:
                    record = self._record_for_waiter(job_id)
                except NotFoundError:
                    missing.add(job_id)
                    continue
                if before is None or _differs(record, before):
                    records[job_id] = record
            if records or missing or time.monotonic() >= deadline:
                return JobChanges(records, frozenset(missing))
            # The engine has no long poll for many containers.
            time.sleep(max(_POLL_INTERVAL_S, _POLL_INTERVAL_PER_JOB_S * len(snapshots)))

    def _record_for_waiter(self, job_id: str) -> JobRecord:
        """Returns the current record; protects an unfinished job from `prune`, since the caller polls again."""
        with self._reading(job_id, STATE) as job:
            record = self._record(job_id, with_metrics=True)
            if record.status.is_terminal:
                self._readers.finish(job.root, STATE)
            return record

    @contextmanager
    def _reading(self, job_id: str, part: str) -> Iterator[LocalJob]:
        """Accesses a job, and protects it from `prune`."""
        try:
            with self._jobs.may_be_deleted(job_id) as job:
                self._readers.start(job.root, part)
                yield job
        except NotFoundError:  # deleted on purpose: its lock file is kept open by this process only
            self._readers.finish(self._jobs.folder / job_id)
            raise

    def _record(self, job_id: str, *, can_wait: bool = True, with_metrics: bool = False) -> JobRecord:
        with self._jobs.may_be_deleted(job_id) as job:
            state = job.state()
            self.steps.advance(job, state, can_wait=can_wait)
            record = job.record(state)
            # Event files are written in any case: other clients watch them.
            if not with_metrics:
                self._latest.write(job, is_final=record.status.is_terminal)
                return record
            latest = self._latest.of(job, is_final=record.status.is_terminal)
            return record.model_copy(update={"latest_metrics": latest})

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        newest_first: bool = True,
        skip: int = 0,
    ) -> Iterator[JobRecord]:
        """Yields all matching local jobs, except for the first `skip`."""
        wanted = (labels or {}).items()
        matches = (
            record
            for record in self._all_records(newest_first=newest_first)
            if (status is None or record.status == status)
            and (name is None or name in (record.training_job_name or ""))
            and wanted <= {label.key: label.value for label in record.labels}.items()
        )
        return islice(matches, skip, None)

    def _all_records(self, *, newest_first: bool) -> Iterator[JobRecord]:
        ids = self._jobs.ids()
        for job_id in ids if newest_first else reversed(ids):
            with suppress(NotFoundError):  # another process has just deleted it
                # A list must not wait for the uploads of finished jobs, or start attempts.
                yield self._record(job_id, can_wait=False)

    def stop(self, job_id: str) -> None:
        """Requests that a job stops."""
        self._jobs.get(job_id).stop()

    def delete(self, job_id: str) -> None:
        """Deletes a finished job, but not its outputs; refuses one whose outputs could not be saved."""
        record = self._record(job_id)
        job = self._jobs.get(job_id)
        if job.metadata.get("unsaved") and not job.are_outputs_saved:
            raise ConflictError(
                f"job {job_id}: {record.reason_message}; it is not deleted, since they would be lost",
                code="OutputsNotSaved",
                status_code=409,
            )
        if not record.status.is_terminal:
            raise ConflictError(
                f"job {job_id} is {record.status}; stop it first", code="TrainingJobNotEnded", status_code=409
            )
        self._executor.remove(job.root)
        self._readers.finish(job.root)

    def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Reads lines of one instance's log."""
        with self._reading(job_id, instance) as job:
            page = self._logs.read(job, instance, start, limit, wait_s=wait_s)
            if page.complete:
                self._readers.finish(job.root, instance)
            return page

    def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> Sequence[str | None] | None:
        """Returns when lines of a log were written."""
        with self._jobs.may_be_deleted(job_id) as job:
            return [wire_time(time) for time in self._logs.times(job, instance, start, count)]

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        """Yields the values that the job has reported or that its metric definitions match; oldest first."""
        with self._jobs.may_be_deleted(job_id) as job:
            # Read before the log: a log that was read after the end is complete.
            is_final = job.state().phase == "ended"
            return from_time(metric_values(job, name=name, is_final=is_final), since)

    def events(self, job_id: str) -> Sequence[str]:
        """Returns the events of the job."""
        record = self._record(job_id)
        events = [f"{transition.start_time} {transition.status}" for transition in record.status_transitions]
        if record.reason_message and events:
            events[-1] += f": {record.reason_message}"
        return events

    def usage(self, job_id: str) -> Sequence[InstanceUsage]:
        """Returns the resource usage of the containers, as the engine reports it."""
        self._jobs.get(job_id)
        return usage_of_job(self._executor.engine, job_id)

    def connect_tunnel(self, job_id: str, instance: str) -> JobTunnel:
        """Opens a tunnel into the container of an instance, without a service."""
        root = self._jobs.get(job_id).root

        def dial() -> SocketTransport:
            return SocketTransport(self._executor.connect_tunnel(root, instance))

        # For weight: loads the library of WebSockets, which submissions do without.
        tunnel: JobTunnel = resolve_name("pai_sdk._client.tunnel.opening:JobTunnel")(dial, job_id, instance)
        return tunnel

    def error_info(self, job_id: str) -> ErrorInfo | None:
        """Returns why the job failed, or None."""
        record = self._record(job_id)
        if not record.status.is_failure:
            return None
        state = self._executor.state(self._jobs.get(job_id).root)
        codes = {instance.name: instance.exit_code for instance in state.instances}
        failed = FailedInstance(instance=state.failed_instance, exit_code=codes.get(state.failed_instance or ""))
        info = failed.to_json() or None
        return ErrorInfo(code=record.reason_code, message=record.reason_message, additional_info=info)

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """Adds or replaces labels."""
        with self._jobs.get(job_id).update_metadata() as metadata:
            metadata["labels"] = {**metadata.get("labels", {}), **labels}

    def prune(self) -> Sequence[str]:
        """Deletes all finished jobs that no process reads, and stray containers; returns the ids of the jobs."""
        removed = [job_id for job_id in self._jobs.ids() if self._prune(job_id)]
        for folder in self._jobs.remnants():
            shutil.rmtree(folder, ignore_errors=True)
        # The containers of jobs without a folder. Outputs stay.
        return [*removed, *self._executor.sweep()]

    def _prune(self, job_id: str) -> bool:
        """Deletes a job if it is finished and not being read; returns whether it was deleted."""
        try:
            if not self._record(job_id).status.is_terminal:
                return False
            # Locked during the deletion, so that no other process starts to read the job.
            with self._readers.exclude(self._jobs.get(job_id).root) as has_no_readers:
                if not has_no_readers:
                    logger.warning("%s is being read or waited for, and is not removed; prune later", job_id)
                    return False
                self.delete(job_id)
        except (ConflictError, NotFoundError, FileNotFoundError):  # another process has removed it
            return False
        return True


def _differs(record: JobRecord, before: JobRecord) -> bool:
    return any(getattr(record, name) != getattr(before, name) for name in _COMPARED)
