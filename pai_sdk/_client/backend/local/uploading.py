"""Uploads the outputs of local jobs to OSS: a process while the job runs, and the first query after its end.

The process is detached from the submitting one, and continues after all clients have exited. It locks its log,
`uploader.log` in the job's folder; a query of a running job without an uploader starts another one. It receives
the key through a pipe, and never stores it. If the key expires, the next query of the job uploads the remaining
files.

A process that uploads files holds the lock of the job: the uploader and the query after the end exclude each
other, and the second one uploads only the remaining files.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._client.backend.local.jobs import LocalJob, LocalJobs
from pai_sdk._client.backend.local.watching import LatestMetrics, metric_files
from pai_sdk._core.files import is_locked, locked
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.output_uploader import LIVE_CHANNELS, OutputUploader
from pai_sdk._host.lifecycle import JobLife
from pai_sdk.errors import NotFoundError, PaiError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

__all__ = ["LocalOutputs", "main"]

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 1.0
_STARTS_WITHIN_S = 5.0
_FINAL_TRIES = 10
_LOG = "uploader.log"
_EARLIER_LOCK = "uploader.lock"  # of uploaders that an earlier release has started
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from pai_sdk._client.backend.local.uploading import main; main()"
)


class LocalOutputs:
    """The outputs of local jobs in OSS. Safe for several threads and processes."""

    def __init__(
        self, executor: DockerExecutor, client: Callable[[LocalJob], OssClient], metrics: LatestMetrics
    ) -> None:
        self._executor = executor
        # By job: each uses the object storage of the service with which it was submitted.
        self._client = client
        # Writes the metrics of the logs into the outputs before an upload.
        self._metrics = metrics
        self._next_start_at: dict[str, float] = {}

    def ensure_uploading(self, job: LocalJob, interval_s: float) -> None:
        """Starts the process that uploads the live outputs of an unfinished job, unless it runs."""
        if time.monotonic() < self._next_start_at.get(job.id, 0.0):
            return
        # The process needs some time until it has its lock; and one that fails at once must not be started in a
        # loop.
        self._next_start_at[job.id] = time.monotonic() + max(_STARTS_WITHIN_S, interval_s)
        if LIVE_CHANNELS.isdisjoint(job.oss_outputs):
            # No output is uploaded while the job runs: never checked again.
            self._next_start_at[job.id] = math.inf
        elif not any(is_locked(job.root / name) for name in (_LOG, _EARLIER_LOCK)):
            try:
                self._start_process(job, interval_s)
            except (PaiError, OSError) as error:  # outputs are also saved after the job
                logger.warning("%s: its outputs cannot be sent while it runs: %s", job.id, error)

    def send_live(self, job: LocalJob) -> str:
        """Uploads the live outputs of a running job; returns the errors as a string."""
        self._metrics.write(job.id, partial(metric_files, job), is_final=False)
        with job.step_lock():
            return self._upload(job, live_only=True, progress=False)

    def save(self, job: LocalJob, *, progress: bool = True) -> bool:
        """Saves the outputs of a finished job, once; returns False if the next query has to retry some files."""
        if job.are_outputs_saved or not job.oss_outputs:
            return True  # without OSS outputs no state is written: the disk may be full
        self._metrics.write(job.id, partial(metric_files, job), is_final=True)
        with job.step_lock():
            if not job.are_outputs_saved:  # by the process that held the lock before
                upload = partial(self._upload, job, live_only=False, progress=progress)
                life = JobLife(self._executor, replace(job, save_outputs=upload))
                life.finish(job.state(self._executor))
        return job.are_outputs_saved

    def _upload(self, job: LocalJob, *, live_only: bool, progress: bool) -> str:
        targets = {channel: partial(self._open, job, uri) for channel, uri in job.oss_outputs.items()}
        options = {"progress": progress, "title": "uploading"}
        files = self._executor.files(job.root)
        return OutputUploader(files, targets, options=options).upload(live_only=live_only)

    def _open(self, job: LocalJob, uri: str) -> Store:
        return open_store(uri, client=self._client(job))

    def _start_process(self, job: LocalJob, interval_s: float) -> None:
        arguments = {
            "jobs": str(job.root.parent),
            "job_id": job.id,
            "interval_s": interval_s,
            "oss": self._client(job).arguments(),
        }
        descriptor = os.open(job.root / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(Path(__file__).resolve().parents[4])],
                # The current folder of the client may be unmounted or deleted while the process runs.
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Not killed by Ctrl-C in the terminal of the client.
                start_new_session=True,
            )
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        with process.stdin:
            # Through a pipe: arguments and variables of a process can be read by others.
            process.stdin.write(json.dumps(arguments).encode())
        # It may exit before this process: without wait() it would stay a zombie.
        threading.Thread(target=process.wait, name="pai-uploader-reaper", daemon=True).start()


def main() -> None:
    """Runs the uploader process; reads its arguments from standard input."""
    arguments = json.load(sys.stdin)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    try:
        job = LocalJobs(Path(arguments["jobs"])).get(arguments["job_id"])
        # Two clients can start a process at once: the second one exits.
        with locked(job.root / _LOG, waits=False) as has_lock:
            if has_lock:
                _send(job, arguments["interval_s"], arguments["oss"])
    except (NotFoundError, FileNotFoundError):
        return  # the job was deleted


def _send(job: LocalJob, interval_s: float, oss: dict[str, Any]) -> None:
    from pai_sdk._data.storage.oss.client import OssClient  # loads oss2

    client, executor = OssClient.of_arguments(oss), DockerExecutor()
    outputs = LocalOutputs(executor, lambda job: client, LatestMetrics())
    next_at = time.monotonic() + interval_s
    while not _has_ended(job, executor):
        if time.monotonic() >= next_at:
            problems = outputs.send_live(job)
            if problems:
                logger.warning("not all outputs could be sent so far: %s", problems)
            next_at = time.monotonic() + interval_s
        time.sleep(min(interval_s, _POLL_INTERVAL_S))
    # No query may follow for a long time, so the process tries several times.
    for _ in range(_FINAL_TRIES):
        if outputs.save(job, progress=False):
            return
        time.sleep(interval_s)


def _has_ended(job: LocalJob, executor: DockerExecutor) -> bool:
    try:
        return job.state(executor).phase == "ended"
    except NotFoundError:
        raise
    except PaiError as error:  # for example while the engine is restarted
        logger.warning("the state of %s cannot be read now: %s", job.id, error)
        return False
