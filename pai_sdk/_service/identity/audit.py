"""The audit log of a service: changes, and refused requests. It contains neither secrets nor content."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import AuditRow

_MAX_ENTRIES = 100_000
_SPARE_ENTRIES = 1000
_NEW_ENTRY = insert(AuditRow)  # built once: building the statement takes longer than its execution


@dataclass(frozen=True)
class AuditEntry:
    """One request."""

    number: int  # ascending
    at: float  # seconds since 1970, UTC
    user: str  # empty for the service's own key, `-` for a failed sign-in
    key_id: str
    method: str
    path: str  # without its query
    status: int
    client: str  # its address
    created_id: str = ""  # such as a job; empty if nothing was created, or if its name is in the path
    expires_at: float | None = None  # of what was created, such as a key; None if it does not expire


class AuditLog:
    """The last hundred thousand requests that changed something, or were refused for a lack of rights."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        principal: Principal,
        method: str,
        path: str,
        status: int,
        client: str,
        created_id: str = "",
        expires_at: float | None = None,
    ) -> None:
        """Records a request in a transaction of its own."""
        with self._database.write() as session:
            self.record_in(session, principal, method, path, status, client, created_id, expires_at)

    def record_in(
        self,
        session: Session,
        principal: Principal,
        method: str,
        path: str,
        status: int,
        client: str,
        created_id: str = "",
        expires_at: float | None = None,
    ) -> None:
        """Records a request in the transaction that carries it out."""
        row = {"at": time.time(), "user": principal.user, "key_id": principal.key_id, "method": method}
        row |= {"path": path[:500], "status": status, "client": client, "created_id": created_id}
        row |= {"expires_at": expires_at}
        (newest,) = session.connection().execute(_NEW_ENTRY, row).inserted_primary_key or (0,)
        if newest % _SPARE_ENTRIES == 0:
            session.execute(delete(AuditRow).where(AuditRow.number <= newest - _MAX_ENTRIES))

    def entries(
        self, *, user: str | None = None, action: str = "", before: int | None = None, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """Returns entries with a number below `before`, the newest first; `action` is a part of `METHOD PATH`."""
        query = select(AuditRow).order_by(AuditRow.number.desc()).limit(limit)
        if user is not None:
            query = query.where(AuditRow.user == user)
        if action:
            request = AuditRow.method + " " + AuditRow.path
            query = query.where(request.icontains(action, autoescape=True))
        if before is not None:
            query = query.where(AuditRow.number < before)
        with self._database.read() as session:
            return [
                AuditEntry(
                    row.number,
                    row.at,
                    row.user,
                    row.key_id,
                    row.method,
                    row.path,
                    row.status,
                    row.client,
                    row.created_id,
                    row.expires_at,
                )
                for row in session.scalars(query)
            ]
