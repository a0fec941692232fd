"""The process that sends the outputs of a local job to OSS, while the job runs and at its end.

It is detached from the process that submitted the job, and goes on when all clients have ended. It holds the lock
`uploader.lock` in the job's folder; a process that looks at a running job without an uploader starts another one.
It gets the key by a pipe, and never writes it down. If the key expires, the next look at the job sends the rest.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import is_locked, locked
from pai_sdk.errors import NotFoundError, PaiError

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["ensure_uploading", "main"]

logger = logging.getLogger(__name__)

_LOOK_S = 1.0
_TRIES_AT_THE_END = 10
_LOCK = "uploader.lock"
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from pai_sdk.backend.local.uploading import main; main()"


def ensure_uploading(data_dir: Path, sandbox: Sandbox, client: OssClient, interval_s: float) -> None:
    """Start the process, unless it runs.

    Args:
        data_dir: the folder of the local backend.
        sandbox: the job's folder.
        client: has the endpoint and the key.
        interval_s: how often the live outputs are sent.
    """
    arguments = {
        "data_dir": str(data_dir),
        "job_id": sandbox.root.name,
        "interval_s": interval_s,
        "oss": client.arguments(),
    }
    package_parent = str(Path(__file__).resolve().parents[3])
    log_file = sandbox.state_dir / "uploader.log"
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, package_parent],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    with process.stdin:
        process.stdin.write(json.dumps(arguments).encode())
    # It may end before this process: a thread reaps it, or it would stay a zombie.
    threading.Thread(target=process.wait, name="pai-uploader-reaper", daemon=True).start()


def is_uploading(sandbox: Sandbox) -> bool:
    """Whether the process of a job runs."""
    return is_locked(sandbox.state_dir / _LOCK)


def main() -> None:
    """The process: the arguments come by the standard input."""
    arguments = json.load(sys.stdin)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    lock = Path(arguments["data_dir"], "jobs", arguments["job_id"], "state", _LOCK)
    try:
        with locked(lock, waits=False) as is_ours:
            if is_ours:
                _send(arguments)
    except (NotFoundError, FileNotFoundError):
        return  # the job was deleted


def _send(arguments: dict[str, Any]) -> None:
    from pai_sdk.backend.local.backend import LocalBackend
    from pai_sdk.storage.oss import OssClient

    client = OssClient.of_arguments(arguments["oss"])
    job_id, interval_s = arguments["job_id"], arguments["interval_s"]
    backend = LocalBackend(Path(arguments["data_dir"]), files=lambda: client)
    next_at = time.monotonic() + interval_s
    while not _has_ended(backend, job_id):
        if time.monotonic() >= next_at:
            problems = backend.send_live_outputs(job_id)
            if problems:
                logger.warning("not all outputs could be sent so far: %s", problems)
            next_at = time.monotonic() + interval_s
        time.sleep(min(interval_s, _LOOK_S))
    for _ in range(_TRIES_AT_THE_END):
        backend.save_outputs(job_id, progress=False)
        if backend.has_saved_outputs(job_id):
            return
        time.sleep(interval_s)


def _has_ended(backend: Any, job_id: str) -> bool:
    try:
        return bool(backend.has_ended(job_id))
    except NotFoundError:
        raise
    except PaiError as error:  # the engine is being restarted, say
        logger.warning("the state of %s cannot be read now: %s", job_id, error)
        return False
