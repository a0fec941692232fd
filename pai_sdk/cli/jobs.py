"""The commands about jobs: ps, logs, status, wait, stop."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from pai_sdk.cli import exit_codes
from pai_sdk.display.base import duration_text, elapsed_s, visible_text
from pai_sdk.display.commands import next_commands
from pai_sdk.display.lines import LogWriter
from pai_sdk.errors import JobFailed, JobStopped, PaiError, WaitTimeoutError
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.schemas.record import JobRecord

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["logs", "ps", "status", "stop", "wait"]

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, as `pai-sdk ps` shows it.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]

_WIDE = 1000
_COLOURS = {exit_codes.SUCCEEDED: "green", exit_codes.FAILED: "red", exit_codes.STOPPED: "yellow"}


def ps(
    status: Annotated[
        str | None, typer.Option(help="Only jobs in this status: Running, Succeed, Failed, Terminated, …")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs with this text in their name.")] = None,
    local: Annotated[bool, typer.Option("--local", help="Those in Docker on this machine.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to show.")] = 20,
    as_json: Json = False,
) -> None:
    """List jobs, the newest first."""
    records = [job.record for job in islice(TrainingJob.list(status=status, name=name, local=local), limit)]
    if as_json:
        for record in records:
            typer.echo(_json(record))
        return
    if not records:
        typer.echo("no jobs")
        return
    from rich.table import Table
    from rich.text import Text

    rows = [
        (
            record.training_job_id,
            record.training_job_name or "",
            record.status,
            duration_text(elapsed_s(record) or 0),
            _time_text(record.gmt_create_time),
        )
        for record in records
    ]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("JOB", "NAME", "STATUS", "TIME", "CREATED (UTC)"):
        # An id that is cut cannot be copied: in a narrow window it is the name that gives way.
        table.add_column(title, no_wrap=title != "NAME")
    for job_id, job_name, job_status, *rest in rows:
        colour = _COLOURS.get(exit_codes.of_status(job_status), "cyan")
        shown_name = Text(visible_text(job_name), no_wrap=True, overflow="ellipsis")
        table.add_row(job_id, shown_name, Text(job_status, style=colour), *rest)
    table_console().print(table)


def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    instance: Annotated[str | None, typer.Option(help="One instance: `master-0`, `worker-1`, …")] = None,
    as_json: Json = False,
) -> None:
    """Show a job's log."""
    job = TrainingJob.get(job_id)
    writer = LogWriter()
    try:
        for update in job.logs(follow=follow, instance=instance).updates():
            if isinstance(update, JobRecord):
                if instance is None:
                    writer.knows(update)
            elif as_json:
                typer.echo(json.dumps(asdict(update), ensure_ascii=False))
            else:
                writer.line(update)
        writer.settle()
    except KeyboardInterrupt:
        _ignore_further_interrupts()
        writer.settle()
        _print_next_commands(job)
        raise typer.Exit(exit_codes.NOT_FINISHED) from None


def status(job_id: JobId, as_json: Json = False) -> None:
    """Show a job; the exit code tells its status."""
    job = TrainingJob.get(job_id)
    record = job.record
    if as_json:
        typer.echo(_json(record))
    else:
        _show(record, "" if record.status.is_terminal else _last_event(job))
        if record.status.is_failure:
            try:
                job.raise_for_status()
            except JobFailed as failure:
                typer.secho(str(failure), fg="red")
    raise typer.Exit(exit_codes.of_status(record.status))


def wait(
    job_id: JobId,
    timeout: Annotated[float | None, typer.Option(help="The longest wait, in seconds.", min=0)] = None,
    show_logs: Annotated[bool, typer.Option("--logs/--no-logs", help="Show the log meanwhile.")] = True,
    as_json: Json = False,
) -> None:
    """Wait for a job's end; the exit code tells how it ended (101: it has not)."""
    job = TrainingJob.get(job_id)
    try:
        job.wait(timeout, show_logs=show_logs and not as_json)
    except (JobFailed, JobStopped, WaitTimeoutError) as end:
        if not as_json:
            typer.secho(str(end), fg="red", err=True)
    except KeyboardInterrupt:
        _ignore_further_interrupts()
        if as_json or not show_logs:  # with the log, the display has shown it already
            _print_next_commands(job)
        raise typer.Exit(exit_codes.NOT_FINISHED) from None
    if as_json:
        typer.echo(_json(job.record))
    raise typer.Exit(exit_codes.of_status(job.record.status))


def stop(
    job_id: JobId,
    and_wait: Annotated[bool, typer.Option("--wait", help="Return when it has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Stop a job. Stopping one that has ended changes nothing."""
    job = TrainingJob.get(job_id)
    if not job.record.status.is_terminal:
        job.stop()
        if and_wait:
            _wait_quietly(job)
    record = job.refresh()
    if as_json:
        typer.echo(_json(record))
    elif record.status.is_terminal:
        typer.echo(f"{job_id} {record.status}")
    else:
        typer.echo(f"{job_id} is being stopped")


def _wait_quietly(job: TrainingJob) -> None:
    try:
        job.wait(show_logs=False)
    except (JobFailed, JobStopped):
        return  # the status shows the same, and is printed next


def _last_event(job: TrainingJob) -> str:
    """The job's last event, such as what it waits for."""
    try:
        return next(reversed(job.events()), "")
    except PaiError as fault:
        return f"cannot be read: {fault}"


def _show(record: JobRecord, event: str) -> None:
    from rich.text import Text

    colour = _COLOURS.get(exit_codes.of_status(record.status), "cyan")
    seconds = elapsed_s(record)
    took = f" {duration_text(seconds)}" if seconds is not None else ""
    rows = [
        ("job", Text(record.training_job_id)),
        ("name", Text(visible_text(record.training_job_name or ""))),
        ("status", Text(record.status, style=colour).append(took, style="default")),
        ("created", Text(f"{_time_text(record.gmt_create_time)} UTC")),
    ]
    rows += [("last event", Text(visible_text(event)))] if event else []
    rows += [("instance", Text(f"{i.name} {i.status or ''}")) for i in record.instances]
    rows += [("metric", Text(f"{m.name} {m.value:g}")) for m in record.latest_metrics if m.value is not None]
    rows += [(f"output {name}", Text(uri)) for name, uri in record.outputs.items()]
    width = max(len(name) for name, _ in rows)
    console = table_console()
    for name, text in rows:
        # The terminal wraps long lines itself, so a URI can be copied whole.
        console.print(Text(name.ljust(width + 1), style="dim"), text, soft_wrap=True)


def table_console() -> Console:
    """Where tables go: as wide as the window, and in a pipe or a file as wide as they are."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def _time_text(time: str | None) -> str:
    """`2026-11-21 05:11:11` of `2026-11-21T05:11:11.589Z`."""
    return (time or "").replace("T", " ").rstrip("Z").partition(".")[0]


def _ignore_further_interrupts() -> None:
    """We are leaving: an impatient second Ctrl-C would only have Python end in a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _print_next_commands(job: TrainingJob) -> None:
    typer.echo(f"\n{job.id} goes on; come back, or stop it, with", err=True)
    for command in next_commands(job.record):
        typer.echo(f"  {command}", err=True)


def _json(record: JobRecord) -> str:
    return record.model_dump_json(by_alias=True, exclude_none=True)
