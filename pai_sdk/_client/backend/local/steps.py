"""The steps of local jobs. They have no daemon: the process that polls a job takes the next one.

    step      when                                    by
    start     on submission                           the submitter
    upload    every 30 s while the job runs           a detached process, see `uploading`
    save      after the end                           the first poll, or that process
    restart   when the next attempt is due            the first poll

A process holds the lock of the job while it takes a step. If it is killed, the next poll finds what it has
recorded, and continues from there.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pai_sdk._client.backend.local.jobs import LocalJob
from pai_sdk._client.backend.local.support import mounts_of
from pai_sdk._client.backend.local.watching import LatestMetrics
from pai_sdk._core.detached import start_detached
from pai_sdk._core.files import is_locked
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._host.execution.base import ExecutionState
from pai_sdk._host.execution.contract import launch_spec
from pai_sdk._host.execution.output_uploader import LIVE_CHANNELS, UPLOAD_INTERVAL_S, OutputUploader
from pai_sdk._host.staging import Staging
from pai_sdk._wire.pai.job_retries import JobRetries
from pai_sdk._wire.pai.secret_values import with_secrets
from pai_sdk.errors import PaiError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

logger = logging.getLogger(__name__)

UPLOADER_LOG = "uploader.log"
"""The log of the process that uploads live outputs, which locks it as long as it lives."""

_EARLIER_UPLOADER_LOCK = "uploader.lock"  # of uploaders that an earlier release has started
_UPLOADER_STARTS_WITHIN_S = 5.0


class LocalSteps:
    """Takes the steps of local jobs. Safe for several threads and processes."""

    def __init__(
        self,
        client: Callable[[LocalJob], OssClient],
        metrics: LatestMetrics,
        *,
        upload_interval_s: float = UPLOAD_INTERVAL_S,
    ) -> None:
        self.upload_interval_s = upload_interval_s
        self.first_retry_wait_s = JobRetries.first_wait_s
        self.error_pause_s = 5.0
        # By job: each uses the object storage of the service with which it was submitted.
        self._client = client
        # Writes the metrics of the logs into the outputs before an upload.
        self._metrics = metrics
        # By job, on the monotonic clock of this process.
        self._next_start_at: dict[str, float] = {}  # of an uploader
        self._not_before: dict[str, float] = {}  # of the next attempt, after an error

    def start(self, job: LocalJob, staging: Staging, *, progress: bool) -> None:
        """Stages and starts a new job, whose lock the caller holds."""
        launch = partial(self._launch, job, progress=progress)
        replace(job, stage=staging.fill, launch=launch).life.start()

    def advance(self, job: LocalJob, state: ExecutionState, *, can_wait: bool) -> None:
        """Takes the next step of a job in this state, if one is due, and if it is short or the caller can wait."""
        waits_for_attempt = state.phase == "absent" and bool(state.reason_code)
        if state.phase != "ended" and not waits_for_attempt:
            # Also before its containers start: the process that starts them may be killed right after it.
            self._ensure_uploading(job)
        elif can_wait:
            self._restart_if_due(job, state) if waits_for_attempt else self.save(job)

    def _launch(self, job: LocalJob, *, progress: bool = False) -> None:
        """Starts the containers of a job whose folder is complete."""
        # `request.json` has placeholders of secrets: their values come from the process that starts an attempt.
        request = job.request
        request = request.model_copy(update={"environments": with_secrets(request.environments)})
        spec = launch_spec(job.root, job.id, request, mounts=mounts_of(request))
        job.executor.start(spec, progress=progress)
        self._ensure_uploading(job)

    def _restart_if_due(self, job: LocalJob, state: ExecutionState) -> None:
        """Starts the next attempt of a waiting job, unless it is not due or another process does it."""
        since_end_s = time.time() - (state.ended_at or 0.0)
        # A negative time means that the clock was set back: waiting would take as long as the difference.
        retries = replace(job.retries, first_wait_s=self.first_retry_wait_s)
        if 0 <= since_end_s < retries.wait_s(job.sandbox.attempt):
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
                self._not_before[job.id] = time.monotonic() + self.error_pause_s
                logger.warning("%s: the next attempt could not start, retrying: %s", job.id, error)

    def _start_attempt(self, job: LocalJob) -> None:
        # Read again with the lock: another process may have started the attempt in the meantime.
        state = job.executor.state(job.root)
        if state.phase not in ("ended", "absent") or not job.record_exit(state):
            return
        if not replace(job, launch=partial(self._launch, job)).life.start():
            return
        logger.info("%s: attempt %d has begun", job.id, job.attempt)
        if job.stop_requested:  # stop() during the start had no containers to stop
            job.stop()

    def _ensure_uploading(self, job: LocalJob) -> None:
        """Starts the process that uploads the live outputs of an unfinished job, unless it runs."""
        if time.monotonic() < self._next_start_at.get(job.id, 0.0):
            return
        # The process needs some time until it has its lock; and one that fails at once must not be started in a
        # loop.
        self._next_start_at[job.id] = time.monotonic() + max(_UPLOADER_STARTS_WITHIN_S, self.upload_interval_s)
        if LIVE_CHANNELS.isdisjoint(job.oss_outputs) and not job.oss_mounts:
            # No output is uploaded while the job runs: never checked again.
            self._next_start_at[job.id] = math.inf
        elif not any(is_locked(job.root / name) for name in (UPLOADER_LOG, _EARLIER_UPLOADER_LOCK)):
            try:
                self._start_uploader(job)
            except (PaiError, OSError) as error:  # outputs are also saved after the job
                logger.warning("%s: its outputs cannot be sent while it runs: %s", job.id, error)

    def send_live(self, job: LocalJob) -> str:
        """Uploads the live outputs of a running job; returns the errors as a string."""
        self._metrics.write(job, is_final=False)
        with job.step_lock():
            return self._upload(job, live_only=True, progress=False)

    def save(self, job: LocalJob, *, progress: bool = True) -> bool:
        """Saves the outputs of a finished job, once; returns False if the next query has to retry some files."""
        if job.are_outputs_saved or not job.has_uploads:
            return True  # without OSS outputs no state is written: the disk may be full
        self._metrics.write(job, is_final=True)
        with job.step_lock():
            if not job.are_outputs_saved:  # by the process that held the lock before
                upload = partial(self._upload, job, live_only=False, progress=progress)
                replace(job, save_outputs=upload).life.finish(job.state())
        return job.are_outputs_saved

    def _upload(self, job: LocalJob, *, live_only: bool, progress: bool) -> str:
        targets = {channel: partial(self._open, job, uri) for channel, uri in job.oss_outputs.items()}
        options = {"progress": progress, "title": "uploading"}
        mounts = {
            number: partial(self._open, job, str(OssUri.parse(uri).as_dir()))
            for number, uri in job.oss_mounts.items()
        }
        return OutputUploader(job.files, targets, options=options, mounts=mounts).upload(live_only=live_only)

    def _open(self, job: LocalJob, uri: str) -> Store:
        return open_store(uri, client=self._client(job))

    def _start_uploader(self, job: LocalJob) -> None:
        arguments = {
            "jobs": str(job.root.parent),
            "job_id": job.id,
            "interval_s": self.upload_interval_s,
            "oss": self._client(job).arguments(),
        }
        log, content = job.root / UPLOADER_LOG, json.dumps(arguments).encode()
        start_detached("pai_sdk._client.backend.local.uploading", log=log, content=content)
