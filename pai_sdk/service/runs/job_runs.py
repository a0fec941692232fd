"""The runs of a service: its jobs, with what their instances have written on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.log_times import LogTimes
from pai_sdk.run.layout import RunLayout
from pai_sdk.run.records import RunRecord
from pai_sdk.service.jobs.job_table import Jobs
from pai_sdk.service.jobs.log_reader import JobLogReader
from pai_sdk.service.jobs.merged_log import MergedLog
from pai_sdk.service.runs.kept_manager import KeptManager
from pai_sdk.service.runs.run_answers import AnswerCache
from pai_sdk.service.runs.run_log import LogPart, RunLog
from pai_sdk.service.runs.run_source import RunMark, checkpoint_marks
from pai_sdk.service.state.folder import DataFolder
from pai_sdk.service.state.models import Event, Job
from pai_sdk.storage.local_store import LocalStore

if TYPE_CHECKING:
    from pai_sdk.run.manager import RunManager

__all__ = ["JobRuns"]

_POINTS_BYTES = 48 << 20  # of curves that are looked at; those of other runs are read again when they are
_THREADS = 2
_REFRESH_S = 0.5
_JOBS_A_QUERY = 500


class JobRuns:
    """The runs of all jobs of a service.

    Args:
        jobs: the jobs.
        logs: their logs.
        folder: of the service.
        longest_stream_s: see `RunSource`.
    """

    def __init__(self, jobs: Jobs, logs: JobLogReader, folder: DataFolder, *, longest_stream_s: float) -> None:
        self.answers = AnswerCache()
        self.longest_stream_s = longest_stream_s
        self._jobs = jobs
        self._logs = logs
        self._folder = folder
        self._manager = KeptManager(self._new_manager)
        # The last record of each job, and the version of the job; used by the manager's thread only.
        self._known: dict[str, tuple[int, RunRecord]] = {}

    @property
    def manager(self) -> RunManager:
        """The manager, started."""
        return self._manager.get()

    def _new_manager(self) -> RunManager:
        from pai_sdk.run.manager import RunManager

        manager = RunManager(
            records=self._records,
            refresh_s=_REFRESH_S,
            memory_bytes=_POINTS_BYTES,
            threads=_THREADS,
            opener=lambda uri: LocalStore(uri, links="inside"),  # a job can put any link into its folder
        )
        return manager.start()

    def close(self) -> None:
        """Stop the manager, if it was started."""
        self._manager.close()

    @property
    def is_closing(self) -> bool:
        """Whether the service ends."""
        return self._jobs.changes.closed

    def log(self, run_id: str, instance: str | None) -> RunLog:
        """The log of a job.

        Raises:
            Fault: there is no such job, or it has no such instance.
        """
        opened = self._logs.open(self._jobs.get(run_id), instance)
        sandbox = self._sandbox(run_id)
        merged = opened.log if isinstance(opened.log, MergedLog) else None
        indexes = opened.log.logs if isinstance(opened.log, MergedLog) else [opened.log]
        parts = [
            LogPart(name, index, partial(LogTimes.read, sandbox.times_file(name)))
            for name, index in zip(opened.names, indexes, strict=True)
        ]
        return RunLog(parts, merged, is_open=opened.is_open)

    def marks(self, run_id: str) -> Sequence[RunMark]:
        """The statuses and events of a job, and its checkpoints.

        Raises:
            Fault: there is no such job.
        """
        job = self._jobs.get(run_id)
        marks = [RunMark("status", change.status, change.started_at) for change in job.transitions]
        with self._jobs.database.read() as session:
            events = session.scalars(select(Event).where(Event.job_id == run_id).order_by(Event.number))
            marks += [RunMark("event", event.text, event.happened_at) for event in events]
        folder = RunLayout(str(self._sandbox(run_id).ml / "output")).checkpoints
        return [*marks, *checkpoint_marks(Path(folder))]

    def _records(self) -> list[RunRecord]:
        """What the job table says of each run; only jobs that have changed are read in full."""
        with self._jobs.database.read() as session:
            versions = {row.id: row.version for row in session.execute(select(Job.id, Job.version))}
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
        given = job.request.get("HyperParameters") or []
        return RunRecord(
            job.id,
            status=job.status,
            name=job.name,
            labels={label.key: label.value for label in job.labels},
            hparams={one["Name"]: one.get("Value") for one in given if isinstance(one, dict) and "Name" in one},
            created_at=job.created_at,
            ended_at=job.ended_at,
            uri=RunLayout(str(self._sandbox(job.id).ml / "output")).tensorboard,
        )

    def _sandbox(self, job_id: str) -> Sandbox:
        return Sandbox(self._folder.job_dir(job_id))
