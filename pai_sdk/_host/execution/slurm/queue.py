"""Slurm's view of the service's jobs: polled once for all jobs, in the background, and only on demand."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.slurm.commands import SlurmAway, SlurmRefused, run
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)

_PREFIX = "pai-"
_NUMBER = re.compile("[0-9]+([_+].*)?")
_STATE = re.compile("[A-Z][A-Z_]*")
_FIELDS = ("JobID", "State", "PreemptTime", "Reason", "Name", "WorkDir")
_PENDING_STATES = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
# A state in neither list belongs to an unfinished job: RUNNING, COMPLETING, SUSPENDED, STOPPED, SIGNALING,
# STAGE_OUT, RESIZING, and states of other Slurm releases.
_FINISHED_STATES = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)


@dataclass(frozen=True)
class QueuedJob:
    """One Slurm job: `number`, `state` and `reason` are Slurm's, `job_id` is the service's."""

    number: str
    state: str
    is_preempted: bool  # it has to make room for another job
    reason: str
    job_id: str
    root: Path
    attempt: int = 1  # at the service's job, from 1

    @property
    def is_finished(self) -> bool:
        """Returns whether it has no running process, as far as Slurm knows."""
        return self.state in _FINISHED_STATES

    @property
    def is_pending(self) -> bool:
        """Returns whether it waits for nodes."""
        return self.state in _PENDING_STATES


def slurm_job_name(job_id: str, attempt: int) -> str:
    """Returns the name of the Slurm job for an attempt at a job."""
    return f"{_PREFIX}{job_id}" if attempt == 1 else f"{_PREFIX}{job_id}.{attempt}"


def list_entries(*, root: Path | None = None) -> list[QueuedJob]:
    """Asks Slurm for this service's jobs; with `root`, for the last attempt at the job in that folder.

    Slurm forgets a job some minutes after its end. Raises SlurmAway if it does not respond or its output cannot be
    parsed, and SlurmRefused if it refuses the query.
    """
    fields = ",".join(f"{name}:|" for name in _FIELDS)
    name_filter = [] if root is None else [f"--name={slurm_job_name(root.name, Sandbox(root).attempt)}"]
    printed = run(
        ["squeue", "--noheader", "--states=all", f"--user={os.geteuid()}", *name_filter, f"--Format={fields}"]
    )
    queued = []
    for line in printed.splitlines():
        parts = line.split("|", len(_FIELDS) - 1)
        # Another job of this user: an array, or a job with an arbitrary name.
        if f"|{_PREFIX}" not in line:
            continue
        if len(parts) != len(_FIELDS) or not (_NUMBER.fullmatch(parts[0]) and _STATE.fullmatch(parts[1])):
            raise SlurmAway(f"the output of squeue cannot be parsed: {line[:200]!r}")
        number, state, preempted, reason, name, folder = parts
        # Other numbers are tasks of the user's own arrays.
        if name.startswith(_PREFIX) and number.isdecimal():
            job_root = Path(folder.rstrip().removesuffix("|"))
            if root is not None and job_root != root:
                continue
            has_time = preempted.strip() not in ("", "N/A", "None", "Unknown")
            job_id, _, attempt = name.removeprefix(_PREFIX).partition(".")
            count = int(attempt) if attempt.isdecimal() else 1
            queued.append(QueuedJob(number, state, has_time, reason, job_id, job_root, count))
    return queued


class SlurmQueue:
    """The last response of Slurm. It is polled in the background, at most every `interval_s`; no caller waits.

    `_lock` guards the fields that the worker thread writes: the jobs, the response count and the poll time.
    """

    def __init__(self, *, interval_s: float = 2.0) -> None:
        self._interval_s = interval_s
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="slurm")
        self._lock = threading.Lock()
        self._refreshing: Future[None] | None = None
        self._refreshed_at = 0.0
        self._num_responses = 0
        # By folder and not by id: a service that was restored from a backup has jobs with the same ids.
        self._jobs_by_root: dict[Path, list[QueuedJob]] = {}
        # The number of responses when a job was last present, or first asked for.
        self._last_response_with: dict[Path, int] = {}
        self._problem = ""

    def close(self) -> None:
        """Stops polling."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def find(self, root: Path) -> list[QueuedJob] | None:
        """Returns the Slurm jobs of the last attempt, unfinished ones first; empty if lost, None if unknown."""
        with self._lock:
            self._refresh_if_due()
            attempt = Sandbox(root).attempt
            queued = [entry for entry in self._jobs_by_root.get(root, ()) if entry.attempt == attempt]
            if queued:
                self._last_response_with[root] = self._num_responses
                return sorted(queued, key=lambda entry: (entry.is_finished, -int(entry.number)))
            # Lost: two responses in a row, both requested after the first call for it, lacked the job.
            # The first response may be older than the job, and the next one may have been requested before it.
            return (
                []
                if self._num_responses - self._last_response_with.setdefault(root, self._num_responses) > 2
                else None
            )

    def forget(self, root: Path) -> None:
        """Forgets a job: it has ended, or gets a new Slurm job."""
        with self._lock:
            self._last_response_with.pop(root, None)
            self._jobs_by_root.pop(root, None)

    def cancel(self, root: Path) -> None:
        """Cancels the Slurm jobs of the job in a folder, in the background."""
        self._worker.submit(_cancel_quietly, root)

    def _refresh_if_due(self) -> None:
        is_refreshing = self._refreshing is not None and not self._refreshing.done()
        if not is_refreshing and time.monotonic() - self._refreshed_at >= self._interval_s:
            self._refreshed_at = time.monotonic()
            self._refreshing = self._worker.submit(self._refresh)

    def _refresh(self) -> None:
        try:
            queued = list_entries()
        except PaiError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                logger.warning("Slurm does not respond; jobs are left as they are: %s", error)
            return
        if self._problem:
            self._problem = ""
            logger.info("Slurm responds again")
        jobs_by_root: dict[Path, list[QueuedJob]] = {}
        for entry in queued:
            jobs_by_root.setdefault(entry.root, []).append(entry)
        with self._lock:
            self._jobs_by_root = jobs_by_root
            # The interval counts from the end of a response, which may be slow.
            self._num_responses += 1
            self._refreshed_at = time.monotonic()


def cancel(entry: QueuedJob, *, should_kill: bool = False) -> None:
    """Cancels a Slurm job; with `should_kill`, without a grace period. SlurmAway: the outcome is unknown."""
    # The name is checked too: a controller that has lost its state reuses job numbers. `entry` must be fresh.
    target = [f"--name={slurm_job_name(entry.job_id, entry.attempt)}", entry.number]
    # Pending, so there is nothing to kill; or just ended.
    with suppress(SlurmRefused):
        # Only the steps: with --full, Slurm 22.05 cancels the job, and kills after its KillWait.
        if should_kill:
            run(["scancel", "--signal=KILL", *target])
    with suppress(SlurmRefused):
        run(["scancel", *target])


def _cancel_quietly(root: Path) -> None:
    try:
        for entry in list_entries(root=root):
            if not entry.is_finished:
                cancel(entry)
    except PaiError as error:
        logger.warning("the Slurm job of %s could not be cancelled: %s", root.name, error)
