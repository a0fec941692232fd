"""The queue of a service as tables: capacity, users, instances by node, waiting jobs."""

from __future__ import annotations

from collections.abc import Iterator

from pai_sdk._client.display.base import duration_text, short_instance
from pai_sdk._core.tables.table import Column, Table
from pai_sdk._data.storage.tree import size_text
from pai_sdk._wire.pai.record import InstanceUsage
from pai_sdk._wire.resources.queue import QueueState, ResourceAmounts, StartedJob

_NO_LIMIT = "-"


def queue_tables(state: QueueState, now: float) -> Iterator[Table]:
    """Yields the tables that have rows."""
    columns: tuple[Column, ...] = (
        Column("CAPACITY"),
        Column("USED", align="right"),
        Column("OF", align="right"),
    )
    yield Table(columns, [(each.resource, f"{each.used:g}", _limit(each.total)) for each in state.capacity])
    titles = ("SHARE", "PAST", "RUNNING", "QUEUED", "CPUS", "GPUS")
    columns = (Column("USER"), *(Column(title, align="right") for title in titles))
    users = [
        (
            each.user or "(service key)",
            f"{each.share:.1%}",
            f"{each.past:.1%}",
            _of(each.running, each.quota.running),
            _of(each.queued, each.quota.queued),
            _of(each.allocated.cpus, each.quota.cpus),
            _of(each.allocated.gpus, each.quota.gpus),
        )
        for each in state.users
    ]
    yield Table(columns, users)
    if state.started:
        yield _started(state.started, now)
    if state.queued:
        columns = (
            Column("PLACE", align="right"),
            *map(Column, ("JOB", "USER", "NEEDS", "WAITS")),
            Column("FOR", wraps=True),
        )
        rows = [
            (
                str(each.position),
                each.id,
                each.owner,
                _amounts(each.needs),
                duration_text(now - each.created_at),
                each.reason,
            )
            for each in state.queued
        ]
        yield Table(columns, rows)


def usages_of(job: StartedJob) -> list[InstanceUsage]:
    """Returns the use of the instances of a job that are measured."""
    return [
        InstanceUsage(
            each.name,
            each.cpu_percent,
            each.memory_percent,
            each.gpu_percent,
            each.gpu_memory_percent,
            each.memory_bytes,
        )
        for each in job.instances
        if each.cpu_percent is not None
    ]


def _started(jobs: list[StartedJob], now: float) -> Table:
    columns = (
        *map(Column, ("NODE", "JOB", "INSTANCE", "USER", "STATUS")),
        *(Column(title, align="right") for title in ("FOR", "CPU %", "MEM", "GPU %", "GPU MEM %")),
    )
    rows = [
        (
            instance.node or "-",
            job.id,
            short_instance(job.id, instance.name),
            job.owner,
            instance.status,
            duration_text(now - job.since),
            _percent(instance.cpu_percent),
            "-" if instance.memory_bytes is None else size_text(instance.memory_bytes),
            _percent(instance.gpu_percent),
            _percent(instance.gpu_memory_percent),
        )
        for job in jobs
        for instance in job.instances
    ]
    return Table(columns, sorted(rows))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _amounts(amounts: ResourceAmounts) -> str:
    parts = [f"{amounts.instances} instance{'s' * (amounts.instances != 1)}"]
    parts += [f"{amounts.cpus:g} CPUs"] * bool(amounts.cpus) + [f"{amounts.gpus} GPUs"] * bool(amounts.gpus)
    return ", ".join(parts)


def _of(used: float, limit: float | None) -> str:
    return f"{used:g}" if limit is None else f"{used:g}/{limit:g}"


def _limit(total: float | None) -> str:
    return _NO_LIMIT if total is None else f"{total:g}"
