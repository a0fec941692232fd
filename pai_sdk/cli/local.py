"""`pai-sdk prune`: removes what jobs that have ended keep, local ones and those of the service."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Annotated

import typer

from pai_sdk.cli.durations import seconds_of
from pai_sdk.errors import NotFoundError
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.schemas.record import JobRecord

__all__ = ["prune"]


def prune(
    service: Annotated[
        bool,
        typer.Option("--service", help="Jobs of the service, with their logs and metrics, and not local ones."),
    ] = False,
    older_than: Annotated[
        str, typer.Option(help="Of the service: that ended longer ago: 7d, 12h, 30m, 0.")
    ] = "7d",
    name: Annotated[str | None, typer.Option(help="Of the service: only with this text in their name.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Of the service: show which.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove what local jobs that have ended keep, or with --service such jobs of the service. Outputs stay.

    Example: pai-sdk prune --service --older-than 30d
    """
    if service:
        _prune_service(seconds_of(older_than, "--older-than"), name, dry_run=dry_run, yes=yes)
        return
    from pai_sdk.session import get_default_session

    removed = get_default_session(local=True).local.prune()
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
        typer.confirm(f"Delete {len(jobs)} jobs that have ended, with their logs and metrics?", abort=True)
    removed = 0
    for job in jobs:
        try:
            job.delete()
            removed += 1
        except NotFoundError:  # someone else was faster
            continue
    typer.echo(
        f"removed {removed} job; its outputs stay"
        if removed == 1
        else f"removed {removed} jobs; their outputs stay"
    )


def _ended_before(record: JobRecord, before: float) -> bool:
    if not record.status.is_terminal:
        return False
    changed = record.gmt_modified_time or record.gmt_create_time or ""
    try:
        moment = datetime.fromisoformat(changed.replace("Z", "+00:00"))
    except ValueError:
        return False  # when it ended is not known, so it stays
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp() < before
