"""`pai-sdk top`: what the instances of running jobs use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any

import typer

from pai_sdk._client.backend.queueing import HasQueue
from pai_sdk._client.display.base import short_instance
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.session import get_default_session
from pai_sdk._core.tables.table import Column, Table
from pai_sdk._data.storage.tree import size_text
from pai_sdk._wire.pai.record import InstanceUsage
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.cli.instances.queue_tables import queue_tables, usages_of
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
    queue: Annotated[
        bool, typer.Option("--queue", help="Also capacity, users and waiting jobs, of a service of your own.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show CPU, memory and GPU use of each instance of the running jobs.

    CPU is in percent of all cores of the machine. `-` means that a value is not measured there, or not yet:
    services measure every ten seconds, and GPUs every 30 where their machine has nvidia-smi; Docker on this
    machine has no values of GPUs. GPU figures are those of the busiest GPU that the instance has open.

    With --queue: who holds what, shares and quotas of users, and what each waiting job waits for.

    Example: pai-sdk top train129f212o89d --once
    """
    if queue:
        _show_queue(job, once=once, as_json=as_json)
        return
    jobs = [find_job(job)] if job is not None else _running()
    if as_json:
        used = _Usage()
        for each in jobs:
            for usage in used.of(each):
                print_json({"job": each.id, **usage._asdict()})
        return

    def show() -> bool:
        running = [each for each in jobs if not each.status.is_terminal] if job is not None else _running()
        used = _Usage()
        rows = [row for each in running for row in _rows(each, used)]
        if rows:
            print_table(Table(_COLUMNS, rows))
        else:
            typer.echo("no running jobs" if job is None else f"{jobs[0].id} {jobs[0].status}: nothing is running")
        return bool(rows)

    repeat_display(show, once=once)


def _show_queue(job: str | None, *, once: bool, as_json: bool) -> None:
    if job is not None:
        raise typer.BadParameter("shows all jobs: leave out the name of one", param_hint="--queue")
    runs = get_default_session(local=True).runs
    if as_json:
        print_json(runs.queue().model_dump())
        return

    def show() -> bool:
        for table in queue_tables(runs.queue(), time.time()):
            print_table(table)
            typer.echo()
        return True

    repeat_display(show, once=once)


class _Usage:
    """The use of instances, read once for all jobs of a service that reports its queue."""

    def __init__(self) -> None:
        self._of_jobs: dict[int, dict[str, list[InstanceUsage]]] = {}  # by backend

    def of(self, job: TrainingJob) -> Sequence[InstanceUsage]:
        """Returns the use of the instances of a job."""
        if id(job.backend) not in self._of_jobs:
            state = job.backend.queue() if isinstance(job.backend, HasQueue) else None
            self._of_jobs[id(job.backend)] = {each.id: usages_of(each) for each in state.started} if state else {}
        usages = self._of_jobs[id(job.backend)].get(job.id)
        return job.usage() if usages is None else usages


def _running() -> list[TrainingJob]:
    running = iter(TrainingJob.list(status=JobStatus.RUNNING, local=selected_backend().local))
    jobs = [*islice(running, _MAX_JOBS)]
    if next(running, None) is not None:
        typer.echo(
            f"more jobs are running: these are the newest {_MAX_JOBS}; name a job to see another one", err=True
        )
    return jobs


def _rows(job: TrainingJob, used: _Usage) -> list[tuple[Any, ...]]:
    usage_by_name: dict[str, InstanceUsage] = {}
    with suppress(NotFoundError):  # it was deleted just now
        usage_by_name = {usage.instance: usage for usage in used.of(job)}
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
