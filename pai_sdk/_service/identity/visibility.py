"""The jobs that a user can see: their own, public ones of their workspaces, all of workspaces they administer.

Invisible and missing jobs get the same response.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, false, or_, true

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.state.models import Job

PRIVATE = "PRIVATE"
"""The accessibility of a job that only its owner and administrators can see."""

PUBLIC = "PUBLIC"
"""The accessibility of a job that all members of its workspace can see."""


def visible_jobs(principal: Principal) -> ColumnElement[bool]:
    """Returns the condition for queries of jobs that the user can see."""
    if principal.has_right("admin"):
        return true()
    member_of = [
        workspace_id for workspace_id in principal.workspaces if principal.has_right_in(workspace_id, "read")
    ]
    administered = [workspace_id for workspace_id in member_of if principal.workspaces[workspace_id] == "admin"]
    is_shared = and_(Job.accessibility == PUBLIC, Job.workspace_id.in_(member_of)) if member_of else false()
    is_administered = Job.workspace_id.in_(administered) if administered else false()
    return or_(Job.owner == principal.user, is_shared, is_administered)


def may_change(principal: Principal, owner: str, workspace_id: str) -> bool:
    """Returns whether a job that the user can see is theirs to change, if their key may change jobs at all."""
    is_administrator = "admin" in (principal.right, principal.workspaces.get(workspace_id))
    return is_administrator or owner == principal.user
