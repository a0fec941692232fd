"""`pai-sdk logs`: a job's log, from its beginning or its last lines, and as it grows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from pai_sdk.cli import exit_codes
from pai_sdk.cli.jobs import JobId, Json, ignore_further_interrupts, print_next_commands
from pai_sdk.cli.tables import print_json
from pai_sdk.display.lines import LogWriter
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.schemas.record import JobRecord, LogLine

__all__ = ["logs"]


def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Begin with the last lines of each instance.")
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Show when each line was written (UTC).")
    ] = False,
    instance: Annotated[str | None, typer.Option(help="One instance: `master-0`, `worker-1`, …")] = None,
    as_json: Json = False,
) -> None:
    """Show a job's log.

    Example: pai-sdk logs train129f212o89d --tail 20 --timestamps --follow
    """
    job = TrainingJob.get(job_id)
    writer = LogWriter()
    try:
        for update in job.logs(follow=follow, instance=instance, tail=tail, times=timestamps).updates():
            if isinstance(update, JobRecord):
                if instance is None:
                    writer.knows(update)
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
    """A line for scripts: no unknown time, and `missing` only in a notice of missing lines."""
    return {
        name: value
        for name, value in asdict(line).items()
        if value is not None and (name != "missing" or line.missing)
    }
