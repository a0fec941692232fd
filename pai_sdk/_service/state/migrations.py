"""Migrations of the job tables of earlier builds."""

from __future__ import annotations

from sqlalchemy import Connection, column, delete, func, insert, inspect, select, table, text, update

from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Base, Job, LatestMetric, Metric
from pai_sdk._service.state.schema import Schema


def _with_priority(connection: Connection) -> None:
    """Migrates to version 2: adds the priority, which was in the request only."""
    connection.execute(text("ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0"))
    jobs = table("jobs", column("number"), column("request", Job.request.type), column("priority"))
    for number, request in connection.execute(select(jobs.c.number, jobs.c.request)).all():
        if priority := request.get("Priority"):
            connection.execute(update(jobs).where(jobs.c.number == number).values(priority=priority))


def _with_steps(connection: Connection) -> None:
    """Migrates to version 3: adds step and instance of a metric's value."""
    connection.execute(text("ALTER TABLE metrics ADD COLUMN step BIGINT"))
    connection.execute(text("ALTER TABLE metrics ADD COLUMN instance VARCHAR"))


def _with_metric_times(connection: Connection) -> None:
    """Migrates to version 4: adds the index for pages of metrics by time."""
    connection.execute(text("CREATE INDEX IF NOT EXISTS metrics_by_time ON metrics (job_id, timestamp, number)"))


def _with_event_files(connection: Connection) -> None:
    """Migrates to version 5: points are in event files; the table keeps those of finished jobs only.

    This build reads the files and logs of unfinished jobs again from the start.
    """
    ended = select(Job.id).where(Job.ended_at.is_not(None))
    connection.execute(delete(Metric).where(Metric.job_id.not_in(ended)))
    connection.execute(text("DROP TABLE IF EXISTS log_cursors"))
    latest, points = (Base.metadata.tables[model.__tablename__] for model in (LatestMetric, Metric))
    latest.create(connection, checkfirst=True)
    newest = select(func.max(points.c.number)).group_by(points.c.job_id, points.c.name)
    names = [column.name for column in latest.columns]
    rows = select(*(points.c[name] for name in names)).where(points.c.number.in_(newest))
    connection.execute(insert(latest).from_select(names, rows))


def _with_owners(connection: Connection) -> None:
    """Migrates to version 6: adds owner, accessibility and attempts of a job."""
    for column_text in (
        "owner VARCHAR NOT NULL DEFAULT ''",
        "accessibility VARCHAR NOT NULL DEFAULT 'PRIVATE'",
        "attempt INTEGER NOT NULL DEFAULT 1",
        "not_before DOUBLE PRECISION",
    ):
        connection.execute(text(f"ALTER TABLE jobs ADD COLUMN {column_text}"))
    connection.execute(text("CREATE INDEX IF NOT EXISTS jobs_by_owner ON jobs (owner, status)"))


def _with_turns(connection: Connection) -> None:
    """Migrates to version 7: adds the index for the first queued job of each user."""
    connection.execute(
        text("CREATE INDEX IF NOT EXISTS jobs_by_turn ON jobs (status, owner, priority DESC, number)")
    )


def _with_workspace_lists(connection: Connection) -> None:
    """Migrates to version 8: adds the index for counting the jobs of a workspace."""
    connection.execute(
        text("CREATE INDEX IF NOT EXISTS jobs_by_workspace ON jobs (workspace_id, created_at, number)")
    )


def _with_created_ids(connection: Connection) -> None:
    """Migrates to version 9: adds the id that a request of the audit log has created."""
    _add_column(connection, "audit_log", "created_id", "VARCHAR NOT NULL DEFAULT ''")


def _with_causes(connection: Connection) -> None:
    """Migrates to version 10: adds the cause of a failure, which the list of runs displays."""
    connection.execute(text("ALTER TABLE jobs ADD COLUMN cause TEXT"))


def _with_expiries(connection: Connection) -> None:
    """Migrates to version 11: adds the expiry of keys, and that of what a request of the audit log has created."""
    _add_column(connection, "access_keys", "expires_at", "DOUBLE PRECISION")
    _add_column(connection, "audit_log", "expires_at", "DOUBLE PRECISION")


def _add_column(connection: Connection, table_name: str, name: str, definition: str) -> None:
    """Adds a column, unless `create_all` adds the table with it: databases older than users lack the table."""
    inspector = inspect(connection)
    if not inspector.has_table(table_name):
        return
    if name not in {column["name"] for column in inspector.get_columns(table_name)}:
        connection.execute(text(f"ALTER TABLE {table_name} ADD COLUMN {name} {definition}"))


_MIGRATIONS = (
    _with_priority,
    _with_steps,
    _with_metric_times,
    _with_event_files,
    _with_owners,
    _with_turns,
    _with_workspace_lists,
    _with_created_ids,
    _with_causes,
    _with_expiries,
)
# By a table of DLC: its module adds tables to the metadata, which must be complete.
JOBS = Schema("jobs", DlcJobRow.metadata, _MIGRATIONS)
