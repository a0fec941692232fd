"""The commands about jobs: ps, wait, stop, delete, prune, download, events."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk._client.display.base import Silent, duration_text, elapsed_s
from pai_sdk._client.display.choice import choose_display
from pai_sdk._client.display.commands import attach_lines
from pai_sdk._client.display.live_table import TerminalJobs
from pai_sdk._client.display.terminal import TerminalDisplay
from pai_sdk._client.job.gather import Gathering
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.session import get_default_session
from pai_sdk._core.tables.table import Column, Table
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk._wire.pai.wire import seconds_of
from pai_sdk.cli import exit_codes
from pai_sdk.cli.options import Api, Json, LabelFilter, duration_s, seconds
from pai_sdk.cli.selection.backend import selected_backend
from pai_sdk.cli.selection.job_names import JobId, find_job
from pai_sdk.cli.selection.many_jobs import JobFilter, JobIds, Name, Status, Yes, ask, confirm, each, selected_jobs
from pai_sdk.cli.tables import print_error, print_json, print_table, table_console
from pai_sdk.errors import (
    EngineNotFoundError,
    InvalidInputError,
    JobFailed,
    JobsFailed,
    JobStopped,
    NotFoundError,
    ObjectNotFoundError,
    Problem,
    WaitTimeoutError,
)

if TYPE_CHECKING:
    from rich.text import Text


_POLL_INTERVAL_S = 2.0
_DEFAULT_LIMIT = 20
_COLOURS = {exit_codes.SUCCEEDED: "green", exit_codes.FAILED: "red", exit_codes.STOPPED: "yellow"}
# Lists of jobs in Python have columns of their own: `_job_table` in `_client/display/job_listing.py`.
_PS_COLUMNS = (
    Column("JOB"),
    Column("NAME", wraps=True),
    Column("STATUS"),
    Column("TIME", align="right"),
    Column("CREATED (UTC)", drop=1),
)


def ps(
    status: Status = None,
    name: Name = None,
    label: LabelFilter = None,
    api: Api = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=1, help="The maximum number of jobs: 20 by default, no limit with -q and --json."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the ids, one per line.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Print the list again on each change, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List jobs, the newest first.

    Example: pai-sdk ps --status Running,Failed --label team=vision
    """
    job_filter = JobFilter.of(status, name, label)
    # A script must not miss jobs: `pai-sdk ps -q … | xargs pai-sdk stop`.
    max_jobs = limit or (None if (quiet or as_json) and not watch else _DEFAULT_LIMIT)

    def records() -> Iterator[JobRecord]:
        return (job.record for job in islice(job_filter.jobs(api), max_jobs and max_jobs + 1))

    def show(rows: Iterable[JobRecord]) -> None:
        if quiet or as_json:
            for record in islice(rows, max_jobs):
                typer.echo(record.training_job_id if quiet else json_of(record))
            return
        job_rows = [*rows]
        if not job_rows:
            typer.echo("no jobs")
            return
        print_table(Table(_PS_COLUMNS, [*map(_ps_row, job_rows[:max_jobs])]))
        if limit is None and len(job_rows) > _DEFAULT_LIMIT:
            typer.echo(f"there are more: these are the newest {_DEFAULT_LIMIT}; --limit 1000 shows more", err=True)

    if watch:
        _watch_list(records, show, only_changes=quiet or as_json)
    else:
        show(records())


def _watch_list(
    records: Callable[[], Iterable[JobRecord]], show: Callable[[Iterable[JobRecord]], None], *, only_changes: bool
) -> None:
    """Prints the jobs again after each change, until Ctrl-C; with `only_changes`, only the changed jobs."""
    last_statuses: dict[str, str] = {}

    def show_changes() -> None:
        nonlocal last_statuses
        current = [*records()]
        statuses = {record.training_job_id: str(record.status) for record in current}
        if only_changes:
            show([record for record in current if last_statuses.get(record.training_job_id) != record.status])
        elif table_console().is_terminal or statuses != last_statuses or not last_statuses:
            show(current)
        last_statuses = statuses

    repeat_display(show_changes, in_pipe=True)


