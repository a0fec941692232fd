"""The process that uploads the outputs of a local job to OSS while the job runs, and after its end.

It is detached from the submitting process, and continues after all clients have exited. It locks its log; a poll
of a running job without an uploader starts another one. It receives the key through a pipe, and never stores it.
If the key expires, the next poll of the job uploads the remaining files.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from pai_sdk._client.backend.local.jobs import LocalJob, LocalJobs
from pai_sdk._client.backend.local.steps import UPLOADER_LOG, LocalSteps
from pai_sdk._client.backend.local.watching import LatestMetrics
from pai_sdk._core.files import locked
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk.errors import NotFoundError, PaiError

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 1.0
_FINAL_TRIES = 10


def main() -> None:
    """Runs the uploader process; reads its arguments from standard input."""
    arguments = json.load(sys.stdin)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    try:
        job = LocalJobs(Path(arguments["jobs"]), DockerExecutor()).get(arguments["job_id"])
        # Two clients can start a process at once: the second one exits.
        with locked(job.root / UPLOADER_LOG, waits=False) as has_lock:
            if has_lock:
                _send(job, arguments["interval_s"], arguments["oss"])
    except (NotFoundError, FileNotFoundError):
        return  # the job was deleted


def _send(job: LocalJob, interval_s: float, oss: dict[str, Any]) -> None:
    from pai_sdk._data.storage.oss.client import OssClient  # loads oss2

    client = OssClient.of_arguments(oss)
    steps = LocalSteps(lambda job: client, LatestMetrics())
    next_at = time.monotonic() + interval_s
    while not _has_ended(job):
        if time.monotonic() >= next_at:
            problems = steps.send_live(job)
            if problems:
                logger.warning("some outputs are not uploaded yet: %s", problems)
            next_at = time.monotonic() + interval_s
        time.sleep(min(interval_s, _POLL_INTERVAL_S))
    # No query may follow for a long time, so the process tries several times.
    for _ in range(_FINAL_TRIES):
        if steps.save(job, progress=False):
            return
        time.sleep(interval_s)


def _has_ended(job: LocalJob) -> bool:
    try:
        return job.state().phase == "ended"
    except NotFoundError:
        raise
    except PaiError as error:  # for example while the engine is restarted
        logger.warning("the state of %s cannot be read now: %s", job.id, error)
        return False
