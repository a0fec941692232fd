"""Users of the service and their keys: create, get, list, update, delete. Administrators only."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from pai_sdk.schemas.wire import wire_time
from pai_sdk.service.budgets import LISTS, BudgetedRoute, within
from pai_sdk.service.http.auditing import note_created
from pai_sdk.service.http.context import ContextOf, PrincipalOf, ServiceContext
from pai_sdk.service.http.routes.json_responses import success
from pai_sdk.service.http.routes.parameters import PageSize, check_workspace
from pai_sdk.service.identity.principal import Right
from pai_sdk.service.identity.users import UserInfo
from pai_sdk.service.jobs.reading import read_body, read_model
from pai_sdk.service.wire_errors import WireError

__all__ = ["audit_router", "router"]

router = APIRouter(prefix="/api/v1/users", route_class=BudgetedRoute)
audit_router = APIRouter(route_class=BudgetedRoute)


class _NewUser(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(alias="Name")
    right: Right = Field(default="submit", alias="Right")
    workspace_id: str | None = Field(default=None, alias="WorkspaceId")


class _ChangedUser(BaseModel):
    model_config = ConfigDict(extra="forbid")

    right: Right = Field(alias="Right")


@router.post("")
async def create_user(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateUser: a user with a bucket of their own, and a member of a workspace. They have no key yet."""
    wanted = read_model(_NewUser, read_body(await request.body()))

    def create() -> UserInfo:
        workspace_id = check_workspace(context, principal, wanted.workspace_id)
        bucket = context.bucket_of_user(wanted.name)
        if context.bucket_exists(bucket):
            context.users.check_free(wanted.name)  # the bucket of a user is no other problem
            message = f"There is a bucket {bucket!r} already, which may be someone else's; choose another name."
            raise WireError(409, "BUCKET_EXISTS", message)
        context.users.add(wanted.name, wanted.right, workspace_id=workspace_id)
        context.make_bucket(wanted.name)  # where this is cut off, the next start of the service does it
        return context.users.get(wanted.name)

    note_created(request, wanted.name)
    return success(request, _shown(context, await run_in_threadpool(create)))


@router.get("")
@within(LISTS)
def list_users(request: Request, context: ContextOf) -> Response:
    """ListUsers, by name."""
    found = [_shown(context, user) for user in context.users.list()]
    return success(request, {"Users": found, "TotalCount": len(found)})


@router.get("/{name}")
def get_user(request: Request, context: ContextOf, name: str) -> Response:
    """GetUser."""
    return success(request, _shown(context, context.users.get(name)))


@router.put("/{name}")
async def update_user(request: Request, context: ContextOf, name: str) -> Response:
    """UpdateUser: the right of all their keys."""
    wanted = read_model(_ChangedUser, read_body(await request.body()))
    await run_in_threadpool(context.users.set_right, name, wanted.right)
    return success(request)


@router.delete("/{name}")
def delete_user(request: Request, context: ContextOf, name: str) -> Response:
    """DeleteUser, with all keys. Queued jobs are stopped; running jobs and the bucket stay, for administrators."""
    context.users.remove(name)
    context.runner.wake()  # it stops the queued jobs
    return success(request)


@router.post("/{name}/keys")
def create_key(request: Request, context: ContextOf, name: str) -> Response:
    """CreateAccessKey. The secret is in this response, and nowhere else."""
    key = context.users.new_key(name)
    note_created(request, key.key_id)
    return success(request, {"AccessKeyId": key.key_id, "AccessKeySecret": key.secret})


@router.delete("/{name}/keys/{key_id}")
def delete_key(request: Request, context: ContextOf, name: str, key_id: str) -> Response:
    """DeleteAccessKey: no request that it signs is accepted from now on."""
    context.users.revoke(name, key_id)
    return success(request)


@audit_router.get("/api/v1/audit")
@within(LISTS)
def list_audit_entries(
    request: Request,
    context: ContextOf,
    user: Annotated[str | None, Query(alias="User")] = None,
    before: Annotated[int | None, Query(alias="Before", ge=1)] = None,
    page_size: PageSize = 100,
) -> Response:
    """ListAuditEntries: requests that changed something or were refused, and failed sign-ins, the newest first.

    The next page is asked for with the last `Number` of this one as `Before`.
    """
    found = context.audit.entries(user=user, before=before, limit=page_size)
    shown = [
        {
            "Number": one.number,
            "Time": wire_time(one.at),
            "User": one.user,
            "AccessKeyId": one.key_id,
            "Method": one.method,
            "Path": one.path,
            "Status": one.status,
            "Client": one.client,
            "CreatedId": one.created_id,
        }
        for one in found
    ]
    return success(request, {"Entries": shown})


def _shown(context: ServiceContext, user: UserInfo) -> dict[str, Any]:
    return {
        "Name": user.name,
        "Right": user.right,
        "GmtCreateTime": wire_time(user.created_at),
        "AccessKeyIds": list(user.keys),
        "Bucket": context.bucket_of_user(user.name),
        "Workspaces": [{"WorkspaceId": one, "Right": right} for one, right in sorted(user.workspaces.items())],
    }