def repeat_display(show: Callable[[], object], *, once: bool = False, in_pipe: bool = False) -> None:
    """Calls `show` every two seconds until it returns False, or Ctrl-C; in a file, only with `in_pipe`."""
    console = table_console()
    with suppress(KeyboardInterrupt):
        while True:
            if console.is_terminal and not once:
                console.clear()  # the display stays at the same position
            is_running = show() is not False
            sys.stdout.flush()
            if once or not is_running or not (console.is_terminal or in_pipe):
                return
            time.sleep(_POLL_INTERVAL_S)


def _ps_row(record: JobRecord) -> tuple[str | Text, ...]:
    return (
        record.training_job_id,
        record.training_job_name or "",
        status_text(record.status),
        duration_text(elapsed_s(record) or 0),
        time_text(record.gmt_create_time),
    )


def wait(
    job_ids: JobIds = None,
    status: Status = None,
    name: Name = None,
    label: LabelFilter = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", parser=seconds, help="Maximum time to wait, in seconds or as 30m, 2h."),
    ] = None,
    show_logs: Annotated[
        bool, typer.Option("--logs/--no-logs", help="Show the log while waiting; otherwise only status and time.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only the reason of a failure.")] = False,
    as_json: Json = False,
) -> None:
    """Wait until jobs finish; the exit code is that of their status: 0 succeeded, 100 failed, 103 stopped.

    Of several jobs, a table is shown, and no log; the exit code is 0 if all of them succeeded.

    Example: pai-sdk wait --label sweep=lr --timeout 2h
    """
    jobs = selected_jobs(job_ids, JobFilter.of(status, name, label))
    if not jobs:
        raise NotFoundError("no job matches", code="TrainingJobNotFound", status_code=404)
    is_silent = as_json or quiet
    try:
        if len(jobs) > 1:
            # Without the log stdout stays empty, for scripts.
            table = None if show_logs or is_silent else TerminalJobs(sys.stderr)
            waiting = Gathering(
                jobs, fail_fast=False, on_interrupt="detach", show=not is_silent, policy=None, display=table
            )
            waiting.wait(timeout)
        else:
            display = Silent() if is_silent else choose_display() if show_logs else TerminalDisplay(sys.stderr)
            jobs[0].wait(timeout, show_logs=show_logs and not is_silent, display=display)
    except (JobFailed, JobStopped, JobsFailed, WaitTimeoutError) as end:
        if not as_json:
            print_error(str(end))
    except KeyboardInterrupt as interrupt:
        ignore_further_interrupts()
        if len(jobs) > 1:
            print_error(str(interrupt))
        elif is_silent:  # a display has shown it already
            print_next_commands(jobs[0])
        raise typer.Exit(exit_codes.NOT_FINISHED) from None
    if as_json:
        for job in jobs:
            typer.echo(json_of(job.record))
    raise typer.Exit(exit_codes.of_statuses([job.record.status for job in jobs]))


def stop(
    job_ids: JobIds = None,
    status: Status = None,
    name: Name = None,
    label: LabelFilter = None,
    yes: Yes = False,
    and_wait: Annotated[bool, typer.Option("--wait", help="Wait until the jobs have stopped.")] = False,
    as_json: Json = False,
) -> None:
    """Stop the named jobs, or all that match --status, --name and --label. Finished jobs do not change.

    Named jobs are stopped at once. Jobs that match are listed first, and need a confirmation or --yes.

    Example: pai-sdk stop --status Running --label team=vision --yes
    """
    jobs = selected_jobs(job_ids, JobFilter.of(status, name, label))
    if not job_ids:
        jobs = [job for job in jobs if not job.record.status.is_terminal]
        if jobs:
            confirm("Stop", jobs, yes=yes)
        elif not as_json:
            typer.echo("no running job matches")
    num_jobs = len(jobs)
    jobs = each(jobs, _request_stop)
    if len(each(jobs, partial(_print_stopped, and_wait=and_wait, as_json=as_json))) < num_jobs:
        raise typer.Exit(exit_codes.ERROR)


