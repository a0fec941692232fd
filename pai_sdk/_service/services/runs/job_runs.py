"""The runs of a service: its jobs, with the local files of their instances."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from sqlalchemy import select

from pai_sdk._data.logs.reader import LogReader
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.run.watch.records import NOT_ANNOTATED, RunAnnotations, RunRecord
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.visibility import visible_jobs
from pai_sdk._service.oss.bucket_store import BucketStore
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.services.jobs.annotations import annotation_rows, stars
from pai_sdk._service.services.jobs.details.costs import JobCost, cost_of, price_rows
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.log_reader import JobLogReader
from pai_sdk._service.services.jobs.queueing.waiting import QueueReader, queue_positions
from pai_sdk._service.services.runs.dlc_rows import dlc_labels, hyperparameters_of
from pai_sdk._service.services.runs.list_responses import SERVICE_FOLDER
from pai_sdk._service.services.runs.on_demand_manager import OnDemandManager
from pai_sdk._service.services.runs.responses import ResponseCache, RowCache
from pai_sdk._service.services.runs.source import RunMark, checkpoint_marks, folders_in
from pai_sdk._service.settings import ServiceSettings
from pai_sdk._service.state.folder import DataFolder
from pai_sdk._service.state.models import Event, Job, JobAnnotation, JobPrice
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk._wire.requests import instance_type_of, output_uris

if TYPE_CHECKING:
    from pai_sdk._data.run.watch.manager import RunManager

_POINTS_BYTES = 48 << 20  # cache of points; other runs are read again on demand
_THREADS = 2
_JOBS_PER_QUERY = 500
_MAX_CAUSE = 200
_EVERYTHING = Principal.operator("")
_Version: TypeAlias = tuple[int, tuple[str, ...]]  # of the job, and the users who have put a star on it
_MODEL, _TRACE = "model", "trace"


class JobRuns:
    """The runs of the jobs of a service that a user can see.

    Each active user has a manager, which reads only the runs that they can see. So nothing that it counts,
    compares or streams is of another run. It is closed when they are idle.
    """

    def __init__(
        self,
        jobs: Jobs,
        logs: JobLogReader,
        folder: DataFolder,
        store: ObjectStore,
        settings: ServiceSettings,
        queue: QueueReader,
        principal: Principal = _EVERYTHING,
    ) -> None:
        self.responses = ResponseCache()
        self.rows = RowCache()
        self.max_stream_s = settings.max_stream_s
        self.pace = settings.pace
        self._settings = settings
        self._jobs = jobs
        self._logs = logs
        self._folder = folder
        self._store = store
        self._queue = queue
        self._principal = principal
        self._lock = threading.Lock()  # guards the next two
        self._by_user: dict[str, JobRuns] = {}  # by user, with their current rights
        # Including those of earlier rights. The set is weak: these are dropped when no request uses them and their
        # managers are idle.
        self._to_close: WeakSet[JobRuns] = WeakSet()
        self._manager = OnDemandManager(self._new_manager)
        # The version, the stars and the last record of each job; used by the manager's thread only, hence without
        # the lock.
        self._cached_records: dict[str, tuple[_Version, RunRecord]] = {}
        self._growing_costs: dict[str, JobCost] = {}
        self._costs_at = 0.0

    @property
    def manager(self) -> RunManager:
        """Returns the running manager."""
        return self._manager.get()

    def _new_manager(self) -> RunManager:
        from pai_sdk._data.run.watch.manager import RunManager

        # A new manager has read nothing: it needs all records.
        self._cached_records = {}
        manager = RunManager(
            records=self._records,
            refresh_s=self.pace.refresh_s,
            memory_bytes=_POINTS_BYTES,
            threads=_THREADS,
            opener=self._open,
        )
        return manager.start()

    def finished_at(self, run_id: str | None) -> float:
        """Returns the monotonic time at which the job of a run finished; minus infinity if it has not."""
        return self._jobs.finish_times.of(run_id and run_id.partition("/")[0])

    def visible_to(self, principal: Principal) -> JobRuns:
        """Returns the source of the runs that a user can see; it is cached while their rights are unchanged."""
        # An administrator sees all runs, and shares the manager of the service.
        if principal.view_key == self._principal.view_key or principal.has_right("admin"):
            return self
        with self._lock:
            runs = self._by_user.get(principal.user)
            if runs is None or runs._principal.view_key != principal.view_key:
                runs = JobRuns(
                    self._jobs, self._logs, self._folder, self._store, self._settings, self._queue, principal
                )
                self._by_user[principal.user] = runs
                self._to_close.add(runs)
        return runs

    def close(self) -> None:
        """Stops all managers."""
        self._manager.close()
        # Closed outside of the lock: a manager may wait 5 s for its thread.
        with self._lock:
            children = [*self._to_close]
        for child in children:
            child.close()

    @property
    def is_closing(self) -> bool:
        """Returns True if the service is shutting down."""
        return self._jobs.changes.closed

    def log(self, run_id: str, instance: str | None) -> LogReader:
        """Opens the log of a job; raises WireError if there is no such job or instance."""
        return self._logs.open(self._job(run_id), instance)

    def files(self, run_id: str) -> Mapping[str, Store]:
        """Returns the output channels of a job, local or published, and its logs."""
        job, sandbox = self._job(run_id), self._sandbox(run_id)
        stores: dict[str, Store] = {}
        for name, uri in output_uris(job.request).items():
            if uri.startswith("oss://"):
                stores[name] = BucketStore(self._store, OssUri.parse(uri).as_dir())
                if name == _MODEL:
                    trace = BucketStore(self._store, OssUri.parse(f"{uri.rstrip('/')}/{_TRACE}/"))
                    if next(trace.list(), None) is not None:
                        stores.setdefault(_TRACE, trace)
        # Local folders are not published yet, so they replace the published ones. A trace without its own channel
        # is in the channel of the model.
        stores |= folders_in(sandbox.output_dir(_MODEL), sandbox.root, only=[_TRACE])
        stores |= folders_in(sandbox.ml / "output", sandbox.root)
        if sandbox.logs_dir.is_dir():
            stores["logs"] = LocalStore(sandbox.logs_dir, links="inside")
        return dict(sorted(stores.items()))

    def queue_positions(self, run_ids: Collection[str]) -> Mapping[str, tuple[int, str]]:
        """Returns the positions of waiting jobs in the queues of their owners, and why they wait."""
        with self._jobs.database.read() as session:
            waiting = queue_positions(session, self._principal)
        # The queue can have ten thousand jobs more.
        jobs = [waiting[run_id] for run_id in run_ids if run_id in waiting]
        return {job.id: (job.position, self._queue.reason(job).text) for job in jobs}

    def marks(self, run_id: str) -> Sequence[RunMark]:
        """Returns the statuses, events and checkpoints of a job."""
        job = self._job(run_id)
        marks = [RunMark("status", change.status, change.started_at) for change in job.transitions]
        with self._jobs.database.read() as session:
            events = session.scalars(select(Event).where(Event.job_id == run_id).order_by(Event.number))
            marks += [RunMark("event", event.text, event.happened_at) for event in events]
        local = Path(RunLayout(str(self._sandbox(run_id).ml / "output")).checkpoints)
        # A local folder is not published yet, or not completely.
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
        """Opens the folder of a record: the local one, or the published one."""
        if uri.startswith("oss://"):
            return BucketStore(self._store, OssUri.parse(uri))
        # A job can put any link into its folder.
        store = LocalStore(self._event_folder(uri.removeprefix(SERVICE_FOLDER)), links="inside")
        store.uri = f"{uri}/"  # users see URIs in rows, filters and errors, hence no path of this machine
        return store

    def _records(self) -> list[RunRecord]:
        """Returns the record of each run; reads only the jobs whose version has changed."""
        self._update_costs()
        visible = select(Job.id, Job.version).where(visible_jobs(self._principal))
        with self._jobs.database.read() as session:
            # Stars do not change the version. The manager of administrators is shared: it has all stars.
            starred = stars(session, None if self._principal.has_right("admin") else self._principal.user)
            versions = {row.id: (row.version, starred.get(row.id, ())) for row in session.execute(visible)}
            changed = [run_id for run_id, version in versions.items() if self._version_of(run_id) != version]
            for start in range(0, len(changed), _JOBS_PER_QUERY):
                batch = changed[start : start + _JOBS_PER_QUERY]
                annotations, prices = annotation_rows(session, batch), price_rows(session, batch)
                for job in session.scalars(select(Job).where(Job.id.in_(batch))):
                    starred_by = versions[job.id][1]
                    record = self._record(job, annotations.get(job.id), starred_by, prices.get(job.id))
                    self._cached_records[job.id] = ((job.version, starred_by), record)
        self._cached_records = {
            run_id: entry for run_id, entry in self._cached_records.items() if run_id in versions
        }
        return [record for _, record in self._cached_records.values()]

    def _update_costs(self) -> None:
        """Updates the costs of running jobs, all at the same times: pages read their lists again after each."""
        now = time.time() // self.pace.cost_s * self.pace.cost_s
        if now == self._costs_at:
            return
        self._costs_at = now
        records = self._cached_records
        self._growing_costs = {run_id: cost for run_id, cost in self._growing_costs.items() if run_id in records}
        for run_id, cost in self._growing_costs.items():
            version, record = records[run_id]
            records[run_id] = version, replace(record, cost=cost.at(now))

    def _version_of(self, run_id: str) -> _Version | None:
        return self._cached_records[run_id][0] if run_id in self._cached_records else None

    def _record(
        self, job: Job, annotations: JobAnnotation | None, starred_by: tuple[str, ...], price: JobPrice | None
    ) -> RunRecord:
        cost = None if price is None else cost_of(job, price)
        self._growing_costs.pop(job.id, None)
        if cost is not None and cost.since is not None:
            self._growing_costs[job.id] = cost
        # A job that has not started has no files: this avoids scans of the folders of thousands of queued jobs.
        has_files = job.started_at is not None
        is_published = has_files and JobStatus(job.status).is_terminal and not self._event_folder(job.id).is_dir()
        return RunRecord(
            job.id,
            status=job.status,
            name=job.name,
            labels=dlc_labels(job) | {label.key: label.value for label in job.labels},
            hparams=hyperparameters_of(job),
            created_at=job.created_at,
            ended_at=job.ended_at,
            uri=((_published(job, "tensorboard") if is_published else None) or f"{SERVICE_FOLDER}{job.id}")
            if has_files
            else "",
            owner=job.owner,
            started_at=job.started_at,
            instance_type=instance_type_of(job.request),
            instance_count=job.instance_count,
            cause=_cause(job),
            sub_status="" if JobStatus(job.status).is_terminal else job.reason_code or "",
            annotations=_annotations(annotations, starred_by),
            cost=None if cost is None else cost.at(time.time()),
            currency="" if cost is None else cost.currency,
        )

    def _job(self, run_id: str) -> Job:
        self._jobs.require_visible(run_id, self._principal)
        return self._jobs.get(run_id)

    def _event_folder(self, job_id: str) -> Path:
        return Path(RunLayout(str(self._sandbox(job_id).ml / "output")).tensorboard)

    def _sandbox(self, job_id: str) -> Sandbox:
        return Sandbox(self._folder.job_dir(job_id))


def _cause(job: Job) -> str:
    """Returns in one line why a job has failed; an empty string for another job."""
    if not JobStatus(job.status).is_failure:
        return ""
    text = (job.cause or job.reason_message or job.reason_code or "").strip().partition("\n")[0]
    return text if len(text) <= _MAX_CAUSE else f"{text[: _MAX_CAUSE - 1]}…"


def _annotations(row: JobAnnotation | None, starred_by: tuple[str, ...]) -> RunAnnotations:
    if row is None:
        return RunAnnotations(starred_by=starred_by) if starred_by else NOT_ANNOTATED
    return RunAnnotations(tuple(row.tags), row.note, row.archived, starred_by)


def _published(job: Job, channel: str) -> str | None:
    """Returns the URI to which an output channel of a job is published; None if it has no such channel."""
    uri = output_uris(job.request).get(channel)
    return uri if uri is not None and uri.startswith("oss://") else None
