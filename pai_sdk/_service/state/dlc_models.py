"""The tables of what the API of DLC has more than jobs, and of what a workspace registers for them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from pai_sdk._service.state.models import Base


class DlcJobRow(Base):
    """What the API of DLC knows about a job more than its row in `jobs`: the body that created it.

    It is not in the request of the job: that is a model which refuses fields that it does not know.
    """

    __tablename__ = "dlc_jobs"
    __table_args__ = (Index("dlc_jobs_by_type", "job_type", "number"),)

    # Not the id: lists of training jobs leave these jobs out, and indexes of `jobs` have their numbers.
    number: Mapped[int] = mapped_column(ForeignKey("jobs.number", ondelete="CASCADE"), primary_key=True)
    job_type: Mapped[str]
    images: Mapped[str] = mapped_column(Text)  # of all roles, one a line: for searches
    body: Mapped[dict[str, Any]]


class RecordRow(Base):
    """Something that is registered in a workspace. `number` counts all records in the order of their creation."""

    __tablename__ = "workspace_records"
    __table_args__ = (
        Index("workspace_records_by_kind", "kind", "workspace_id", "number"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]  # `dataset`, `code source`, `job template` or `TensorBoard`
    workspace_id: Mapped[str]
    owner: Mapped[str]
    name: Mapped[str]
    accessibility: Mapped[str]
    body: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    modified_at: Mapped[float]


class RecordVersionRow(Base):
    """A version of a record: of a data set or of a template."""

    __tablename__ = "workspace_record_versions"
    __table_args__ = (
        UniqueConstraint("record", "name"),
        {"sqlite_autoincrement": True},
    )

    number: Mapped[int] = mapped_column(primary_key=True)
    record: Mapped[int] = mapped_column(ForeignKey("workspace_records.number", ondelete="CASCADE"))
    name: Mapped[str]
    body: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    modified_at: Mapped[float]
