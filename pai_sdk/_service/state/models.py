"""The tables of the jobs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Text, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """All tables. Times are seconds since 1970, UTC."""

    type_annotation_map = {dict[str, Any]: JSON, list[dict[str, Any]]: JSON, list[str]: JSON}  # noqa: RUF012 - SQLAlchemy's way


class UserRow(Base):
    """A user of the service; `right` is the upper limit of the rights of their keys."""

    __tablename__ = "users"

    name: Mapped[str] = mapped_column(primary_key=True)
    right: Mapped[str]
    created_at: Mapped[float]


class RemovedUserRow(Base):
    """The name of a removed user. It is not reused: it still owns jobs, buckets and tables."""

    __tablename__ = "removed_users"

    name: Mapped[str] = mapped_column(primary_key=True)


class AccessKeyRow(Base):
    """A key of a user. The secret is derived from the id, and not stored."""

    __tablename__ = "access_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    user: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), index=True)
    created_at: Mapped[float]
    expires_at: Mapped[float | None]


class EndedPageSessionRow(Base):
    """A sign-in of a browser that was ended before its cookie expires."""

    __tablename__ = "ended_page_sessions"

    id: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[float] = mapped_column(index=True)


class WorkspaceRow(Base):
    """A workspace, which separates the jobs of one team from those of another."""

    __tablename__ = "workspaces"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    created_at: Mapped[float]


class MemberRow(Base):
    """A user's right in a workspace."""

    __tablename__ = "members"

    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"), primary_key=True)
    user: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), primary_key=True)
    right: Mapped[str]


class QuotaRow(Base):
    """Limits for the concurrent jobs of a user; None is no limit."""

    __tablename__ = "quotas"

    user: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), primary_key=True)
    cpus: Mapped[float | None]
    gpus: Mapped[int | None]
    running: Mapped[int | None]
    queued: Mapped[int | None]


class UseRow(Base):
    """Decayed average of the resources that a user's jobs had until the time `at`; `owner` as in jobs."""

    __tablename__ = "use_by_owner"

    owner: Mapped[str] = mapped_column(primary_key=True)
    instances: Mapped[float]
    cpus: Mapped[float]
    gpus: Mapped[float]
    at: Mapped[float]


class BucketOwnerRow(Base):
    """Owner of a bucket: a user, or the members of a workspace."""

    __tablename__ = "bucket_owners"

    bucket: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    workspace_id: Mapped[str | None]


class AuditRow(Base):
    """A request that changed something, or was refused."""

    __tablename__ = "audit_log"

    number: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    user: Mapped[str] = mapped_column(index=True)
    key_id: Mapped[str]
    method: Mapped[str]
    path: Mapped[str] = mapped_column(Text)
    status: Mapped[int]
    client: Mapped[str]
    created_id: Mapped[str] = mapped_column(server_default="")
    expires_at: Mapped[float | None]  # of what was created


class Transition(Base):
    """A status in the history of a job; `ended_at` is None for the current one."""

    __tablename__ = "transitions"

    number: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    status: Mapped[str]
    started_at: Mapped[float]
    ended_at: Mapped[float | None]
    reason_code: Mapped[str | None]
    reason_message: Mapped[str | None] = mapped_column(Text)


