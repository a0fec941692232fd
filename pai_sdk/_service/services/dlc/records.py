"""What users register in a workspace for jobs of DLC: data sets, code sources, templates, TensorBoards."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, and_, delete, false, func, or_, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from pai_sdk._service.identity.principal import Principal, Right
from pai_sdk._service.identity.visibility import PRIVATE, PUBLIC
from pai_sdk._service.services.dlc.problems import missing_error
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.dlc_models import RecordRow, RecordVersionRow
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.body import received
from pai_sdk._wire.workspace.datasets import DatasetVersion

Kind: TypeAlias = Literal["data set", "code source", "job template", "TensorBoard"]

_ORDERS: Mapping[str, InstrumentedAttribute[Any]] = {
    "GmtCreateTime": RecordRow.created_at,
    "GmtModifiedTime": RecordRow.modified_at,
    "GmtModifyTime": RecordRow.modified_at,
    "DisplayName": RecordRow.name,
    "Name": RecordRow.name,
    "TemplateName": RecordRow.name,
}


@dataclass(frozen=True)
class RecordQuery:
    """The query of a list of records that `principal` can see. None and empty mean: any."""

    kind: Kind
    principal: Principal
    workspace_id: str | None = None
    name: str | None = None  # a part of the name, in any case
    ids: Collection[str] | None = None
    owner: str | None = None
    accessibility: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)  # fields of the body, and what they may be
    sort_by: str | None = None
    order: str | None = None
    page_number: int | None = None
    page_size: int | None = None


class Records:
    """All records. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        kind: Kind,
        record_id: str,
        body: Mapping[str, Any],
        *,
        name: str,
        workspace_id: str,
        owner: str,
        accessibility: str | None = None,
        versions: Mapping[str, Mapping[str, Any]] = {},
    ) -> RecordRow:
        """Registers a record, with its first versions by name."""
        now = time.time()
        row = RecordRow(
            id=record_id,
            kind=kind,
            workspace_id=workspace_id,
            owner=owner,
            name=name,
            accessibility=accessibility or PRIVATE,
            body=dict(body),
            created_at=now,
            modified_at=now,
        )
        with self._database.write() as session:
            session.add(row)
            session.flush()
            for version, content in versions.items():
                session.add(_version(row, version, content, now))
        return row

    def get(self, kind: Kind, record_id: str) -> RecordRow:
        """Returns a record; raises WireError if there is none."""
        with self._database.read() as session:
            return _existing(session, kind, record_id)

    def find(self, query: RecordQuery) -> tuple[list[RecordRow], int]:
        """Returns a page of records, and the total count."""
        conditions = [*_conditions(query)]
        column = _ORDERS.get(query.sort_by or "", RecordRow.number)
        is_ascending = (query.order or "").lower() == "asc"
        size = query.page_size or 10
        page = (
            select(RecordRow)
            .where(*conditions)
            .order_by(*(each.asc() if is_ascending else each.desc() for each in (column, RecordRow.number)))
            .limit(size)
            .offset(((query.page_number or 1) - 1) * size)
        )
        with self._database.read() as session:
            total = session.scalar(select(func.count()).select_from(RecordRow).where(*conditions)) or 0
            return list(session.scalars(page)), total

    def update(
        self,
        kind: Kind,
        record_id: str,
        changes: Mapping[str, Any],
        *,
        name: str | None = None,
        accessibility: str | None = None,
    ) -> RecordRow:
        """Changes fields of a record; a value of None removes a field of the body."""
        with self._database.write() as session:
            row = _existing(session, kind, record_id)
            row.body = _changed(row.body, changes)
            row.name = name or row.name
            row.accessibility = accessibility or row.accessibility
            row.modified_at = time.time()
            return row

    def delete(self, kind: Kind, record_id: str) -> None:
        """Deletes a record with its versions."""
        with self._database.write() as session:
            number = _existing(session, kind, record_id).number
            session.execute(delete(RecordRow).where(RecordRow.number == number))

    def require_visible(self, record_id: str, principal: Principal, right: Right) -> None:
        """Raises 404 if a user cannot see a record, and 403 if they may only see it."""
        with self._database.read() as session:
            row = session.scalar(select(RecordRow).where(RecordRow.id == record_id, _visible(principal)))
        if row is None:
            raise missing_error("record", record_id)
        if right == "read" or row.owner == principal.user:
            return
        if not principal.has_right_in(row.workspace_id, "admin"):
            message = f"{record_id} belongs to {row.owner or 'the service'}."
            raise WireError(403, "Forbidden.NoPermission", message)

    # ---- versions -----------------------------------------------------------------------------------------

    def versions(self, kind: Kind, record_id: str) -> list[RecordVersionRow]:
        """Returns the versions of a record, the oldest first."""
        with self._database.read() as session:
            number = _existing(session, kind, record_id).number
            query = select(RecordVersionRow).where(RecordVersionRow.record == number)
            return list(session.scalars(query.order_by(RecordVersionRow.number)))

    def version(self, kind: Kind, record_id: str, name: str | None) -> RecordVersionRow:
        """Returns a version, or the latest one."""
        versions = self.versions(kind, record_id)
        match = [each for each in versions if name in (None, each.name)]
        if not match:
            raise missing_error(f"version of {kind} {record_id}", name or "")
        return match[-1]

    def add_version(
        self, kind: Kind, record_id: str, content: Mapping[str, Any], *, prefix: str = ""
    ) -> RecordVersionRow:
        """Adds a version, whose name is the next number behind a prefix."""
        with self._database.write() as session:
            row = _existing(session, kind, record_id)
            query = select(RecordVersionRow.name).where(RecordVersionRow.record == row.number)
            numbers = [name.removeprefix(prefix) for name in session.scalars(query)]
            last = max((int(number) for number in numbers if number.isdecimal()), default=0)
            version = _version(row, f"{prefix}{last + 1}", content, time.time())
            session.add(version)
            row.modified_at = version.created_at
            return version

    def update_version(
        self, kind: Kind, record_id: str, name: str, changes: Mapping[str, Any]
    ) -> RecordVersionRow:
        """Changes fields of a version; a value of None removes a field."""
        number = self.version(kind, record_id, name).number
        with self._database.write() as session:
            version = session.get_one(RecordVersionRow, number)
            version.body = _changed(version.body, changes)
            version.modified_at = time.time()
            return version

    def delete_version(self, kind: Kind, record_id: str, name: str) -> None:
        """Deletes a version."""
        number = self.version(kind, record_id, name).number
        with self._database.write() as session:
            session.execute(delete(RecordVersionRow).where(RecordVersionRow.number == number))

    def data_set(self, dataset_id: str, version: str | None, principal: Principal) -> DatasetVersion:
        """Returns a version of a data set, by default the latest, that a user can see."""
        self.require_visible(dataset_id, principal, "read")
        body = self.get("data set", dataset_id).body
        return received(DatasetVersion, {**body, **self.version("data set", dataset_id, version).body})


