"""`dlc submit` and the older `dlc create job`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import typer

from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._wire.dlc.flags import FORMER_KINDS, FORMER_NAMES
from pai_sdk._wire.dlc.limits import MIN_POLL_S
from pai_sdk._wire.dlc.names import JOB_TYPES, job_type_for
from pai_sdk._wire.dlc.status import is_terminal
from pai_sdk.cli.dlc.body import new_job
from pai_sdk.cli.dlc.connection import DlcConnection, default_workspace
from pai_sdk.cli.dlc.creation import create_job
from pai_sdk.cli.dlc.flags import Arguments, read_job_file
from pai_sdk.cli.dlc.output import print_body, print_box
from pai_sdk.cli.tables import print_error
from pai_sdk.errors import Problem

SUCCEEDED = 0
FAILED = 1


def submit(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    """Submits a job; returns the exit code."""
    kind, *more = arguments.positionals or [""]
    job_type = _job_type(arguments, kind)
    arguments.problems += (Problem(word, "is not a flag", "quote values that have spaces") for word in more)
    return _submit(arguments, job_type, connect)


def create(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    """Submits a job that is described as the older generation did; returns the exit code."""
    if arguments.positionals != ["job"]:
        arguments.problems.append(Problem("create", "is of an older generation", "write: submit pytorchjob …"))
    kind = arguments.text("kind") or "PyTorchJob"
    job_type = _job_type(arguments, FORMER_KINDS.get(kind.lower(), kind))
    for old, new in FORMER_NAMES.items():
        if new and old in arguments:
            arguments.values.setdefault(new, []).extend(arguments.values.pop(old))
    new_spelling = f"submit {job_type.lower()} with --workers in place of --worker_count"
    print_error(f"warning: `create job` is of an older generation; write: {new_spelling}")
    return _submit(arguments, job_type, connect)


def _job_type(arguments: Arguments, kind: str) -> str:
    job_type = job_type_for(kind)
    if job_type is None:
        types = ", ".join(each.lower() for each in JOB_TYPES)
        problem = f"{kind!r} is not a type of job" if kind else "the type of the job is missing"
        arguments.problems.append(Problem("submit", problem, f"one of {types}"))
    return job_type or "PyTorchJob"


def _submit(arguments: Arguments, job_type: str, connect: Callable[[], DlcConnection]) -> int:
    if (file := arguments.text("job_file")) is not None:
        arguments.replace(read_job_file(Path(file).expanduser(), arguments.flags))
    stopped_code = arguments.number("exit_code_on_stopped")
    is_interactive = arguments.boolean("interactive")
    is_dry, as_json = arguments.boolean("dry_run"), arguments.text("output") == "json"
    # Mistakes are reported before the service is needed: the workspace of the settings adds none.
    new_job(arguments, job_type, workspace_id=None)
    arguments.check()
    connection = None if is_dry else connect()
    workspace_id = default_workspace() if connection is None else connection.workspace_id
    body, warnings = new_job(arguments, job_type, workspace_id=workspace_id)
    for warning in warnings:
        print_error(f"warning: {warning}")
    if connection is None or not as_json:
        print_body(body)
    if connection is None:
        return SUCCEEDED
    created = create_job(connection, body)
    job_id = created.job_id or ""
    if as_json:
        print_body(created.to_wire())
    else:
        print_box(created.to_wire())
    return follow(connection.jobs, job_id, stopped_code=stopped_code) if is_interactive else SUCCEEDED


def follow(
    jobs: DlcJobs, job_id: str, *, stopped_code: int | None, sleep: Callable[[float], None] | None = None
) -> int:
    """Prints each status of a job until it has ended; returns the exit code."""
    last = None
    try:
        while True:
            job = jobs.get(job_id)
            if job.status != last:
                last = job.status
                typer.echo(f"Job {job_id} is [{last}]")
            if is_terminal(last):
                break
            (sleep or time.sleep)(MIN_POLL_S)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the job continues; to stop it: pai-sdk dlc stop job {job_id}") from None
    if last == "Succeeded":
        return SUCCEEDED
    if last == "Stopped" and stopped_code is not None:
        return stopped_code
    reason = ": ".join(filter(None, (job.reason_code, job.reason_message)))
    if reason:
        print_error(f"Job {job_id} is [{last}]: {reason}")
    return FAILED
