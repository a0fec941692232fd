"""The attempts of a job: a tunnel ends with the one that it has entered, and the job may run again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from pai_sdk._client.tunnel.opening import JobTunnel, reason_of
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import JobError, PaiError, TunnelClosedError

_ENDS = ("JobEnded", "JobNotRunning", "SessionUnknown")
_NOT_YET = ("JobNotRunning", "InstanceNotReady", "NotReady")
_STATUS_S, _STATUS_POLL_S = 3.0, 0.2  # for the status after the end of the processes
_REENTER_POLL_S = 1.0
_NOT_ENTERED_S = 120.0  # of a job that runs; the outputs of an attempt are saved before the next one


class Attempt:
    """One attempt of a job, which tunnels enter."""

    def __init__(self, get_record: Callable[[], JobRecord], record: JobRecord) -> None:
        self._get_record = get_record
        self._number = _number_of(record)

    def explain(self, error: Exception) -> Exception:
        """Returns why a tunnel has ended: by the end of this attempt, if another one follows."""
        code = getattr(error, "code", "")
        if not isinstance(error, JobError) and code not in _ENDS:
            return error
        deadline = time.monotonic() + _STATUS_S
        with suppress(PaiError):
            while not (record := self._get_record()).status.is_terminal:
                if self._has_ended(record):
                    return self._error(record)
                # The server of the tunnel alone was started again, or the outputs are being saved for long.
                if code == "SessionUnknown" or time.monotonic() > deadline:
                    break
                time.sleep(_STATUS_POLL_S)
        return error

    def enter_next(
        self, error: PaiError, connect: Callable[[JobRecord], JobTunnel], is_closed: threading.Event
    ) -> JobTunnel:
        """Returns a tunnel into the attempt that follows, once that runs.

        Raises:
            PaiError: `error`, if it is that of another end, or if the job has finished.
        """
        reason = reason_of(error)
        if not isinstance(reason, JobError) and getattr(reason, "code", "") not in ("AttemptEnded", *_ENDS):
            raise reason
        deadline = time.monotonic() + _NOT_ENTERED_S
        while not is_closed.wait(_REENTER_POLL_S):
            try:
                record = self._get_record()
                if record.status.is_terminal:
                    raise reason
                if record.status == JobStatus.RUNNING:
                    return connect(record)
                deadline = time.monotonic() + _NOT_ENTERED_S
            except PaiError as failure:
                may_pass = failure.may_pass or getattr(failure, "code", "") in _NOT_YET
                # One instance may have ended without the others.
                if failure is reason or not may_pass or time.monotonic() > deadline:
                    raise
        raise reason

    def _has_ended(self, record: JobRecord) -> bool:
        return record.status != JobStatus.RUNNING or _number_of(record) > self._number

    def _error(self, record: JobRecord) -> TunnelClosedError:
        runs = "runs" if record.status == JobStatus.RUNNING else "follows"
        message = (
            f"attempt {self._number} of job {record.training_job_id} has ended, and attempt {self._number + 1} "
            f"{runs}: enter the job again"
        )
        return TunnelClosedError("AttemptEnded", message)


def _number_of(record: JobRecord) -> int:
    return max(1, sum(each.status == JobStatus.RUNNING for each in record.status_transitions))
