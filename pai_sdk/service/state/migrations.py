"""The tables of the jobs, and how those of earlier builds become them."""

from __future__ import annotations

from sqlalchemy import Connection, column, select, table, text, update

from pai_sdk.service.state.models import Base, Job
from pai_sdk.service.state.schema import Schema

__all__ = ["JOBS"]


def _with_priority(connection: Connection) -> None:
    """To version 2: the priority, which until then stood in the request only."""
    connection.execute(text("ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0"))
    jobs = table("jobs", column("number"), column("request", Job.request.type), column("priority"))
    for number, request in connection.execute(select(jobs.c.number, jobs.c.request)).all():
        if priority := request.get("Priority"):
            connection.execute(update(jobs).where(jobs.c.number == number).values(priority=priority))


def _with_steps(connection: Connection) -> None:
    """To version 3: the step and the instance of a metric's value."""
    connection.execute(text("ALTER TABLE metrics ADD COLUMN step BIGINT"))
    connection.execute(text("ALTER TABLE metrics ADD COLUMN instance VARCHAR"))


def _with_metric_times(connection: Connection) -> None:
    """To version 4: pages of metrics in the order of their times, without sorting all of them for each page."""
    connection.execute(text("CREATE INDEX IF NOT EXISTS metrics_by_time ON metrics (job_id, timestamp, number)"))


JOBS = Schema("jobs", Base.metadata, [_with_priority, _with_steps, _with_metric_times])
