"""The runs of a service: its jobs, with what their instances have written on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from sqlalchemy import func, select

from pai_sdk._wire.requests import RecordedRequest
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.logs.reader import LogReader
from pai_sdk.run.report.layout import RunLayout
from pai_sdk.run.watch.records import RunRecord
from pai_sdk.schemas.status import JobStatus
from pai_sdk.service.identity.principal import Principal
from pai_sdk.service.identity.visibility import visible_jobs
from pai_sdk.service.jobs.job_table import Jobs
from pai_sdk.service.jobs.log_reader import JobLogReader
from pai_sdk.service.jobs.queueing.quota_checks import QUEUED
from pai_sdk.service.objects.bucket_store import BucketStore
from pai_sdk.service.objects.store import ObjectStore
from pai_sdk.service.runs.kept_manager import KeptManager
from pai_sdk.service.runs.responses import ResponseCache, RowCache
from pai_sdk.service.runs.source import RunMark, checkpoint_marks, folders_in
from pai_sdk.service.state.folder import DataFolder
from pai_sdk.service.state.models import Event, Job
from pai_sdk.storage.base import Store
from pai_sdk.storage.stores.local import LocalStore
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.run.watch.manager import RunManager

__all__ = ["JobRuns"]

_POINTS_BYTES = 48 << 20  # of curves that are looked at; those of other runs are read again when they are
_THREADS = 2
_REFRESH_S = 0.5
_JOBS_A_QUERY = 500
_EVERYTHING = Principal.operator("")
_MODEL, _TRACE = "model", "trace"


class JobRuns:
    """The runs of the jobs of a service that a user can see.

    Each user who looks at runs has a manager of their own. It reads the runs that they can see and no others, so
    nothing that it counts, compares or streams is of another run. It is closed when they look no more.

    Args:
        jobs: the jobs.
        logs: their logs.
        folder: of the service.
        store: where the outputs of jobs are published.
        longest_stream_s: see `RunSource`.
        principal: the user; the service itself by default.
    """

    def __init__(
        self,
        jobs: Jobs,
        logs: JobLogReader,
        folder: DataFolder,
        store: ObjectStore,
        longest_stream_s: float,
        principal: Principal = _EVERYTHING,
    ) -> None:
        self.responses = ResponseCache()
        self.rows = RowCache()
        self.longest_stream_s = longest_stream_s
        self._jobs = jobs
        self._logs = logs
        self._folder = folder
        self._store = store
        self._principal = principal
        self._lock = threading.Lock()  # guards the next two
        self._of_others: dict[str, JobRuns] = {}  # by user: what they can see now
        # With those of earlier rights, which go when their managers are idle and no request uses them.
        self._to_close: WeakSet[JobRuns] = WeakSet()
        self._manager = KeptManager(self._new_manager)
        # The last record of each job, and the version of the job; used by the manager's thread only.
        self._known: dict[str, tuple[int, RunRecord]] = {}

    @property
    def manager(self) -> RunManager:
        """The manager, started."""
        return self._manager.get()

    def _new_manager(self) -> RunManager:
        from pai_sdk.run.watch.manager import RunManager

        self._known = {}
        manager = RunManager(
            records=self._records,
            refresh_s=_REFRESH_S,
            memory_bytes=_POINTS_BYTES,
            threads=_THREADS,
            opener=self._open,
        )
        return manager.start()

    def finished_at(self, run_id: str | None) -> float:
        """When the job of a run finished; see `RunSource`."""
        return self._jobs.finish_times.of(run_id and run_id.partition("/")[0])

    def seen_by(self, principal: Principal) -> JobRuns:
        """The runs that a user can see."""
        if principal.key_of_view == self._principal.key_of_view or principal.may("admin"):
            return self
        with self._lock:
            found = self._of_others.get(principal.user)
            if found is None or found._principal.key_of_view != principal.key_of_view:
                found = JobRuns(
                    self._jobs, self._logs, self._folder, self._store, self.longest_stream_s, principal
                )
                self._of_others[principal.user] = found
                self._to_close.add(found)
        return found

    def close(self) -> None:
        """Stop the managers that were started."""
        self._manager.close()
        with self._lock:
            others = [*self._to_close]
        for other in others:
            other.close()

    @property
    def is_closing(self) -> bool:
        """True if the service is shutting down."""
        return self._jobs.changes.closed

    def log(self, run_id: str, instance: str | None) -> LogReader:
        """The log of a job.

        Raises:
            WireError: there is no such job, or it has no such instance.
        """
        return self._logs.open(self._job(run_id), instance)

    def files(self, run_id: str) -> Mapping[str, Store]:
        """The output channels of a job, here or where they were published, and its logs.

        Raises:
            WireError: there is no such job.
        """
        job, sandbox = self._job(run_id), self._sandbox(run_id)
        found: dict[str, Store] = {}
        for output in RecordedRequest.model_validate(job.request).output_channels:
            name, uri = str(output.name), output.output_uri
            if uri is not None and uri.startswith("oss://"):
                found[name] = BucketStore(self._store, OssUri.parse(uri).as_dir())
                if name == _MODEL:
                    trace = BucketStore(self._store, OssUri.parse(f"{uri.rstrip('/')}/{_TRACE}/"))
                    if next(trace.list(), None) is not None:
                        found.setdefault(_TRACE, trace)
        # Here is what is not published yet. A trace without a channel of its own lies in the model's.
        found |= folders_in(sandbox.output_dir(_MODEL), sandbox.root, only=[_TRACE])
        found |= folders_in(sandbox.ml / "output", sandbox.root)
        if sandbox.logs_dir.is_dir():
            found["logs"] = LocalStore(sandbox.logs_dir, links="inside")
        return dict(sorted(found.items()))

    def queue_places(self) -> Mapping[str, int]:
        """The places of the jobs in the lines of their owners."""
        place = func.row_number().over(partition_by=Job.owner, order_by=(Job.priority.desc(), Job.number))
        queued = select(Job.id, place.label("place"), visible_jobs(self._principal).label("is_visible"))
        with self._jobs.database.read() as session:
            rows = session.execute(queued.where(Job.status.in_(QUEUED)))
            return {row.id: row.place for row in rows if row.is_visible}

    def marks(self, run_id: str) -> Sequence[RunMark]:
        """The statuses and events of a job, and its checkpoints.

        Raises:
            WireError: there is no such job.
        """
        job = self._job(run_id)
        marks = [RunMark("status", change.status, change.started_at) for change in job.transitions]
        with self._jobs.database.read() as session:
            events = session.scalars(select(Event).where(Event.job_id == run_id).order_by(Event.number))
            marks += [RunMark("event", event.text, event.happened_at) for event in events]
        local = Path(RunLayout(str(self._sandbox(run_id).ml / "output")).checkpoints)
        published = None if local.is_dir() else _published(job, "checkpoints")
        if published is not None:
            return [*marks, *self._published_checkpoints(published)]
        return [*marks, *checkpoint_marks(local, self._sandbox(run_id).root)]

    def _published_checkpoints(self, uri: str) -> Iterator[RunMark]:
        folder = OssUri.parse(uri).as_dir()
        marker = RunLayout("").checkpoint_marker(0).rpartition("/")[2]
        for info in self._store.list(folder.bucket, folder.key):
            name, _, last = info.key[len(folder.key) :].partition("/")
            if last == marker and (step := RunLayout.step_of(name)) is not None:
                yield RunMark("checkpoint", f"checkpoint {step}", info.modified_at, step)

    def _open(self, uri: str) -> Store:
        """The folder of a record: what the job has written here, or else what was published of it."""
        if uri.startswith("oss://"):
            return BucketStore(self._store, OssUri.parse(uri))
        return LocalStore(uri, links="inside")  # a job can put any link into its folder

    def _records(self) -> list[RunRecord]:
        """The record of each run by the job table; only jobs that have changed are read in full."""
        mine = select(Job.id, Job.version).where(visible_jobs(self._principal))
        with self._jobs.database.read() as session:
            versions = {row.id: row.version for row in session.execute(mine)}
            changed = [run_id for run_id, version in versions.items() if self._version_of(run_id) != version]
            for begin in range(0, len(changed), _JOBS_A_QUERY):
                wanted = Job.id.in_(changed[begin : begin + _JOBS_A_QUERY])
                for job in session.scalars(select(Job).where(wanted)):
                    self._known[job.id] = (job.version, self._record(job))
        self._known = {run_id: known for run_id, known in self._known.items() if run_id in versions}
        return [record for _, record in self._known.values()]

    def _version_of(self, run_id: str) -> int:
        return self._known[run_id][0] if run_id in self._known else -1

    def _record(self, job: Job) -> RunRecord:
        local = Path(RunLayout(str(self._sandbox(job.id).ml / "output")).tensorboard)
        # A job that has not started has no files: the folders of thousands in the queue are not looked at.
        has_files = job.started_at is not None
        is_published = has_files and JobStatus(job.status).is_terminal and not local.is_dir()
        return RunRecord(
            job.id,
            status=job.status,
            name=job.name,
            labels={label.key: label.value for label in job.labels},
            hparams=RecordedRequest.model_validate(job.request).hyperparameter_values,
            created_at=job.created_at,
            ended_at=job.ended_at,
            uri=((_published(job, "tensorboard") if is_published else None) or str(local)) if has_files else "",
        )

    def _job(self, run_id: str) -> Job:
        self._jobs.require_visible(run_id, self._principal)
        return self._jobs.get(run_id)

    def _sandbox(self, job_id: str) -> Sandbox:
        return Sandbox(self._folder.job_dir(job_id))


def _published(job: Job, channel: str) -> str | None:
    """The URI to which an output channel of a job is published; None if it has no such channel."""
    outputs = RecordedRequest.model_validate(job.request).output_channels
    uri = next((each.output_uri for each in outputs if each.name == channel), None)
    return uri if uri is not None and uri.startswith("oss://") else None
