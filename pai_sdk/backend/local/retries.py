"""Another attempt at local jobs that were interrupted. The process that looks at a job when it is due begins it.

    running --ends--> waiting --due: the end is noted, the folder renewed--> absent --> running
                         +------ a stop ------> ended

A process that begins an attempt holds the lock with which jobs are submitted. If it is killed, the next look finds
the noted end, and does the rest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pai_sdk.backend.local.jobs import LocalJobs
from pai_sdk.errors import PaiError
from pai_sdk.execution.base import ExecutionState, Executor
from pai_sdk.schemas.job_retries import JobRetries

__all__ = ["LocalRetries"]

logger = logging.getLogger(__name__)

_AGAIN_AFTER_FAULT_S = 5.0


class LocalRetries:
    """Begins other attempts. Safe to use from several threads, and from several processes.

    Args:
        jobs: all local jobs.
        executor: runs them.
        start: starts the job of an id whose folder is filled.
    """

    def __init__(self, jobs: LocalJobs, executor: Executor, start: Callable[[str], None]) -> None:
        self._jobs = jobs
        self._executor = executor
        self._start = start
        self._not_before: dict[str, float] = {}  # of jobs for which this process has just failed

    def begin_if_due(self, job_id: str, state: ExecutionState) -> None:
        """Begin the next attempt at a job that waits for it, unless it is too early, or another process does.

        Args:
            job_id: the job.
            state: by `LocalJobs.state`: that of a job that waits.
        """
        sandbox = self._jobs.sandbox(job_id)
        since_end_s = time.time() - (state.ended_at or 0.0)
        # Before its end: the clock was set back, and would make it wait for as long.
        if 0 <= since_end_s < JobRetries.wait_s(sandbox.attempt):
            return
        if time.monotonic() < self._not_before.get(job_id, 0.0):
            return
        with self._jobs.beginning_again(job_id) as is_ours:
            if not is_ours:
                return
            try:
                self._begin(job_id)
            except (PaiError, OSError) as error:
                self._not_before[job_id] = time.monotonic() + _AGAIN_AFTER_FAULT_S
                logger.warning("%s: the next attempt could not begin, and is tried again: %s", job_id, error)

    def _begin(self, job_id: str) -> None:
        sandbox = self._jobs.sandbox(job_id)
        state = self._executor.state(sandbox.root)
        if state.phase not in ("ended", "absent"):
            return  # another process has just begun it
        with self._jobs.changing(job_id) as facts:
            if facts.get("stopped_at"):
                return
            noted = facts.setdefault("attempts", [])
            if state.phase == "ended" and len(noted) < sandbox.attempt:
                noted.append(
                    {
                        "started_at": state.started_at,
                        "ended_at": state.ended_at,
                        "reason_code": state.reason_code,
                        "reason_message": state.reason_message,
                    }
                )
            following = len(noted) + 1
        if sandbox.attempt < following and not self._executor.renew(sandbox.root, attempt=following):
            return
        self._executor.withdraw(sandbox.root)  # a process was killed while it began the attempt
        self._start(job_id)
        logger.info("%s: attempt %d has begun", job_id, following)
        if self._jobs.facts(job_id).get("stopped_at"):  # while it was started, there was nothing to be stopped
            self._jobs.stop(job_id, self._executor)
