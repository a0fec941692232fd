"""`pai-sdk top`: what the instances of running jobs use."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Annotated, Any

import typer

from pai_sdk._client.display.base import short_instance
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.tables.table import Column, Table
from pai_sdk._data.storage.tree import size_text
from pai_sdk._wire.pai.record import InstanceUsage
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.cli.jobs import repeat_display, status_text
from pai_sdk.cli.options import Json
from pai_sdk.cli.selection.backend import selected_backend
from pai_sdk.cli.selection.job_names import complete_job, find_job
from pai_sdk.cli.tables import print_json, print_table
from pai_sdk.errors import NotFoundError

_MAX_JOBS = 20
_FIGURES = ("cpu_percent", "memory_percent", "gpu_percent", "gpu_memory_percent")
_COLUMNS = (
    Column("JOB"),
    Column("INSTANCE"),
    Column("STATUS", drop=1),
    *(Column(title, align="right") for title in ("CPU %", "MEM %", "MEM", "GPU %", "GPU MEM %")),
)


def top(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Only this job: its id or name, a unique prefix of one, or - for the newest.",
            autocompletion=complete_job,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    as_json: Json = False,
) -> None:
    """Show CPU, memory and GPU use of each instance of the running jobs.

    CPU is in percent of all cores of the machine. `-` means that a value is not measured there, or not yet:
    services measure every ten seconds; Docker has no values of GPUs.

    Example: pai-sdk top train129f212o89d --once
    """
    jobs = [find_job(job)] if job is not None else _running()
    if as_json:
        for each in jobs:
            for usage in each.usage():
                print_json({"job": each.id, **usage._asdict()})
        return

    def show() -> bool:
        running = [each for each in jobs if not each.status.is_terminal] if job is not None else _running()
        rows = [row for each in running for row in _rows(each)]
        if rows:
            print_table(Table(_COLUMNS, rows))
        else:
            typer.echo("no running jobs" if job is None else f"{jobs[0].id} {jobs[0].status}: nothing is running")
        return bool(rows)

    repeat_display(show, once=once)


def _running() -> list[TrainingJob]:
    running = iter(TrainingJob.list(status=JobStatus.RUNNING, local=selected_backend().local))
    jobs = [*islice(running, _MAX_JOBS)]
    if next(running, None) is not None:
        typer.echo(
            f"more jobs are running: these are the newest {_MAX_JOBS}; name a job to see another one", err=True
        )
    return jobs


def _rows(job: TrainingJob) -> list[tuple[Any, ...]]:
    usage_by_name: dict[str, InstanceUsage] = {}
    with suppress(NotFoundError):  # it was deleted just now
        usage_by_name = {usage.instance: usage for usage in job.usage()}
    rows = []
    record = job.record if job.record.instances else job.refresh()  # a list may leave instances out
    for instance in record.instances:
        name = instance.name or ""
        usage = usage_by_name.get(name, InstanceUsage(name))
        memory_size = "-" if usage.memory_bytes is None else size_text(usage.memory_bytes)
        cpu, memory, gpu, gpu_memory = (_percent(getattr(usage, figure)) for figure in _FIGURES)
        status = status_text(JobStatus(instance.status or ""))
        rows.append((job.id, short_instance(job.id, name), status, cpu, memory, memory_size, gpu, gpu_memory))
    return rows


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
