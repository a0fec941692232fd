"""`pai-sdk pipeline run|show|resume|stop|schedule`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pai_sdk._client.pipeline import PipelineRun
from pai_sdk._client.pipeline.pipeline_run import as_dict
from pai_sdk._client.session import get_default_session
from pai_sdk.cli import exit_codes
from pai_sdk.cli.pipelines.files import parameters_of, pipeline_job, pipeline_of
from pai_sdk.cli.selection.backend import with_backend_options
from pai_sdk.cli.service.schedule_commands import Cron, Zone, print_schedule
from pai_sdk.cli.tables import print_error, print_json
from pai_sdk.cli.usage.help import Commands
from pai_sdk.errors import PipelineFailed, PipelineStopped

app = Commands(
    help="Pipelines: run, show, resume, stop, schedule.",
    example="pai-sdk pipeline run digits.py --set lr=0.1",
)

_with_backend_options = partial(with_backend_options, with_local=False)
_CODES = {
    "succeeded": exit_codes.SUCCEEDED,
    "failed": exit_codes.FAILED,
    "stopped": exit_codes.STOPPED,
    "running": exit_codes.NOT_FINISHED,
    "interrupted": exit_codes.NOT_FINISHED,
}

File = Annotated[
    str, typer.Argument(metavar="FILE", help="A Python file with a pipeline; FILE.py:NAME if it has several.")
]
Uri = Annotated[str, typer.Argument(metavar="RUN", help="The folder or URI of the run, as `run` prints it.")]
NoShow = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the URI of the run.")]


@app.command("run")
@_with_backend_options
def run(
    file: File,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the pipeline; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check all, print the request of each job as JSON; run nothing."),
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Run every step, including those with a result from an earlier run.")
    ] = False,
    quiet: NoShow = False,
) -> None:
    """Run a pipeline, and wait for it.

    Example: pai-sdk pipeline run digits.py --set lr=0.1
    """
    pipeline, parameters = pipeline_of(file), parameters_of(set_ or [])
    if dry_run:
        plans = pipeline.plans(**parameters)
        requests = {name: plan.masked_body() for name, plan in plans.items()}
        typer.echo(json.dumps(requests, ensure_ascii=False, indent=2))
        for name, plan in plans.items():
            for remark in plan.remarks():
                typer.echo(f"step {name}: {remark}", err=True)
        typer.echo(f"steps: {len(pipeline.steps)}, requests: {len(plans)}; nothing was sent", err=True)
        return
    pipeline.check(**parameters)
    _run_and_exit(lambda: pipeline.run(show=not quiet, cache=not no_cache, **parameters))


@app.command("resume")
@_with_backend_options
def resume(
    file: File,
    run_id: Annotated[
        str | None, typer.Option("--run", help="The id of the run; by default the newest that has not succeeded.")
    ] = None,
    quiet: NoShow = False,
) -> None:
    """Continue a run whose process has ended; failed steps run again.

    Example: pai-sdk pipeline resume digits.py
    """
    pipeline = pipeline_of(file)
    _run_and_exit(lambda: pipeline.resume(run_id, show=not quiet))


@app.command("show")
@_with_backend_options
def show(
    uri: Uri,
    svg: Annotated[Path | None, typer.Option(help="Write a picture of the run to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")] = False,
) -> None:
    """Show the steps of a run, with the reason for each; the exit code is that of the run.

    Example: pai-sdk pipeline show ~/.pai/pipelines/digits/runs/20261124-044926-9911a2b --svg digits.svg
    """
    run = PipelineRun.load(_expanded_uri(uri))
    if svg is not None:
        svg.write_text(run.svg(), encoding="utf-8")
    if as_json:
        print_json(as_dict(run))
    else:
        typer.echo(repr(run))
    if run.status == "interrupted":
        typer.echo("no process is running it; `pai-sdk pipeline resume FILE` continues it", err=True)
    raise typer.Exit(_CODES.get(run.status, exit_codes.ERROR))


@app.command("stop")
@_with_backend_options
def stop(uri: Uri) -> None:
    """Stop a run and its jobs, even if the process that started it no longer exists.

    Example: pai-sdk pipeline stop ~/.pai/pipelines/digits/runs/20261124-044926-9911a2b
    """
    run = PipelineRun.load(_expanded_uri(uri))
    if run.status not in ("running", "interrupted"):
        typer.echo(f"{run.uri} has already finished: {run.status}")
    elif run.stop():
        typer.echo(f"{run.uri} will be stopped by the process that works on it")
    else:
        typer.echo(f"{run.uri} is stopped; `pai-sdk pipeline resume FILE` continues it")


@app.command("schedule")
@_with_backend_options
def schedule(
    file: File,
    cron: Cron,
    zone: Zone = "UTC",
    name: Annotated[str | None, typer.Option("--name", help="The name; by default that of the pipeline.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the pipeline; may be repeated."),
    ] = None,
    image: Annotated[str, typer.Option(help="The image of the job that runs it, with pai_sdk.")] = "python:3.11",
    instance_type: Annotated[
        str, typer.Option("--instance-type", "-t", help="That job's instance type.")
    ] = "ecs.c6.large",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for scripts.")] = False,
) -> None:
    """Schedule a pipeline: the service runs it by a cron expression, in a job of its own.

    Example: pai-sdk pipeline schedule digits.py --cron "0 3 * * *" --zone Europe/Berlin
    """
    pipeline, parameters = pipeline_of(file), parameters_of(set_ or [])
    pipeline.check(**parameters)
    session = get_default_session()
    job = pipeline_job(file, parameters, session, image=image, instance_type=instance_type)
    created = session.schedules.create(name or pipeline.name, cron, job.plan(), time_zone=zone)
    print_schedule(created, as_json=as_json)


def _run_and_exit(work: Callable[[], PipelineRun]) -> None:
    """Runs a pipeline, prints its URI, and exits with its exit code."""
    try:
        done = work()
    except (PipelineFailed, PipelineStopped) as error:
        print_error(f"error: {error}")
        typer.echo(error.run)
        raise typer.Exit(_CODES["stopped" if isinstance(error, PipelineStopped) else "failed"]) from None
    typer.echo(done.uri)
    raise typer.Exit(_CODES.get(done.status, exit_codes.ERROR))


def _expanded_uri(uri: str) -> str:
    return str(Path(uri).expanduser()) if uri.startswith("~") else uri
