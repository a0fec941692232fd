"""The commands that show one job: status, describe, diff, logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk._client.display.base import duration_text, elapsed_s, short_instance
from pai_sdk._client.display.commands import page_url
from pai_sdk._client.display.lines import LogWriter
from pai_sdk._client.job.field_groups import differences, request_groups
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.pai.record import JobRecord, LogLine
from pai_sdk.cli import exit_codes
from pai_sdk.cli.jobs import (
    ignore_further_interrupts,
    json_of,
    masked_record,
    print_next_commands,
    status_text,
    time_text,
)
from pai_sdk.cli.options import Json, moment_of
from pai_sdk.cli.selection.job_names import JobId, complete_job, find_job
from pai_sdk.cli.tables import exit_with_reader, print_json, print_properties, table_console, wrapped
from pai_sdk.errors import JobFailed, PaiError

if TYPE_CHECKING:
    from rich.text import Text

_TIME = re.compile(r"\d{4}-\d\d-\d\dT")
_SHORT_COMMAND = 300  # characters; `describe` prints the complete command


def status(job_id: JobId, as_json: Json = False) -> None:
    """Show the state of a job; the exit code is that of its status.

    Example: pai-sdk status train129f212o89d
    """
    job = find_job(job_id)
    record = job.record
    if as_json:
        typer.echo(json_of(record))
    else:
        # The last event, such as the reason for which it waits.
        event = "" if record.status.is_terminal else next(reversed(_events(job)), "")
        print_properties(_summary(record, event), prose=("last event", "parameters", "labels"))
        _print_reason(job)
    raise typer.Exit(exit_codes.of_status(record.status))


def describe(job_id: JobId, as_json: Json = False) -> None:
    """Show everything about a job: request, channels, status changes, instances, metrics, events.

    Values of environment variables are masked.

    Example: pai-sdk describe train129f212o89d
    """
    job = find_job(job_id)
    record, events = job.record, _events(job)
    if as_json:
        print_json({**masked_record(record), **wire_names(events=events)})
        return
    print_properties(_head(record))
    for group, fields in request_groups(record).items():
        _print_title(group)
        print_properties(fields.items(), indent="  ")
    if record.latest_metrics:
        _print_title("metrics")
        print_properties(_metrics(record), indent="  ")
    _print_title("status changes")
    print_properties(_transitions(record), indent="  ")
    if record.instances:
        _print_title("instances")
        print_properties(
            ((i.name or "", f"{i.status or ''} {i.role or ''}".strip()) for i in record.instances), indent="  "
        )
    if events:
        _print_title("events")
        timed = [_event(event) for event in events]
        print_properties(timed, indent="  ", prose={time for time, _ in timed})
    _print_reason(job)


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="The first job.", autocompletion=complete_job)],
    second: Annotated[str, typer.Argument(metavar="B", help="The second job.", autocompletion=complete_job)],
    as_json: Json = False,
) -> None:
    """Show the differences between two jobs: image, command, code, hyperparameters, channels, labels, results.

    The exit code is 0 even if they differ.

    Example: pai-sdk diff train129f212o89d train7k2o89d129f2
    """
    first_record, second_record = find_job(first).record, find_job(second).record
    changed = differences(first_record, second_record)
    if as_json:
        for difference in changed:
            print_json(
                {
                    "group": difference.group,
                    "name": difference.name,
                    "first": difference.first,
                    "second": difference.second,
                }
            )
        return
    console = table_console()
    heads = [
        f"{record.training_job_id}  {record.training_job_name or ''}".rstrip()
        for record in (first_record, second_record)
    ]
    console.print(f"[red]- {heads[0]}[/red]\n[green]+ {heads[1]}[/green]", soft_wrap=True)
    if not changed:
        typer.echo("no differences")
    group, widths = "", {difference.group: 0 for difference in changed}
    for difference in changed:
        widths[difference.group] = max(widths[difference.group], len(difference.name))
    for difference in changed:
        if difference.group != group:
            group = difference.group
            _print_title(group)
        if "\n" in (difference.first or "") + (difference.second or "") or console.width < 100:
            typer.echo(f"  {visible_text(difference.name)}")
            _print_side("    - ", difference.first, "red")
            _print_side("    + ", difference.second, "green")
        else:
            _print_pair(difference.name.ljust(widths[difference.group]), difference.first, difference.second)


def _print_pair(name: str, first: str | None, second: str | None) -> None:
    from rich.text import Text

    console = table_console()
    line = Text("  ").append(visible_text(name)).append("  ")
    line.append(visible_text(first) if first is not None else "(none)", style="red")
    line.append(" → ", style="dim")
    line.append(visible_text(second) if second is not None else "(none)", style="green")
    console.print(line, soft_wrap=True)


def _print_side(mark: str, text: str | None, colour: str) -> None:
    from rich.text import Text

    for line in (text if text is not None else "(none)").split("\n"):
        table_console().print(Text(mark + visible_text(line), style=colour), soft_wrap=True)


def _print_title(title: str) -> None:
    from rich.text import Text

    table_console().print(Text(f"\n{title}", style="bold"))


def _head(record: JobRecord) -> Iterator[tuple[str, str | Text]]:
    seconds = elapsed_s(record)
    took = f" {duration_text(seconds)}" if seconds is not None else ""
    yield "job", record.training_job_id
    yield "name", record.training_job_name or ""
    yield "status", status_text(record.status).append(took, style="default")
    yield "created", f"{time_text(record.gmt_create_time)} UTC"
    if (page := page_url(record)) is not None:
        yield "page", page


def _summary(record: JobRecord, event: str) -> Iterator[tuple[str, str | Text]]:
    """Yields the properties that `status` prints, the most important ones first."""
    groups = request_groups(record)
    yield from _head(record)
    if event:
        yield "last event", event
    if command := groups.get("code", {}).get("command"):
        first, _, more = command.strip().partition("\n")
        yield "command", first[:_SHORT_COMMAND] + (" …" if more or len(first) > _SHORT_COMMAND else "")
    if values := groups.get("hyperparameters"):
        yield "parameters", "  ".join(f"{name}={value}" for name, value in values.items())
    if labels := groups.get("labels"):
        yield "labels", "  ".join(f"{name}={value}" for name, value in labels.items())
    for instance in record.instances:
        name = short_instance(record.training_job_id, instance.name or "")
        yield "instance", f"{name} {instance.status or ''}"
    yield from ((f"metric {name}", value) for name, value in _metrics(record))
    yield from ((f"output {name}", uri) for name, uri in record.outputs.items())


def _metrics(record: JobRecord) -> Iterator[tuple[str, str]]:
    for metric in record.latest_metrics:
        if metric.value is not None:
            step = "" if metric.step is None else f"  step {metric.step}"
            yield metric.name or "", f"{metric.value:g}{step}"


def _transitions(record: JobRecord) -> Iterator[tuple[str, str | Text]]:
    for change in record.status_transitions:
        until = time_text(change.end_time)
        reason = f"  {change.reason_code or ''} {change.reason_message or ''}".rstrip()
        yield change.status or "", f"{time_text(change.start_time)}{f' to {until}' if until else ''}{reason}"


def _events(job: TrainingJob) -> list[str]:
    try:
        return list(job.events())
    except PaiError as error:
        return [f"cannot be read: {error}"]


def _event(text: str) -> tuple[str, str]:
    """Splits an event into its time, which may be empty, and its description."""
    first, _, description = text.partition(" ")
    return (time_text(first), description) if _TIME.match(first) else ("", text)


def _print_reason(job: TrainingJob) -> None:
    """Prints the reason of a failure."""
    from rich.text import Text

    if job.record.status.is_failure:
        try:
            job.raise_for_status()
        except JobFailed as failure:
            console = table_console()
            width = console.width - 1 if console.is_terminal else console.width
            console.print(Text("\n" + "\n".join(wrapped(str(failure), width)), style="red"), soft_wrap=True)


def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the job finishes.")] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=0, help="Show only this number of last lines of each instance."),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Show the timestamp of each line (UTC).")
    ] = False,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Show only lines newer than a duration (10m, 2h) or a time.")
    ] = None,
    instance: Annotated[str | None, typer.Option(help="One instance: `master-0`, `worker-1`, …")] = None,
    as_json: Json = False,
) -> None:
    """Show a job's log.

    Example: pai-sdk logs train129f212o89d --tail 20 --timestamps --follow
    """
    since_time = None if since is None else moment_of(since, "--since")
    job = find_job(job_id)
    writer = LogWriter()
    if follow:
        exit_with_reader()
    try:
        stream = job.logs(follow=follow, instance=instance, tail=tail, since=since_time, times=timestamps)
        for update in stream.updates():
            if isinstance(update, JobRecord):
                if instance is None:
                    writer.set_instances(update)
            elif as_json:
                print_json(_json_of(update))
            else:
                writer.line(update)
        writer.settle()
    except KeyboardInterrupt:
        ignore_further_interrupts()
        writer.settle()
        print_next_commands(job)
        raise typer.Exit(exit_codes.NOT_FINISHED) from None


def _json_of(line: LogLine) -> dict[str, Any]:
    """Returns the JSON fields of a line, without an unknown time; `missing` only in a notice of missing lines."""
    return {
        name: value
        for name, value in asdict(line).items()
        if value is not None and (name != "missing" or line.missing)
    }
