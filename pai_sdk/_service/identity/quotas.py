"""Quotas of users: the maximum of CPUs, GPUs and jobs that one user has at the same time."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import QuotaRow, UserRow
from pai_sdk._service.wire_errors import WireError

__all__ = ["NO_QUOTA", "Quota", "Quotas", "all_quotas", "quota_of"]


@dataclass(frozen=True)
class Quota:
    """The maximum resources of one user's jobs at the same time; None means no limit."""

    cpus: float | None = None  # of started jobs, all instances together
    gpus: int | None = None  # of started jobs, all instances together
    running: int | None = None  # jobs that have started and not finished
    queued: int | None = None


NO_QUOTA = Quota()
"""The quota of a user without one, and of the service's own key."""


class Quotas:
    """The quotas of the users. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, user: str) -> Quota:
        """Returns the quota of a user."""
        with self._database.read() as session:
            _require_user(session, user)
            return quota_of(session, user)

    def set(self, user: str, quota: Quota) -> None:
        """Replaces the quota of a user. Started jobs continue, whatever they use."""
        with self._database.write() as session:
            _require_user(session, user)
            row = QuotaRow(user=user, cpus=quota.cpus, gpus=quota.gpus, running=quota.running, queued=quota.queued)
            session.merge(row)


def quota_of(session: Session, user: str) -> Quota:
    """Returns the quota of a user, in an open session."""
    row = session.get(QuotaRow, user)
    return NO_QUOTA if row is None else _quota(row)


def all_quotas(session: Session) -> dict[str, Quota]:
    """Returns the quotas that were set, by user."""
    return {row.user: _quota(row) for row in session.scalars(select(QuotaRow))}


def _quota(row: QuotaRow) -> Quota:
    return Quota(row.cpus, row.gpus, row.running, row.queued)


def _require_user(session: Session, user: str) -> None:
    if session.get(UserRow, user) is None:
        raise WireError(404, "USER_NOT_FOUND", f"There is no user {user[:60]!r}.")
