"""The runs of pipelines whose steps are jobs of the service, with their stored state if it can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import aliased

from pai_sdk._data.pipelines.records import FOLDER_LABEL, PIPELINE_LABEL, RUN_LABEL, STEP_LABEL, RunRecords
from pai_sdk._data.pipelines.rows import run_detail, run_row
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stores.local import LocalStore, path_of_file_uri
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.visibility import visible_jobs
from pai_sdk._service.oss.bucket_store import BucketStore
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.state.models import Job, JobLabel
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import InvalidInputError, PaiError, RunNotFoundError

_MAX_RUNS = 200
_MAX_JOBS = 5000  # of a run
_MAX_STORED = 100  # runs whose state a list reads from storage
_MAX_STATE_BYTES = 16 << 20  # of a run in storage: any user with access to the bucket can write it
_MAX_STEP_FILES = 5000

_STEP_STATUSES = {"success": "succeeded", "failure": "failed", "stopped": "stopped"}


class JobPipelines:
    """Reads the runs of pipelines that a user can see, for one request.

    A run is visible if jobs of its steps are. Its stored state is read if the user may read the bucket.
    """

    def __init__(self, context: ServiceContext, store: ObjectStore, principal: Principal, work: Work) -> None:
        self._context = context
        self._store = store
        self._principal = principal
        self._work = work

    def rows(self) -> list[dict[str, Any]]:
        """Returns the newest runs, the newest first."""
        label = aliased(JobLabel)
        newest = (
            select(Job.owner, label.value)
            .join(label, (label.job_id == Job.id) & (label.key == RUN_LABEL))
            .where(visible_jobs(self._principal))
            .group_by(Job.owner, label.value)
            .order_by(func.max(Job.number).desc())
            .limit(_MAX_RUNS)
        )
        with self._context.jobs.database.read() as session:
            keys = [(row.owner, row.value) for row in session.execute(newest)]
        rows = []
        for number, (owner, run_id) in enumerate(keys):
            self._work.check()
            jobs = self._jobs(run_id, owner)
            records = self._records(run_id, jobs) if number < _MAX_STORED else None
            row = None
            if records is not None:
                with suppress(PaiError):
                    row = {**run_row(run_id, records), "is_stored": True}
            if row is None and jobs:
                row = {**_row_of(run_id, jobs), "steps": len(_last_attempts(jobs))}
            if row is not None:
                rows.append(row)
        return sorted(rows, key=lambda row: float(row["created_at"]), reverse=True)

    def detail(self, run_id: str) -> Mapping[str, Any]:
        """Returns a run with its steps, and its picture if its state is stored; raises `RunNotFoundError`."""
        jobs = self._jobs(run_id) if "\0" not in run_id else ()  # a NUL is an error in PostgreSQL
        if not jobs:
            raise RunNotFoundError(f"there is no run {run_id[:200]!r} with jobs that you can see", run_id=run_id)
        records = self._records(run_id, jobs)
        if records is not None:
            with suppress(PaiError):
                return {**run_detail(run_id, records), "is_stored": True}
        return {
            **_row_of(run_id, jobs),
            "parameters": {},
            "steps": [_step_of(job) for job in _last_attempts(jobs)],
            "svg": "",
        }

    def _jobs(self, run_id: str, owner: str | None = None) -> Sequence[Row[Any]]:
        """Returns the jobs of a run, the oldest first; without `owner`, those of the user or else of one owner."""
        run, step, pipeline, folder = (aliased(JobLabel) for _ in range(4))
        query = select(
            *(Job.id, Job.owner, Job.status, Job.reason_message, Job.created_at, Job.started_at, Job.ended_at),
            *(step.value.label("step"), pipeline.value.label("pipeline"), folder.value.label("folder")),
        ).join(run, (run.job_id == Job.id) & (run.key == RUN_LABEL) & (run.value == run_id))
        for label, key in ((step, STEP_LABEL), (pipeline, PIPELINE_LABEL), (folder, FOLDER_LABEL)):
            query = query.outerjoin(label, (label.job_id == Job.id) & (label.key == key))
        query = query.where(visible_jobs(self._principal))
        if owner is not None:
            query = query.where(Job.owner == owner)
        # Users choose labels: a job of another user with the same id of a run is not part of it.
        order = (Job.owner != self._principal.user, Job.owner, Job.number)
        with self._context.jobs.database.read() as session:
            jobs = session.execute(query.order_by(*order).limit(_MAX_JOBS)).all()
        return [*next((group for _, group in groupby(jobs, attrgetter("owner"))), ())]

    def _records(self, run_id: str, jobs: Sequence[Row[Any]]) -> RunRecords | None:
        """Returns the stored state that the jobs name; None if the user or the service cannot read it."""
        folder = next((job.folder for job in reversed(jobs) if job.folder), "")
        try:
            store = self._open(folder)
            if store is None:
                return None
            sizes = [store.head("run.json").size_bytes, *(file.size_bytes for file in store.list("steps/"))]
            if sum(sizes) > _MAX_STATE_BYTES or len(sizes) > _MAX_STEP_FILES:
                return None
            records = RunRecords(store)
            return records if records.read_run().run_id == run_id else None
        except (PaiError, OSError):  # it was deleted, or is the folder of another program
            return None

    def _open(self, folder: str) -> Store | None:
        if folder.startswith("oss://"):
            with suppress(InvalidInputError):
                uri = OssUri.parse(folder)
                if self._context.bucket_rights.is_allowed(self._principal, uri.bucket, "read"):
                    # An external store that does not respond is tried again, until the budget of the request ends.
                    return BucketStore(self._store, uri, check_cancelled=self._work.check)
        elif folder.startswith("file:") and self._context.settings.embedded:
            # An embedded service is a process of its only user.
            return LocalStore(path_of_file_uri(folder), links="inside")
        return None


def _last_attempts(jobs: Sequence[Row[Any]]) -> list[Row[Any]]:
    """Returns the last job of each step."""
    return [*{job.step or job.id: job for job in jobs}.values()]


def _status_of(job: Row[Any]) -> str:
    status = JobStatus(job.status)
    return _STEP_STATUSES.get(status.kind) or ("waiting" if job.started_at is None else "running")


def _row_of(run_id: str, jobs: Sequence[Row[Any]]) -> dict[str, Any]:
    """Returns the row of a run whose state is known by its jobs only."""
    statuses = {_status_of(job) for job in _last_attempts(jobs)}
    is_running = not statuses.isdisjoint(("running", "waiting"))
    status = next((name for name in ("failed", "stopped") if name in statuses), "succeeded")
    return {
        "id": run_id,
        "pipeline": next((job.pipeline for job in jobs if job.pipeline), run_id),
        "status": "running" if is_running else status,
        "created_at": jobs[0].created_at,
        "ended_at": None if is_running else max(job.ended_at or job.created_at for job in jobs),
        "is_stored": False,
    }


def _step_of(job: Row[Any]) -> dict[str, Any]:
    status = _status_of(job)
    return {
        "name": job.step or job.id,
        "status": status,
        "job_id": job.id,
        "reason": "",
        "error": (job.reason_message or "")[:2000] if status == "failed" else "",
        "started_at": job.started_at,
        "ended_at": job.ended_at,
    }
