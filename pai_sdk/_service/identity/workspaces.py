"""The workspaces of a service: each has members, jobs, models, experiments and algorithms."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import Principal, Right
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.dlc_models import RecordRow
from pai_sdk._service.state.models import (
    Algorithm,
    ExperimentRow,
    Job,
    MemberRow,
    ModelRow,
    ScheduleRow,
    UserRow,
    WorkspaceRow,
)
from pai_sdk._service.wire_errors import WireError, invalid_parameter

ROLES: dict[str, Right] = {
    "PAI.WorkspaceOwner": "admin",
    "PAI.WorkspaceAdmin": "admin",
    "PAI.AlgoDeveloper": "submit",
    "PAI.WorkspaceGuest": "read",
}
"""The supported roles of PAI, and the right that each has in the workspace."""

_ROLE_OF: dict[str, str] = {"admin": "PAI.WorkspaceAdmin", "submit": "PAI.AlgoDeveloper"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_CONTENTS = (Job, ModelRow, ExperimentRow, Algorithm, ScheduleRow, RecordRow)


@dataclass(frozen=True)
class WorkspaceInfo:
    """A workspace; `created_at` is in seconds since 1970, UTC."""

    id: str
    name: str
    created_at: float


@dataclass(frozen=True)
class Member:
    """A member of a workspace with their right in it."""

    user: str
    right: Right

    @property
    def role(self) -> str:
        """Returns the role of PAI with this right."""
        return _ROLE_OF.get(self.right, "PAI.WorkspaceGuest")


def right_of_roles(roles: Sequence[str]) -> Right:
    """Returns the combined right of roles."""
    unknown = [role for role in roles if role not in ROLES]
    if unknown or not roles:
        text = f"{unknown[0][:60]!r} is not" if unknown else "give"
        raise invalid_parameter(f"Roles: {text} one of {', '.join(ROLES)}.")
    rights = {ROLES[role] for role in roles}
    return "admin" if "admin" in rights else "submit" if "submit" in rights else "read"


class WorkspaceTable:
    """All workspaces; the default one always exists. Safe to use from several threads.

    They are in memory, as users are, because each submission needs one. A change reads them again before it is
    confirmed. Only one process changes them at a time.
    """

    def __init__(
        self, database: Database, default_id: str, changing: Callable[[], AbstractContextManager[Session]]
    ) -> None:
        self._database = database
        self._changing_rights = changing
        # Locked while they are read: otherwise a slow reader could replace a later result by an older one.
        self._lock = threading.Lock()
        self.default_id = default_id
        with database.write() as session:
            if session.get(WorkspaceRow, default_id) is None:
                session.add(WorkspaceRow(id=default_id, name="local", created_at=time.time()))
        # Replaced and never modified, so readers need no lock. None after a change that could not be read again.
        self._workspaces: list[WorkspaceInfo] | None = self._read()

    def visible(self, principal: Principal) -> list[WorkspaceInfo]:
        """Returns the workspaces of a user, the oldest first; all of them for administrators."""
        workspaces = self._workspaces
        if workspaces is None:
            workspaces = self._refresh()
        return [workspace for workspace in workspaces if principal.has_right_in(workspace.id, "read")]

    def require(self, workspace_id: str, principal: Principal, right: Right) -> WorkspaceInfo:
        """Returns a workspace in which the user has a right; raises 404 for non-members, else 403."""
        visible = {workspace.id: workspace for workspace in self.visible(principal)}
        if workspace_id not in visible:
            names = ", ".join(map(repr, visible)) or "none"
            raise WireError(
                404, "WORKSPACE_NOT_FOUND", f"There is no workspace {workspace_id[:60]!r} here, only {names}."
            )
        principal.require_in(workspace_id, right)
        return visible[workspace_id]

    def add(self, name: str) -> WorkspaceInfo:
        """Adds a workspace without members."""
        if not _NAME.fullmatch(name):
            message = f"WorkspaceName: {name[:60]!r} is not 1 to 63 letters, digits, '-' and '_' after a letter."
            raise invalid_parameter(message)
        with self._changing() as session:
            rows = list(session.scalars(select(WorkspaceRow)))
            if any(row.name == name for row in rows):
                raise WireError(409, "WORKSPACE_EXISTS", f"There is a workspace of the name {name!r} already.")
            numbers = [int(row.id) for row in rows if row.id.isdecimal()]
            row = WorkspaceRow(id=str(max(numbers, default=0) + 1), name=name, created_at=time.time())
            session.add(row)
            return _info(row)

    def remove(self, workspace_id: str) -> None:
        """Removes an empty workspace that is not the default one."""
        with self._changing() as session:
            used = [
                model.__tablename__
                for model in _CONTENTS
                if session.scalar(select(exists().where(model.workspace_id == workspace_id)))
            ]
            if used or workspace_id == self.default_id:
                reason = f"has {', '.join(used)}; delete these first" if used else "is the default one"
                raise WireError(409, "WORKSPACE_IN_USE", f"The workspace {workspace_id!r} {reason}.")
            session.execute(delete(MemberRow).where(MemberRow.workspace_id == workspace_id))
            session.execute(delete(WorkspaceRow).where(WorkspaceRow.id == workspace_id))

    # ---- members ------------------------------------------------------------------------------------------

    def members(self, workspace_id: str) -> list[Member]:
        """Returns the members of a workspace, sorted by name."""
        with self._database.read() as session:
            rows = session.scalars(
                select(MemberRow).where(MemberRow.workspace_id == workspace_id).order_by(MemberRow.user)
            )
            return [Member(row.user, _right(row.right)) for row in rows]

    def member(self, workspace_id: str, user: str) -> Member:
        """Returns a member, or raises 404."""
        match = next((member for member in self.members(workspace_id) if member.user == user), None)
        if match is None:
            raise WireError(
                404, "MEMBER_NOT_FOUND", f"The workspace {workspace_id!r} has no member {user[:60]!r}."
            )
        return match

    def set_members(self, workspace_id: str, rights: dict[str, Right]) -> None:
        """Adds members to a workspace, or changes their rights in it; all of them, or none."""
        with self._changing() as session:
            for name, right in rights.items():
                if session.get(UserRow, name) is None:
                    raise WireError(404, "USER_NOT_FOUND", f"There is no user {name[:60]!r}.")
                session.merge(MemberRow(workspace_id=workspace_id, user=name, right=right))

    def remove_members(self, workspace_id: str, names: Sequence[str]) -> None:
        """Removes members; names without a membership are ignored."""
        with self._changing() as session:
            session.execute(
                delete(MemberRow).where(MemberRow.workspace_id == workspace_id, MemberRow.user.in_(names))
            )

    # ---- inside -------------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[Session]:
        try:
            with self._changing_rights() as session:
                yield session
        finally:
            # Also after an error: the commit may have succeeded although its response was lost.
            self._refresh()

    def _refresh(self) -> list[WorkspaceInfo]:
        with self._lock:
            # First: if the read fails, requests must not use the old list.
            self._workspaces = None
            self._workspaces = workspaces = self._read()
        return workspaces

    def _read(self) -> list[WorkspaceInfo]:
        with self._database.read() as session:
            rows = session.scalars(select(WorkspaceRow).order_by(WorkspaceRow.created_at, WorkspaceRow.id))
            return [_info(row) for row in rows]


def _info(row: WorkspaceRow) -> WorkspaceInfo:
    return WorkspaceInfo(row.id, row.name, row.created_at)


def _right(text: str) -> Right:
    return next((right for right in ROLES.values() if right == text), "read")