def _request_stop(job: TrainingJob) -> None:
    if not job.record.status.is_terminal:
        job.stop()


def _print_stopped(job: TrainingJob, *, and_wait: bool, as_json: bool) -> None:
    if and_wait and not job.record.status.is_terminal:
        _wait_quietly(job)
    record = job.refresh()
    if as_json:
        typer.echo(json_of(record))
    elif record.status.is_terminal:
        typer.echo(f"{job.id} {record.status}")
    else:
        typer.echo(f"{job.id} is being stopped")


def delete(
    job_ids: JobIds = None,
    status: Status = None,
    name: Name = None,
    label: LabelFilter = None,
    yes: Yes = False,
) -> None:
    """Delete finished jobs with their logs and metrics. Outputs are kept.

    Deletes the named jobs, or all that match --status, --name and --label. They are listed first, and need a
    confirmation or --yes.

    Example: pai-sdk delete --status Failed,Terminated
    """
    jobs = selected_jobs(job_ids, JobFilter.of(status, name, label))
    if not job_ids:
        jobs = [job for job in jobs if job.record.status.is_terminal]
        if not jobs:
            typer.echo("no finished job matches")
            return
    confirm("Delete", jobs, yes=yes)

    def delete_job(job: TrainingJob) -> None:
        job.delete()
        typer.echo(f"deleted {job.id}")

    if len(each(jobs, delete_job)) < len(jobs):
        raise typer.Exit(exit_codes.ERROR)


def download(
    job_id: JobId,
    channel: Annotated[
        str | None, typer.Argument(help="One output: model, checkpoints, …; all by default.")
    ] = None,
    target: Annotated[
        Path | None,
        typer.Argument(help="The local folder; by default, it has the name of the output or of the job."),
    ] = None,
) -> None:
    """Download the outputs of a job, or one of them.

    Example: pai-sdk download train129f212o89d model ./model
    """
    job = find_job(job_id)
    if channel is not None:
        typer.echo(f"{channel}: {job.download(channel, target or Path(channel))}")
        return
    folder = target or Path(job.id)
    num_downloaded = 0
    for name in job.outputs:
        try:
            typer.echo(f"{name}: {job.download(name, folder / name)}")
            num_downloaded += 1
        except ObjectNotFoundError:
            typer.echo(f"{name}: empty")
    if not num_downloaded:
        raise ObjectNotFoundError(f"the outputs of job {job.id} are empty", uri="")


def events(job_id: JobId, as_json: Json = False) -> None:
    """Show what happened to a job, the oldest first.

    Example: pai-sdk events train129f212o89d
    """
    job_events = find_job(job_id).events()
    for event in job_events:
        if as_json:
            print_json({"job": job_id, "event": event})
        else:
            typer.echo(visible_text(event))
    if not job_events and not as_json:
        typer.echo("no events")


def waiting_reason(job_id: JobId, as_json: Json = False) -> None:
    """Show why a job has not started: its position in the queue, what it waits for, and since when.

    Example: pai-sdk why train129f212o89d
    """
    job = find_job(job_id)
    reason = job.waiting_reason()
    if as_json:
        print_json({"job": job_id, "waits": reason is not None, **(asdict(reason) if reason else {})})
    else:
        typer.echo(visible_text(str(reason)) if reason else f"{job_id} is not waiting: it is {job.status}")


def _wait_quietly(job: TrainingJob) -> None:
    try:
        job.wait(show_logs=False)
    except (JobFailed, JobStopped):
        return  # the status is printed next