class JobLabel(Base):
    """A label of a job."""

    __tablename__ = "labels"
    __table_args__ = (Index("labels_by_value", "key", "value", "job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class JobAlgorithm(Base):
    """The registered algorithm of a job; the spec at the time of submission is in the job's request."""

    __tablename__ = "job_algorithms"
    __table_args__ = (Index("job_algorithms_by_name", "name", "job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    algorithm_id: Mapped[str]
    name: Mapped[str]
    provider: Mapped[str]
    version: Mapped[str]


class Progress(Base):
    """The last progress value in a job's log; `name` as in the REST API."""

    __tablename__ = "progress"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    timestamp: Mapped[float]
    value: Mapped[float]


class Job(Base):
    """A training job. `number` counts them in the order of their creation."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("jobs_by_creation", "created_at", "number"),
        Index("jobs_by_status", "status", "created_at", "number"),
        Index("jobs_by_name", "name", "created_at"),
        Index("jobs_by_owner", "owner", "status"),
        Index("jobs_by_turn", "status", "owner", text("priority DESC"), "number"),
        Index("jobs_by_workspace", "workspace_id", "created_at", "number"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    workspace_id: Mapped[str]
    request: Mapped[dict[str, Any]]
    instance_count: Mapped[int]
    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    # A user's name; empty for the service's own key.
    owner: Mapped[str] = mapped_column(default="", server_default="")
    accessibility: Mapped[str] = mapped_column(default="PRIVATE", server_default="PRIVATE")
    attempt: Mapped[int] = mapped_column(default=1, server_default="1")  # counts the starts
    not_before: Mapped[float | None]  # the next attempt waits until then
    status: Mapped[str]
    reason_code: Mapped[str | None]
    reason_message: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[float]
    modified_at: Mapped[float]
    started_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    instances: Mapped[list[dict[str, Any]]]
    failed_instance: Mapped[str | None]
    exit_code: Mapped[int | None]
    # The exception in the log of the instance that failed first; None if its log has none.
    cause: Mapped[str | None] = mapped_column(Text)
    stop_requested: Mapped[bool] = mapped_column(default=False)
    version: Mapped[int] = mapped_column(default=1)

    transitions: Mapped[list[Transition]] = relationship(
        order_by=Transition.number, lazy="selectin", passive_deletes="all"
    )
    labels: Mapped[list[JobLabel]] = relationship(order_by=JobLabel.key, lazy="selectin", passive_deletes="all")
    algorithm: Mapped[JobAlgorithm | None] = relationship(lazy="selectin", passive_deletes="all")


class JobAnnotation(Base):
    """The note and the tags of a job, and whether it is archived; a job that was never annotated has no row."""

    __tablename__ = "job_annotations"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    tags: Mapped[list[str]]
    note: Mapped[str] = mapped_column(Text)
    note_version: Mapped[int]  # counts the changes of the note
    archived: Mapped[bool]


class JobPrice(Base):
    """The price of all instances of a job per hour, as it was when the job started."""

    __tablename__ = "job_prices"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    per_hour: Mapped[float]
    currency: Mapped[str]


class JobStar(Base):
    """A star that a user has put on a job; `user` as the owner in jobs."""

    __tablename__ = "job_stars"

    user: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, index=True)


class SavedViewRow(Base):
    """A view of the page that a user has saved: the fields of its address, without the page itself."""

    __tablename__ = "saved_views"

    owner: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    fields: Mapped[str] = mapped_column(Text)
    is_shared: Mapped[bool]
    modified_at: Mapped[float]


class LatestMetric(Base):
    """The last value of a metric; `step` is None where the value is from a log. All points are in event files."""

    __tablename__ = "latest_metrics"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    timestamp: Mapped[float]
    value: Mapped[float]
    step: Mapped[int | None] = mapped_column(BigInteger)
    instance: Mapped[str | None]


class Metric(Base):
    """A point of a job that finished before points were stored in event files only. No rows are added."""

    __tablename__ = "metrics"
    __table_args__ = (
        Index("metrics_by_name", "job_id", "name", "number"),
        Index("metrics_by_time", "job_id", "timestamp", "number"),
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    name: Mapped[str]
    timestamp: Mapped[float]
    value: Mapped[float]
    step: Mapped[int | None] = mapped_column(BigInteger)
    instance: Mapped[str | None]


class Event(Base):
    """Something that happened to a job, or to one of its instances."""

    __tablename__ = "events"
    __table_args__ = (Index("events_by_job", "job_id", "number"),)

    number: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    instance: Mapped[str | None]
    happened_at: Mapped[float]
    text: Mapped[str] = mapped_column(Text)


class Algorithm(Base):
    """A registered algorithm. `number` counts them in the order of their creation."""

    __tablename__ = "algorithms"
    __table_args__ = (
        UniqueConstraint("workspace_id", "provider", "name"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    workspace_id: Mapped[str]
    provider: Mapped[str]
    name: Mapped[str]
    display_name: Mapped[str | None]
    description: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[float]
    modified_at: Mapped[float]


class AlgorithmVersion(Base):
    """A version of a registered algorithm, with its spec."""

    __tablename__ = "algorithm_versions"
    __table_args__ = (
        UniqueConstraint("algorithm_id", "version"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    algorithm_id: Mapped[str] = mapped_column(ForeignKey("algorithms.id", ondelete="CASCADE"))
    version: Mapped[str]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    modified_at: Mapped[float]


class ScheduleRow(Base):
    """A job that is created at the times of a cron expression. `number` counts schedules by creation."""

    __tablename__ = "schedules"
    __table_args__ = (
        UniqueConstraint("owner", "name"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    owner: Mapped[str]
    workspace_id: Mapped[str]
    name: Mapped[str]
    cron: Mapped[str]
    zone: Mapped[str]
    request: Mapped[dict[str, Any]]
    next_time: Mapped[float | None] = mapped_column(index=True)  # None while it is disabled
    last_time: Mapped[float | None]  # the due time for which the last job was created
    last_job_id: Mapped[str | None]
    last_error: Mapped[str | None] = mapped_column(Text)  # why there is no job for a later time
    created_at: Mapped[float]
    modified_at: Mapped[float]


class NotifyTargetRow(Base):
    """A target of messages about a job, or about the jobs of a schedule. Its URL and secrets are encrypted."""

    __tablename__ = "notify_targets"
    __table_args__ = ({"sqlite_autoincrement": True},)

    number: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    schedule_id: Mapped[str | None] = mapped_column(ForeignKey("schedules.id", ondelete="CASCADE"), index=True)
    identity: Mapped[str]  # equal for equal addresses: their messages share one rate
    occasions: Mapped[str]  # with commas between them; empty for all
    sealed: Mapped[str] = mapped_column(Text)


class QueuedMessageRow(Base):
    """A message to a target that has not been delivered."""

    __tablename__ = "queued_messages"
    __table_args__ = (
        Index("queued_messages_by_target", "identity", "next_at"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    target: Mapped[int] = mapped_column(ForeignKey("notify_targets.number", ondelete="CASCADE"), index=True)
    identity: Mapped[str]
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    message: Mapped[dict[str, Any]]
    attempts: Mapped[int]
    next_at: Mapped[float] = mapped_column(index=True)
    created_at: Mapped[float]


class ExperimentLabel(Base):
    """A label of an experiment."""

    __tablename__ = "experiment_labels"
    __table_args__ = (Index("experiment_labels_by_value", "key", "value", "experiment"),)

    experiment: Mapped[int] = mapped_column(ForeignKey("experiments.number", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float]
    modified_at: Mapped[float]


class ExperimentRow(Base):
    """A named group of jobs. `number` counts experiments in the order of their creation."""

    __tablename__ = "experiments"
    __table_args__ = (
        UniqueConstraint("workspace_id", "name"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    workspace_id: Mapped[str]
    name: Mapped[str]
    accessibility: Mapped[str]
    artifact_uri: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float]
    modified_at: Mapped[float]

    labels: Mapped[list[ExperimentLabel]] = relationship(
        order_by=ExperimentLabel.key, lazy="selectin", passive_deletes="all"
    )


class ModelRow(Base):
    """A registered model. `number` counts models in the order of their creation."""

    __tablename__ = "models"
    __table_args__ = (
        UniqueConstraint("workspace_id", "name"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    workspace_id: Mapped[str]
    name: Mapped[str]
    task: Mapped[str | None]
    domain: Mapped[str | None]
    origin: Mapped[str | None]
    type: Mapped[str | None]
    details: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    modified_at: Mapped[float]


class ModelVersionRow(Base):
    """A version of a registered model: the URI of its files, and its specs for training and inference."""

    __tablename__ = "model_versions"
    __table_args__ = (
        UniqueConstraint("model", "name"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    model: Mapped[int] = mapped_column(ForeignKey("models.number", ondelete="CASCADE"))
    name: Mapped[str]
    details: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    modified_at: Mapped[float]
