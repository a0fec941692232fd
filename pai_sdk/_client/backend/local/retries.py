"""Restarts interrupted local jobs. The first process that queries a job when its next attempt is due starts it.

    running --exit--> waiting --due: exit recorded, folder renewed--> absent --> running
                         +------ stop ------> ended

A process that starts an attempt holds the lock of the job. If it is killed, the next query finds the recorded
exit, and continues from there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pai_sdk._client.backend.local.jobs import LocalJob
from pai_sdk._host.execution.base import ExecutionState, Executor
from pai_sdk._host.lifecycle import JobLife
from pai_sdk._wire.pai.job_retries import JobRetries
from pai_sdk.errors import PaiError

__all__ = ["LocalRetries"]

logger = logging.getLogger(__name__)

_RETRY_AFTER_ERROR_S = 5.0


class LocalRetries:
    """Starts further attempts, by `launch`. Safe for several threads and processes."""

    def __init__(self, executor: Executor, launch: Callable[[LocalJob], None]) -> None:
        self._executor = executor
        self._launch = launch
        self._not_before: dict[str, float] = {}  # by job: next try of this process after an error

    def start_if_due(self, job: LocalJob, state: ExecutionState) -> None:
        """Starts the next attempt of a waiting job, unless it is not due or another process does it."""
        since_end_s = time.time() - (state.ended_at or 0.0)
        # A negative time means that the clock was set back: waiting would take as long as the difference.
        if 0 <= since_end_s < JobRetries.wait_s(job.sandbox.attempt):
            return
        if time.monotonic() < self._not_before.get(job.id, 0.0):
            return
        # Not waiting: the process that holds the lock starts the attempt.
        with job.step_lock(waits=False) as has_lock:
            if not has_lock:
                return
            try:
                self._start_attempt(job)
            except (PaiError, OSError) as error:
                self._not_before[job.id] = time.monotonic() + _RETRY_AFTER_ERROR_S
                logger.warning("%s: the next attempt could not begin, and is tried again: %s", job.id, error)

    def _start_attempt(self, job: LocalJob) -> None:
        # Read again with the lock: another process may have started the attempt in the meantime.
        state = self._executor.state(job.root)
        if state.phase not in ("ended", "absent") or not job.record_exit(state):
            return
        if not JobLife(self._executor, replace(job, launch=partial(self._launch, job))).start():
            return
        logger.info("%s: attempt %d has begun", job.id, job.attempt)
        if job.stop_requested:  # stop() during the start had no containers to stop
            job.stop(self._executor)
