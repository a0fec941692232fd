"""The logs of the jobs of a service."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache

from pai_sdk._data.logs.reader import ALWAYS, InstanceLog, LogReader, LogWindow, OpenLog, OpenLogs
from pai_sdk._host.execution.base import JobFiles
from pai_sdk._host.execution.contract import instances
from pai_sdk._service.state.models import Job
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus

_MAX_OPEN_LOGS = 512


class JobLogReader:
    """Opens the logs of jobs. Thread-safe."""

    def __init__(self, files_of: Callable[[str], JobFiles]) -> None:
        self._files_of = files_of
        self._logs: OpenLogs[tuple[str, str]] = OpenLogs(_MAX_OPEN_LOGS)

    def open(self, job: Job, instance: str | None, window: LogWindow = ALWAYS) -> LogReader:
        """Opens the log of an instance, or of all instances, merged (None).

        Read the job before: the log of a job that was finished then is complete.
        """
        logs = self.instance_logs(job, instance)
        order = self._files_of(job.id).sandbox.logs_dir / "merged.order"
        key = (job.id, logs[0].name if len(logs) == 1 else "")
        log = self._logs.get(key, lambda: OpenLog(logs, order))
        if log.is_truncated:  # by its job, or removed by a user who needs room
            self._logs.forget(lambda other: other == key)
            log = self._logs.get(key, lambda: OpenLog(logs, order))
        return LogReader(
            log,
            is_open=not JobStatus(job.status).is_terminal,
            window=window,
            lifetime=LogWindow(job.created_at, job.ended_at),
        )

    def instance_logs(self, job: Job, instance: str | None) -> Sequence[InstanceLog]:
        """Returns the logs of one instance or of all, by rank; they may be empty."""
        names = instance_names(job)
        if instance is not None and instance not in names:
            raise WireError(
                404,
                "TRAINING_JOB_INSTANCE_NOT_FOUND",
                f"Job {job.id} has no instance {instance[:100]!r}; it has {', '.join(names[:5])}.",
            )
        files = self._files_of(job.id)
        return [files.log(name) for name in names if instance in (None, name)]

    def forget(self, job_id: str) -> None:
        """Closes the logs of a deleted job."""
        self._logs.forget(lambda key: key[0] == job_id)


def instance_names(job: Job) -> Sequence[str]:
    """Returns the names of the instances of a job, by rank."""
    return _names(job.id, json.dumps(job.request))


@lru_cache(maxsize=256)
def _names(job_id: str, request: str) -> tuple[str, ...]:
    """Returns the names of the instances of a job; cached, since each read of each instance's log needs them."""
    return tuple(each.name for each in instances(job_id, TrainingJobRequest.model_validate_json(request)))