def _version(row: RecordRow, name: str, content: Mapping[str, Any], now: float) -> RecordVersionRow:
    return RecordVersionRow(record=row.number, name=name, body=dict(content), created_at=now, modified_at=now)


def _changed(body: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**body, **changes}.items() if value is not None}


def _existing(session: Session, kind: Kind, record_id: str) -> RecordRow:
    row = session.scalar(select(RecordRow).where(RecordRow.id == record_id, RecordRow.kind == kind))
    if row is None:
        raise missing_error(kind, record_id)
    return row


def _conditions(query: RecordQuery) -> list[ColumnElement[bool]]:
    conditions = [RecordRow.kind == query.kind, _visible(query.principal)]
    for column, value in (
        (RecordRow.workspace_id, query.workspace_id),
        (RecordRow.owner, query.owner),
        (RecordRow.accessibility, query.accessibility),
    ):
        if value is not None:
            conditions.append(column == value)
    if query.name:
        conditions.append(RecordRow.name.icontains(query.name, autoescape=True))
    if query.ids:
        conditions.append(RecordRow.id.in_(query.ids))
    if query.started_at is not None:
        conditions.append(RecordRow.created_at >= query.started_at)
    if query.ended_at is not None:
        conditions.append(RecordRow.created_at <= query.ended_at)
    for name, values in query.values.items():
        if values:
            conditions.append(RecordRow.body[name].as_string().in_(values))
    return conditions


def _visible(principal: Principal) -> ColumnElement[bool]:
    """Returns the condition for records that a user can see: their own, and public ones of their workspaces."""
    workspaces = principal.readable_workspaces
    if workspaces is None:
        return true()
    administered = [name for name in workspaces if principal.workspaces[name] == "admin"]
    is_public = and_(RecordRow.accessibility == PUBLIC, RecordRow.workspace_id.in_(workspaces))
    is_administered = RecordRow.workspace_id.in_(administered) if administered else false()
    return or_(RecordRow.owner == principal.user, is_public, is_administered)
