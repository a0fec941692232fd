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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._client.backend.local.jobs import LocalJob, LocalJobs, oss_outputs
from pai_sdk._client.backend.local.support import file_path
from pai_sdk._client.backend.local.watching import LatestMetrics, MetricFiles
from pai_sdk._core.files import is_locked, locked
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.output_uploader import OutputUploader
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
        self, jobs: LocalJobs, executor: DockerExecutor, client: Callable[[str], OssClient], metrics: LatestMetrics
    ) -> None:
        self._jobs = jobs
        self._executor = executor
        # By job: each uses the object storage of the service with which it was submitted.
        self._client = client
        # Writes the metrics of the logs into the outputs before an upload.
        self._metrics = metrics
        self._next_start_at: dict[str, float] = {}

    def uploader(self, job_id: str, *, progress: bool) -> OutputUploader:
        """Creates the uploader of a job."""
        uris = oss_outputs(self._jobs.request(job_id))
        targets = {channel: partial(self._open, job_id, uri) for channel, uri in uris.items()}
        files = self._executor.files(self._jobs.sandbox(job_id).root)
        return OutputUploader(files, targets, options={"progress": progress, "title": "uploading"})

    def ensure_uploading(self, job_id: str, interval_s: float) -> None:
        """Starts the process that uploads the live outputs of an unfinished job, unless it runs."""
        if time.monotonic() < self._next_start_at.get(job_id, 0.0):
            return
        # The process needs some time until it has its lock; and one that fails at once must not be started in a
        # loop.
        self._next_start_at[job_id] = time.monotonic() + max(_STARTS_WITHIN_S, interval_s)
        if not self.uploader(job_id, progress=False).has_live_channels:
            # No output is uploaded while the job runs: never checked again.
            self._next_start_at[job_id] = math.inf
        elif not any(is_locked(self._jobs.sandbox(job_id).root / name) for name in (_LOG, _EARLIER_LOCK)):
            try:
                self._start_process(job_id, interval_s)
            except (PaiError, OSError) as error:  # outputs are also saved after the job
                logger.warning("%s: its outputs cannot be sent while it runs: %s", job_id, error)

    def metric_files(self, job_id: str) -> MetricFiles:
        """Returns the files with the metrics of a job."""
        request = self._jobs.request(job_id)
        uris = {output.name: output.output_uri or "" for output in request.output_channels}
        outputs = {channel: file_path(uri) for channel, uri in uris.items() if uri.startswith("file:")}
        return MetricFiles(self._jobs.sandbox(job_id), job_id, request, outputs)

    def send_live(self, job_id: str) -> str:
        """Uploads the live outputs of a running job; returns the errors as a string."""
        self._metrics.write(job_id, partial(self.metric_files, job_id), is_final=False)
        with self._jobs.step_lock(job_id):
            return self.uploader(job_id, progress=False).upload(live_only=True)

    def are_saved(self, job_id: str) -> bool:
        """Returns True if all outputs of a finished job are saved."""
        return bool(self._jobs.metadata(job_id).get("synced"))

    def save(self, job_id: str, *, progress: bool = True) -> None:
        """Saves the outputs of a finished job, once; the next query retries files that could not be saved."""
        if self.are_saved(job_id) or not oss_outputs(self._jobs.request(job_id)):
            return  # without OSS outputs no state is written: the disk may be full
        self._metrics.write(job_id, partial(self.metric_files, job_id), is_final=True)
        with self._jobs.step_lock(job_id):
            if self.are_saved(job_id):  # by the process that held the lock before
                return
            upload = partial(self.uploader(job_id, progress=progress).upload, live_only=False)
            job = LocalJob(self._jobs, job_id, save_outputs=upload)
            JobLife(self._executor, job).finish(self._jobs.state(job_id, self._executor))

    def _open(self, job_id: str, uri: str) -> Store:
        return open_store(uri, client=self._client(job_id))

    def _start_process(self, job_id: str, interval_s: float) -> None:
        arguments = {
            "jobs": str(self._jobs.folder),
            "job_id": job_id,
            "interval_s": interval_s,
            "oss": self._client(job_id).arguments(),
        }
        log_file = self._jobs.sandbox(job_id).root / _LOG
        descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
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
        # Two clients can start a process at once: the second one exits.
        with locked(Path(arguments["jobs"], arguments["job_id"], _LOG), waits=False) as has_lock:
            if has_lock:
                _send(arguments)
    except (NotFoundError, FileNotFoundError):
        return  # the job was deleted


def _send(arguments: dict[str, Any]) -> None:
    from pai_sdk._data.storage.oss.client import OssClient  # loads oss2

    client = OssClient.of_arguments(arguments["oss"])
    jobs, executor = LocalJobs(Path(arguments["jobs"])), DockerExecutor()
    outputs = LocalOutputs(jobs, executor, lambda job_id: client, LatestMetrics())
    job_id, interval_s = arguments["job_id"], arguments["interval_s"]
    next_at = time.monotonic() + interval_s
    while not _has_ended(jobs, executor, job_id):
        if time.monotonic() >= next_at:
            problems = outputs.send_live(job_id)
            if problems:
                logger.warning("not all outputs could be sent so far: %s", problems)
            next_at = time.monotonic() + interval_s
        time.sleep(min(interval_s, _POLL_INTERVAL_S))
    # No query may follow for a long time, so the process tries several times.
    for _ in range(_FINAL_TRIES):
        outputs.save(job_id, progress=False)
        if outputs.are_saved(job_id):
            return
        time.sleep(interval_s)


def _has_ended(jobs: LocalJobs, executor: DockerExecutor, job_id: str) -> bool:
    try:
        return jobs.state(job_id, executor).phase == "ended"
    except NotFoundError:
        raise
    except PaiError as error:  # for example while the engine is restarted
        logger.warning("the state of %s cannot be read now: %s", job_id, error)
        return False
