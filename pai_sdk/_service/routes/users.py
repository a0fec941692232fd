"""Users of the service and their keys: create, get, list, update, delete. Administrators only."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.http.bodies import accepts, read_json
from pai_sdk._service.identity.principal import Right
from pai_sdk._service.identity.users import UserInfo
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.routes.parameters import PageSize
from pai_sdk._service.services import users
from pai_sdk._service.services.budgets import LISTS, BudgetedRoute, within
from pai_sdk._service.services.context import ContextOf, PrincipalOf, ServiceContext
from pai_sdk._wire.base import Empty
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk._wire.users import (
    AccessKey,
    AuditList,
    AuditRecord,
    NewUser,
    ServiceUser,
    UserChanges,
    UserList,
    WorkspaceRight,
)

__all__ = ["audit_router", "router"]

router = APIRouter(prefix="/api/v1/users", route_class=BudgetedRoute)
audit_router = APIRouter(route_class=BudgetedRoute)


class _NewUser(NewUser):
    right: Right = "submit"


class _UserChanges(UserChanges):
    right: Right


@router.post("", response_model=ServiceUser)
@accepts(_NewUser)
async def create_user(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateUser: creates a user without a key, who has a bucket and is a member of a workspace."""
    new_user = await read_json(_NewUser, request)
    record_created_id(request, new_user.name)
    created = await run_in_threadpool(
        users.create_user, context, principal, new_user.name, new_user.right, new_user.workspace_id
    )
    return success(request, _record(context, created))


@router.get("", response_model=UserList)
@within(LISTS)
def list_users(request: Request, context: ContextOf) -> Response:
    """ListUsers, by name."""
    records = [_record(context, user) for user in context.users.list()]
    return success(request, UserList(users=records, total_count=len(records)))


@router.get("/{name}", response_model=ServiceUser)
def get_user(request: Request, context: ContextOf, name: str) -> Response:
    """GetUser."""
    return success(request, _record(context, context.users.get(name)))


@router.put("/{name}", response_model=Empty)
@accepts(_UserChanges)
async def update_user(request: Request, context: ContextOf, name: str) -> Response:
    """UpdateUser: the right of all their keys."""
    changes = await read_json(_UserChanges, request)
    await run_in_threadpool(context.users.set_right, name, changes.right)
    return success(request)


@router.delete("/{name}", response_model=Empty)
def delete_user(request: Request, context: ContextOf, name: str) -> Response:
    """DeleteUser, with all keys. Queued jobs are stopped; running jobs and the bucket stay, for administrators."""
    context.users.remove(name)
    context.runner.wake()  # it stops the queued jobs
    return success(request)


@router.post("/{name}/keys", response_model=AccessKey)
def create_key(request: Request, context: ContextOf, name: str) -> Response:
    """CreateAccessKey. The secret is in this response, and nowhere else."""
    key = context.users.new_key(name)
    record_created_id(request, key.key_id)
    return success(request, AccessKey(access_key_id=key.key_id, access_key_secret=key.secret))


@router.delete("/{name}/keys/{key_id}", response_model=Empty)
def delete_key(request: Request, context: ContextOf, name: str, key_id: str) -> Response:
    """DeleteAccessKey: no request that it signs is accepted from now on."""
    context.users.revoke(name, key_id)
    return success(request)


@audit_router.get("/api/v1/audit", response_model=AuditList)
@within(LISTS)
def list_audit_entries(
    request: Request,
    context: ContextOf,
    user: Annotated[str | None, Query(alias="User")] = None,
    before: Annotated[int | None, Query(alias="Before", ge=1)] = None,
    page_size: PageSize = 100,
) -> Response:
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
        )
        for entry in context.audit.entries(user=user, before=before, limit=page_size)
    ]
    return success(request, AuditList(entries=records))


def _record(context: ServiceContext, user: UserInfo) -> ServiceUser:
    return ServiceUser(
        name=user.name,
        right=user.right,
        gmt_create_time=wire_time(user.created_at),
        access_key_ids=list(user.keys),
        bucket=context.bucket_of_user(user.name),
        workspaces=[
            WorkspaceRight(workspace_id=workspace_id, right=right)
            for workspace_id, right in sorted(user.workspaces.items())
        ],
    )
