"""The commands to follow, inspect and stop a job, and the address of its page, as plain text."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pai_sdk._wire.pai.record import JobRecord

_option: ContextVar[str] = ContextVar("place_option", default="")


@contextmanager
def commands_with_option(option: str) -> Iterator[None]:
    """Adds an option that selects the backend of the jobs, such as `--embedded`, to all commands in its block."""
    token = _option.set(option)
    try:
        yield
    finally:
        _option.reset(token)


def next_commands(record: JobRecord) -> list[str]:
    """Returns the commands for the log and the status of a job, and for its stop while it runs."""
    has_ended = record.status.is_terminal
    verbs = ["logs", "status"] if has_ended else ["logs -f", "status", "stop"]
    return [f"{_command()} {verb} {record.training_job_id} {_option.get()}".rstrip() for verb in verbs]


def page_url(record: JobRecord) -> str | None:
    """Returns the URL of a job's page, if its service has one."""
    url = record.training_job_url or ""
    # The service is not trusted: the page of a notebook would run a `javascript:` URL.
    return url if url.startswith(("https://", "http://")) else None


def attach_lines(record: JobRecord) -> list[str]:
    """Returns the commands to attach to a running job, and the URL of its page if it has one."""
    page = page_url(record)
    return [*next_commands(record), *([page] if page is not None else [])]


def list_command(option: str = "") -> str:
    """Returns the command that lists all jobs; `option` selects another backend."""
    return f"{_command()} ps {option or _option.get()}".rstrip()


def _command() -> str:
    """Returns the command that starts the CLI; its script may be missing on PATH."""
    if shutil.which("pai-sdk"):
        return "pai-sdk"
    is_this = shutil.which("python") == sys.executable
    return f"{'python' if is_this else shlex.quote(sys.executable)} -m pai_sdk"
