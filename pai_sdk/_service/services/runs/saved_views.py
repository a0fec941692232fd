"""Saved views of the page: each belongs to a user, who can share it with the members of their workspaces."""

from __future__ import annotations

import time

from sqlalchemy import ColumnElement, func, or_, select, true

from pai_sdk._service.identity.principal import OPERATOR, Principal
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import MemberRow, SavedViewRow, UserRow
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.annotations import NewView, SavedView, SavedViews

MAX_VIEWS = 100
"""Maximum number of views of a user, and of views of others in a list."""

_MAX_NAME_LENGTH = 100


def list_views(database: Database, principal: Principal) -> SavedViews:
    """Returns the views of a user, and the newest ones that others share with them, by name."""
    is_mine = SavedViewRow.owner == principal.user
    newest = select(SavedViewRow).order_by(SavedViewRow.modified_at.desc()).limit(MAX_VIEWS)
    with database.read() as session:
        rows = [
            *session.scalars(newest.where(is_mine)),
            *session.scalars(newest.where(~is_mine, SavedViewRow.is_shared, _shared_with(principal))),
        ]
    return SavedViews(views=[_wire(row, principal) for row in sorted(rows, key=lambda row: (row.name, row.owner))])


def save_view(database: Database, principal: Principal, name: str, view: NewView) -> SavedView:
    """Saves a view of a user under a name, or replaces it."""
    if not name.strip() or len(name) > _MAX_NAME_LENGTH or not name.isprintable() or "/" in name:
        raise invalid_parameter(f"name: is not a name of 1 to {_MAX_NAME_LENGTH} printable characters without /.")
    if view.shared:
        principal.require("submit")
    row = SavedViewRow(owner=principal.user, name=name, is_shared=view.shared, modified_at=time.time())
    row.fields = view.fields
    with database.write() as session:
        conditions = SavedViewRow.owner == principal.user, SavedViewRow.name != name
        if (session.scalar(select(func.count()).where(*conditions)) or 0) >= MAX_VIEWS:
            raise invalid_parameter(f"A user can have {MAX_VIEWS} views; delete one of them first.")
        session.merge(row)
    return _wire(row, principal)


def delete_view(database: Database, principal: Principal, name: str) -> None:
    """Deletes a view of a user; raises WireError if they have none of this name."""
    with database.write() as session:
        row = session.get(SavedViewRow, (principal.user, name))
        if row is None:
            raise WireError(404, "VIEW_NOT_FOUND", f"You have no view {name[:_MAX_NAME_LENGTH]!r}.")
        session.delete(row)


def _shared_with(principal: Principal) -> ColumnElement[bool]:
    """Returns the condition for owners who share with the user: of their workspaces, and administrators."""
    workspaces = principal.readable_workspaces
    if workspaces is None:
        return true()
    members = select(MemberRow.user).where(MemberRow.workspace_id.in_(workspaces))
    administrators = select(UserRow.name).where(UserRow.right == "admin")
    owner = SavedViewRow.owner
    return or_(owner == OPERATOR, owner.in_(members), owner.in_(administrators))


def _wire(row: SavedViewRow, principal: Principal) -> SavedView:
    return SavedView(
        name=row.name,
        fields=row.fields,
        shared=row.is_shared,
        owner=row.owner,
        mine=row.owner == principal.user,
    )
