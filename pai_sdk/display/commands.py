"""The commands to go on with a job. Plain text, for every display."""

from __future__ import annotations

import shlex
import shutil
import sys
import sysconfig

from pai_sdk.schemas.record import JobRecord


def next_commands(record: JobRecord) -> list[str]:
    """The exact lines to type for the log, the status and the end of a job."""
    has_ended = record.status.is_terminal
    verbs = ["logs", "status"] if has_ended else ["logs -f", "status", "stop"]
    return [f"{_command()} {verb} {record.training_job_id}" for verb in verbs]


def list_command(*, local: bool) -> str:
    """The exact line to type for a list of all jobs.

    Args:
        local: of those in Docker on this machine.
    """
    return f"{_command()} ps{' --local' if local else ''}"


def _command() -> str:
    """What starts the command line here: its script may not be on PATH, or not have been installed."""
    if shutil.which("pai-sdk"):
        return "pai-sdk"
    script = shutil.which("pai-sdk", path=sysconfig.get_path("scripts"))
    return shlex.quote(script) if script else f"{shlex.quote(sys.executable)} -m pai_sdk"
