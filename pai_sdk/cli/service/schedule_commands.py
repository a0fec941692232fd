"""`pai-sdk schedule add|list|show|pause|resume|delete`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pai_sdk._client.session import get_default_session
from pai_sdk._core.tables.table import Column, Table
from pai_sdk.cli.options import Json
from pai_sdk.cli.selection.backend import with_backend_options
from pai_sdk.cli.submitting import Env, Notify, Set, job_file_of, with_targets
from pai_sdk.cli.tables import print_json, print_properties, print_table
from pai_sdk.cli.usage.help import Commands

if TYPE_CHECKING:
    from pai_sdk._wire.schedules import ScheduleRecord

app = Commands(
    help="Schedules: jobs that the service creates by cron.",
    example="pai-sdk schedule add nightly.yaml --cron '0 3 * * *' --zone Europe/Berlin",
)

_with_backend_options = partial(with_backend_options, with_local=False)

Cron = Annotated[
    str,
    typer.Option("--cron", help="Minute, hour, day, month, day of week; '0 3 * * *' is daily at 3:00."),
]
Zone = Annotated[str, typer.Option("--zone", help="The time zone, such as Europe/Berlin.")]
_Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The name or the id of the schedule.")]


@app.command()
@_with_backend_options
def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file in YAML.")],
    cron: Cron,
    zone: Zone = "UTC",
    name: Annotated[
        str | None,
        typer.Option("--name", help="The schedule's name; by default the file's, without .yaml."),
    ] = None,
    values: Set = None,
    env: Env = None,
    notify: Notify = None,
    as_json: Json = False,
) -> None:
    """Create a schedule: the service creates the job of a file by a cron expression.

    Example: pai-sdk schedule add job.yaml --cron "0 3 * * *" --zone Europe/Berlin
    """
    _, plan = job_file_of({"file": file, "values": values, "env": env}).plan()
    plan = with_targets(plan, notify)
    created = get_default_session().schedules.create(name or file.stem, cron, plan, time_zone=zone)
    print_schedule(created, as_json=as_json)


@app.command(name="list")
@_with_backend_options
def list_schedules(as_json: Json = False) -> None:
    """List your schedules, the newest first.

    Example: pai-sdk schedule list
    """
    schedules = list(get_default_session().schedules.list())
    if as_json:
        for schedule in schedules:
            print_json(schedule.to_dict())
        return
    columns = (
        Column("SCHEDULE"),
        Column("CRON"),
        Column("ZONE", drop=1),
        Column("NEXT"),
        Column("LAST JOB"),
        Column("USER", drop=2),
    )
    rows = [
        (
            schedule.name or schedule.schedule_id,
            schedule.cron or "",
            schedule.time_zone or "",
            _next(schedule),
            schedule.last_job_id or "",
            schedule.user_id or "",
        )
        for schedule in schedules
    ]
    print_table(Table(columns, rows))


@app.command()
@_with_backend_options
def show(schedule: _Name, as_json: Json = False) -> None:
    """Show a schedule: its times, its last job, and why a run was skipped.

    Example: pai-sdk schedule show nightly
    """
    record = get_default_session().schedules.find(schedule)
    if as_json:
        print_json(record.to_dict())
        return
    properties = {
        "schedule": f"{record.name} ({record.schedule_id})",
        "times": f"{record.cron} in {record.time_zone}",
        "next": _next(record),
        "last time": record.last_time,
        "last job": record.last_job_id,
        "last error": record.last_error,
        "workspace": record.workspace_id,
        "user": record.user_id,
    }
    print_properties(((name, value) for name, value in properties.items() if value), prose=("last error",))


@app.command()
@_with_backend_options
def pause(schedule: _Name, as_json: Json = False) -> None:
    """Pause a schedule: it creates no jobs until `resume`; running jobs continue.

    Example: pai-sdk schedule pause nightly
    """
    schedules = get_default_session().schedules
    print_schedule(schedules.pause(schedules.find(schedule).schedule_id), as_json=as_json)


@app.command()
@_with_backend_options
def resume(schedule: _Name, as_json: Json = False) -> None:
    """Resume a schedule: it creates jobs again, from the next time on.

    Example: pai-sdk schedule resume nightly
    """
    schedules = get_default_session().schedules
    print_schedule(schedules.resume(schedules.find(schedule).schedule_id), as_json=as_json)


@app.command()
@_with_backend_options
def delete(schedule: _Name) -> None:
    """Delete a schedule; its jobs stay.

    Example: pai-sdk schedule delete nightly
    """
    schedules = get_default_session().schedules
    schedules.delete(schedules.find(schedule).schedule_id)
    typer.echo(f"deleted {schedule}")


def print_schedule(schedule: ScheduleRecord, *, as_json: bool) -> None:
    """Prints the next time of a schedule; as JSON, all its fields."""
    if as_json:
        print_json(schedule.to_dict())
    else:
        typer.echo(f"{schedule.name}: next job {_next(schedule)}")


def _next(schedule: ScheduleRecord) -> str:
    """Returns the time of the next job, in UTC."""
    return schedule.next_time or "never, it is paused"
