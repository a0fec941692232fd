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


JOBS = Schema("jobs", Base.metadata, [_with_priority])
