"""The members of workspaces, with PAI's roles: create, get, list, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from pai_sdk.service.budgets import LISTS, BudgetedRoute, within
from pai_sdk.service.http.context import ContextOf, PrincipalOf
from pai_sdk.service.http.routes.json_responses import success
from pai_sdk.service.http.routes.parameters import PageNumber, PageSize
from pai_sdk.service.identity.workspaces import Member, right_of_roles
from pai_sdk.service.jobs.reading import read_body, read_model
from pai_sdk.service.wire_errors import invalid_parameter

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/workspaces/{workspace_id}", route_class=BudgetedRoute)


class _NewMember(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: str = Field(alias="UserId")
    roles: list[str] = Field(alias="Roles")


class _NewMembers(BaseModel):
    model_config = ConfigDict(extra="forbid")

    members: list[_NewMember] = Field(alias="Members", min_length=1, max_length=100)


@router.post("/members")
async def create_member(
    request: Request, context: ContextOf, principal: PrincipalOf, workspace_id: str
) -> Response:
    """CreateMember: make users members, or change their roles. A user's id is their name."""
    wanted = read_model(_NewMembers, read_body(await request.body())).members
    rights = {one.user_id: right_of_roles(one.roles) for one in wanted}

    def create() -> None:
        context.workspaces.require(workspace_id, principal, "admin")
        context.workspaces.set_members(workspace_id, rights)

    await run_in_threadpool(create)
    members = [_shown(Member(name, right)) for name, right in rights.items()]
    return success(request, {"Members": members})


@router.get("/members")
@within(LISTS)
def list_members(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    name: Annotated[str | None, Query(alias="MemberName")] = None,
) -> Response:
    """ListMembers, by name. A name fits when it contains what is asked for."""
    context.workspaces.require(workspace_id, principal, "read")
    found = [one for one in context.workspaces.members(workspace_id) if (name or "") in one.user]
    page = found[(page_number - 1) * page_size : page_number * page_size]
    return success(request, {"Members": [_shown(one) for one in page], "TotalCount": len(found)})


@router.get("/member")
def get_member(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    member_id: Annotated[str | None, Query(alias="MemberId")] = None,
    user_id: Annotated[str | None, Query(alias="UserId")] = None,
) -> Response:
    """GetMember."""
    name = member_id or user_id
    if not name:
        raise invalid_parameter("MemberId: is missing; give it, or UserId.")
    context.workspaces.require(workspace_id, principal, "read")
    return success(request, _shown(context.workspaces.member(workspace_id, name)))


@router.delete("/members")
def delete_members(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    member_ids: Annotated[str, Query(alias="MemberIds")],
) -> Response:
    """DeleteMembers. Their jobs stay in the workspace, and theirs."""
    context.workspaces.require(workspace_id, principal, "admin")
    context.workspaces.remove_members(workspace_id, member_ids.split(","))
    return success(request)


def _shown(member: Member) -> dict[str, Any]:
    return {
        "MemberId": member.user,
        "UserId": member.user,
        "MemberName": member.user,
        "DisplayName": member.user,
        "Roles": [member.role],
    }
