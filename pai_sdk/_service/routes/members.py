"""The members of workspaces, with PAI's roles: create, get, list, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.identity.workspaces import Member, right_of_roles
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.parameters import PageNumber, PageSize
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.workspaces import MemberList, MemberRecord, NewMember, NewMembers

router = APIRouter(prefix="/api/v1/workspaces/{workspace_id}", route_class=ActionRoute)


class _NewMembers(NewMembers):
    members: list[NewMember] = Field(min_length=1, max_length=100)


@router.post("/members")
def create_member(context: ContextOf, principal: PrincipalOf, workspace_id: str, body: _NewMembers) -> MemberList:
    """CreateMember: make users members, or change their roles. A user's id is their name."""
    rights = {member.user_id: right_of_roles(member.roles) for member in body.members}

    def create() -> None:
        context.workspaces.require(workspace_id, principal, "admin")
        context.workspaces.set_members(workspace_id, rights)

    create()
    return MemberList(members=[_record(Member(name, right)) for name, right in rights.items()])


@router.get("/members")
@within(LISTS)
def list_members(
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    name: Annotated[str | None, Query(alias="MemberName")] = None,
) -> MemberList:
    """ListMembers, by name. `MemberName` may be a part of a name."""
    context.workspaces.require(workspace_id, principal, "read")
    members = [member for member in context.workspaces.members(workspace_id) if (name or "") in member.user]
    page = members[(page_number - 1) * page_size : page_number * page_size]
    return MemberList(members=[_record(member) for member in page], total_count=len(members))


@router.get("/member")
def get_member(
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    member_id: Annotated[str | None, Query(alias="MemberId")] = None,
    user_id: Annotated[str | None, Query(alias="UserId")] = None,
) -> MemberRecord:
    """GetMember."""
    name = member_id or user_id
    if not name:
        raise invalid_parameter("MemberId: is missing; give it, or UserId.")
    context.workspaces.require(workspace_id, principal, "read")
    return _record(context.workspaces.member(workspace_id, name))


@router.delete("/members")
def delete_members(
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    member_ids: Annotated[str, Query(alias="MemberIds")],
) -> None:
    """DeleteMembers. Their jobs stay in the workspace, and theirs."""
    context.workspaces.require(workspace_id, principal, "admin")
    context.workspaces.remove_members(workspace_id, member_ids.split(","))


def _record(member: Member) -> MemberRecord:
    return MemberRecord(
        member_id=member.user,
        user_id=member.user,
        member_name=member.user,
        display_name=member.user,
        roles=[member.role],
    )
