"""Users of the service and their keys, the audit log, the state of the service. Administrators only."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import ConfigDict

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.principal import Right
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.identity.users import UserInfo
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.parameters import PageSize
from pai_sdk._service.services import users
from pai_sdk._service.services.administration import read_administration, read_disk_parts
from pai_sdk._service.services.budgets import LISTS, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.context import ContextOf, ServiceContext
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.base import response_body
from pai_sdk._wire.pai.wire import seconds_of, wire_time
from pai_sdk._wire.users import (
    AccessKey,
    Administration,
    AuditList,
    AuditRecord,
    DiskParts,
    NewAccessKey,
    NewUser,
    ServiceUser,
    UserChanges,
    UserKey,
    UserList,
    WorkspaceRight,
)

router = APIRouter(prefix="/api/v1/users", route_class=ActionRoute)
audit_router = APIRouter(route_class=ActionRoute)
administration_router = APIRouter(prefix="/api/v1/administration", route_class=BudgetedRoute)


class _NewUser(NewUser):
    right: Right = "submit"


class _UserChanges(UserChanges):
    right: Right


class _NewAccessKey(NewAccessKey):
    model_config = ConfigDict(populate_by_name=False)  # FastAPI would accept `expiration` too


@router.post("")
def create_user(request: Request, context: ContextOf, principal: PrincipalOf, new_user: _NewUser) -> ServiceUser:
    """CreateUser: creates a user without a key, who has a bucket and is a member of a workspace."""
    record_created_id(request, new_user.name)
    created = users.create_user(context, principal, new_user.name, new_user.right, new_user.workspace_id)
    return _record(context, created)


@router.get("")
@within(LISTS)
def list_users(context: ContextOf) -> UserList:
    """ListUsers, by name."""
    records = [_record(context, user) for user in context.users.list()]
    return UserList(users=records, total_count=len(records))


@router.get("/{name}")
def get_user(context: ContextOf, name: str) -> ServiceUser:
    """GetUser."""
    return _record(context, context.users.get(name))


@router.put("/{name}")
def update_user(context: ContextOf, name: str, changes: _UserChanges) -> None:
    """UpdateUser: the right of all their keys."""
    context.users.set_right(name, changes.right)


@router.delete("/{name}")
def delete_user(context: ContextOf, name: str) -> None:
    """DeleteUser, with all keys. Queued jobs are stopped; running jobs and the bucket stay, for administrators."""
    context.users.remove(name)
    context.runner.wake()  # it stops the queued jobs


@router.post("/{name}/keys")
def create_key(
    request: Request, context: ContextOf, name: str, body: Annotated[_NewAccessKey | None, Body()] = None
) -> AccessKey:
    """CreateAccessKey. The secret is in this response, and nowhere else."""
    expiration = None if body is None else body.expiration
    expires_at = seconds_of(expiration)
    if expiration is not None and expires_at is None:
        raise invalid_parameter(f"Expiration: {expiration[:60]!r} is not a time such as 2027-01-31T08:00:00Z.")
    key = context.users.new_key(name, expires_at=expires_at)
    record_created_id(request, key.key_id, expires_at=expires_at)
    return AccessKey(access_key_id=key.key_id, access_key_secret=key.secret, expiration=wire_time(expires_at))


@router.delete("/{name}/keys/{key_id}")
def delete_key(context: ContextOf, name: str, key_id: str) -> None:
    """DeleteAccessKey: no request that it signs is accepted from now on."""
    context.users.revoke(name, key_id)


@audit_router.get("/api/v1/audit")
@within(LISTS)
def list_audit_entries(
    context: ContextOf,
    user: Annotated[str | None, Query(alias="User")] = None,
    action: Annotated[str, Query(alias="Action", max_length=200, description="A part of `METHOD PATH`.")] = "",
    before: Annotated[int | None, Query(alias="Before", ge=1, le=1_000_000_000)] = None,
    page_size: PageSize = 100,
) -> AuditList:
    """ListAuditEntries: requests that changed something or were refused, and failed sign-ins, the newest first.

    The request for the next page has the last `Number` of this one as `Before`.
    """
    records = [
        AuditRecord(
            number=entry.number,
            time=wire_time(entry.at),
            user=entry.user,
            access_key_id=entry.key_id,
            method=entry.method,
            path=entry.path,
            status=entry.status,
            client=entry.client,
            created_id=entry.created_id,
            expiration=wire_time(entry.expires_at),
        )
        for entry in context.audit.entries(user=user, action=action, before=before, limit=page_size)
    ]
    return AuditList(entries=records)


@administration_router.get("", response_model=Administration)
@within(LISTS)
def get_administration(context: ContextOf, work: WorkOf) -> Response:
    """Read users with their keys, quotas and use, workspaces with members, the process, its lease and its disk."""
    return json_response(response_body(read_administration(context)), LIVE, work)


@administration_router.get("/disk", response_model=DiskParts)
@within(LISTS)
def get_disk_parts(context: ContextOf, work: WorkOf) -> Response:
    """Read what uses the disk of the data folder: all files are counted."""
    return json_response(response_body(read_disk_parts(context, work.check)), LIVE, work)


def _record(context: ServiceContext, user: UserInfo) -> ServiceUser:
    return ServiceUser(
        name=user.name,
        right=user.right,
        gmt_create_time=wire_time(user.created_at),
        access_key_ids=[key.id for key in user.keys],
        access_keys=[
            UserKey(
                access_key_id=key.id,
                gmt_create_time=wire_time(key.created_at),
                expiration=wire_time(key.expires_at),
            )
            for key in user.keys
        ],
        bucket=context.bucket_of_user(user.name),
        workspaces=[
            WorkspaceRight(workspace_id=workspace_id, right=right)
            for workspace_id, right in sorted(user.workspaces.items())
        ],
    )