# ---- shared with the other commands about jobs


def status_text(status: JobStatus) -> Text:
    """Formats a status in its colour."""
    from rich.text import Text

    return Text(visible_text(status), style=_COLOURS.get(exit_codes.of_status(status), "cyan"))


def time_text(time: str | None) -> str:
    """Formats a time of the wire: `2026-11-21 05:11:11` for `2026-11-21T05:11:11.589Z`."""
    return (time or "").replace("T", " ").rstrip("Z").partition(".")[0]


def ignore_further_interrupts() -> None:
    """Ignores further Ctrl-C: the command is exiting, and Python would print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def print_next_commands(job: TrainingJob) -> None:
    """Prints that a job is still running, the commands to follow and stop it, and its page."""
    typer.echo(f"\n{job.id} is still running. To follow or stop it:", err=True)
    for line in attach_lines(job.record):
        typer.echo(f"  {visible_text(line)}", err=True)


def json_of(record: JobRecord) -> str:
    """Formats a job as one line of JSON, with masked environment variables and secrets."""
    return json.dumps(masked_record(record), ensure_ascii=False, separators=(",", ":"))


def masked_record(record: JobRecord) -> dict[str, Any]:
    """Returns the fields of a job by their wire names, with masked secrets."""
    return public_fields(record.model_dump(mode="json", by_alias=True, exclude_none=True))


def prune(
    service: Annotated[
        bool,
        typer.Option("--service", help="Jobs of the service, with their logs and metrics, instead of local jobs."),
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(help="For jobs of a service: only those finished longer ago: 12h, 30m, 0; 7d by default."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="For jobs of a service: only those with this text in their name.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="For jobs of a service: show what would be removed.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove finished local jobs, or with --service those of the service. Outputs are kept.

    Example: pai-sdk prune --service --older-than 30d
    """
    if service or (selected_backend().is_explicit and not selected_backend().local):
        _prune_service(
            duration_s("7d" if older_than is None else older_than, "--older-than"), name, dry_run=dry_run, yes=yes
        )
        return

    service_options = {"--older-than": older_than, "--name": name, "--dry-run": dry_run or None}
    for option, value in service_options.items():  # ignoring an option would remove all local jobs
        if value is not None:
            raise typer.BadParameter("is only for jobs of a service: add --service", param_hint=option)
    try:
        removed = get_default_session(local=True).local.prune()
    except EngineNotFoundError as error:
        if selected_backend().local:
            raise
        problem = "removes jobs in Docker on this machine, where no Docker engine responds"
        hint = "pai-sdk prune --service removes jobs of the service"
        raise InvalidInputError([Problem("prune", problem, hint)]) from error
    typer.echo("nothing to remove" if not removed else f"removed {len(removed)}: {', '.join(removed)}")


def _prune_service(older_than_s: float, name: str | None, *, dry_run: bool, yes: bool) -> None:
    before = time.time() - older_than_s
    jobs = [job for job in TrainingJob.list(name=name) if _ended_before(job.record, before)]
    if not jobs:
        typer.echo("nothing to remove")
        return
    if dry_run:
        for job in jobs:
            typer.echo(f"would remove {job.id}  {job.name}  {job.record.status}")
        return
    if not yes:
        ask(f"Delete {len(jobs)} finished jobs with their logs and metrics?")
    removed = 0
    for job in jobs:
        try:
            job.delete()
            removed += 1
        except NotFoundError:  # another process has deleted it
            continue
    typer.echo(
        f"removed {removed} job; its outputs are kept"
        if removed == 1
        else f"removed {removed} jobs; their outputs are kept"
    )


def _ended_before(record: JobRecord, before: float) -> bool:
    ended_s = seconds_of(record.gmt_modified_time or record.gmt_create_time)
    # Without a time of its end, it is not deleted.
    return record.status.is_terminal and ended_s is not None and ended_s < before
