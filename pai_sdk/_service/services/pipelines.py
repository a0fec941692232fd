"""The runs of pipelines whose steps are jobs of the service, with their stored state if it can be read."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import aliased

from pai_sdk._data.pipelines.records import (
    FOLDER_LABEL,
    PIPELINE_LABEL,
    RUN_LABEL,
    STEP_LABEL,
    PipelineRunRecord,
    RunRecords,
)
from pai_sdk._data.pipelines.rows import run_detail, run_row
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
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
_MAX_JOBS = 10_000  # in a list, or of a run
_MAX_STORED = 100  # runs whose state a list reads from storage
_MAX_READ_S = 3.0  # then, the further rows are those of the jobs: an external store may be slow
_MAX_STATE_BYTES = 16 << 20  # of a run in storage: any user with access to the bucket can write it
_MAX_STEP_FILES = 5000

_RUN, _STEP, _PIPELINE, _FOLDER = (aliased(JobLabel) for _ in range(4))
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
        newest = (
            select(Job.owner, _RUN.value)
            .join(_RUN, (_RUN.job_id == Job.id) & (_RUN.key == RUN_LABEL))
            .where(visible_jobs(self._principal))
            .group_by(Job.owner, _RUN.value)
            .order_by(func.max(Job.number).desc())
            .limit(_MAX_RUNS)
        )
        with self._context.jobs.database.read() as session:
            keys = [(row.owner, row.value) for row in session.execute(newest)]
        jobs_of = self._jobs({run_id for _, run_id in keys})
        rows, ends_at = [], time.monotonic() + _MAX_READ_S
        for number, (owner, run_id) in enumerate(keys):
            self._work.check()
            jobs = jobs_of.get((owner, run_id), [])
            is_read = number < _MAX_STORED and time.monotonic() < ends_at
            stored = self._stored(run_id, jobs) if is_read else None
            if stored is not None:
                rows.append({**run_row(run_id, *stored), "is_stored": True})
            elif jobs:
                rows.append({**_row_of(run_id, jobs), "steps": len(_last_attempts(jobs))})
        return sorted(rows, key=lambda row: float(row["created_at"]), reverse=True)

    def detail(self, run_id: str) -> Mapping[str, Any]:
        """Returns a run with its steps, and its picture if its state is stored; raises `RunNotFoundError`."""
        runs = self._jobs({run_id}) if "\0" not in run_id else {}  # a NUL is an error in PostgreSQL
        # Users choose labels: a job of another user with the same id of a run is not part of it.
        jobs = runs.get((self._principal.user, run_id)) or next(iter(runs.values()), [])
        if not jobs:
            raise RunNotFoundError(f"there is no run {run_id[:200]!r} with jobs that you can see", run_id=run_id)
        stored = self._stored(run_id, jobs)
        if stored is not None and _are_small(stored[0].store.list("steps/")):
            with suppress(PaiError):
                return {**run_detail(run_id, *stored), "is_stored": True}
        return {
            **_row_of(run_id, jobs),
            "parameters": {},
            "steps": [_step_of(job) for job in _last_attempts(jobs)],
            "svg": "",
        }

    def _jobs(self, run_ids: Collection[str]) -> Mapping[tuple[str, str], Sequence[Row[Any]]]:
        """Returns the jobs of runs, the oldest first, by owner and id of the run."""
        query: Any = select(
            *(Job.id, Job.owner, Job.status, Job.reason_message, Job.created_at, Job.started_at, Job.ended_at),
            *(_RUN.value.label("run_id"), _STEP.value.label("step")),
            *(_PIPELINE.value.label("pipeline"), _FOLDER.value.label("folder")),
        ).join(_RUN, (_RUN.job_id == Job.id) & (_RUN.key == RUN_LABEL) & _RUN.value.in_(run_ids))
        for label, key in ((_STEP, STEP_LABEL), (_PIPELINE, PIPELINE_LABEL), (_FOLDER, FOLDER_LABEL)):
            query = query.outerjoin(label, (label.job_id == Job.id) & (label.key == key))
        query = query.where(visible_jobs(self._principal)).order_by(Job.number.desc()).limit(_MAX_JOBS)
        jobs: dict[tuple[str, str], list[Row[Any]]] = {}
        with self._context.jobs.database.read() as session:
            for job in reversed(session.execute(query).all()):
                jobs.setdefault((job.owner, job.run_id), []).append(job)
        return jobs

    def _stored(self, run_id: str, jobs: Sequence[Row[Any]]) -> tuple[RunRecords, PipelineRunRecord] | None:
        """Returns the stored state that the jobs name; None if the user or the service cannot read it."""
        folder = next((job.folder for job in reversed(jobs) if job.folder), "")
        try:
            store = self._open(folder)
            if store is None or not _are_small([store.head("run.json")]):
                return None
            records = RunRecords(store)
            run = records.read_run()
            return (records, run) if run.run_id == run_id else None
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


def _are_small(files: Iterable[StoredFile]) -> bool:
    sizes = [file.size_bytes for file in islice(files, _MAX_STEP_FILES + 1)]
    return len(sizes) <= _MAX_STEP_FILES and sum(sizes) <= _MAX_STATE_BYTES


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
