"""Workspaces on the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from pai_sdk.api.paging import pages
from pai_sdk.api.responses import read_items, read_model
from pai_sdk.api.transport import Transport
from pai_sdk.errors import NotFoundError
from pai_sdk.schemas.wire import Received

VERSION = "2021-02-04"
_WORKSPACES = "/api/v1/workspaces"
_WORKSPACE = _WORKSPACES + "/{workspace_id}"
_MEMBERS = _WORKSPACE + "/members"


class WorkspaceRecord(Received):
    """A workspace, as the service describes it."""

    workspace_id: str | None = None
    workspace_name: str | None = None
    display_name: str | None = None
    description: str | None = None
    status: str | None = None
    is_default: bool | None = None


class MemberRecord(Received):
    """A member of a workspace, as the service describes them."""

    member_id: str | None = None
    user_id: str | None = None
    member_name: str | None = None
    roles: list[str] = Field(default_factory=list)


class Workspaces:
    """The actions on workspaces and their members, one method each.

    Args:
        transport: to the workspace API, version `VERSION`.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, workspace_id: str) -> WorkspaceRecord:
        """GetWorkspace."""
        response = self._transport.call("GetWorkspace", "GET", _WORKSPACE, {"workspace_id": workspace_id})
        return read_model(WorkspaceRecord, response, "GetWorkspace", workspace_id=workspace_id)

    def default(self) -> WorkspaceRecord:
        """GetDefaultWorkspace."""
        response = self._transport.call("GetDefaultWorkspace", "GET", "/api/v1/defaultWorkspaces")
        return read_model(WorkspaceRecord, response, "GetDefaultWorkspace")

    def list(self, *, name: str | None = None) -> Iterator[WorkspaceRecord]:
        """ListWorkspaces, all pages.

        Args:
            name: only workspaces with this text in their name.
        """

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            query = {"WorkspaceName": name, "PageNumber": number, "PageSize": size}
            return self._transport.call("ListWorkspaces", "GET", _WORKSPACES, query=query).json

        return read_items(WorkspaceRecord, pages(fetch, "Workspaces"), "ListWorkspaces")

    def create(self, name: str) -> WorkspaceRecord:
        """CreateWorkspace, on a service of this package; Alibaba Cloud requires more than a name.

        Args:
            name: letters, digits, `-` and `_`, beginning with a letter.
        """
        response = self._transport.call("CreateWorkspace", "POST", _WORKSPACES, body={"WorkspaceName": name})
        return read_model(WorkspaceRecord, response, "CreateWorkspace", workspace_name=name)

    def delete(self, workspace_id: str) -> None:
        """DeleteWorkspace."""
        self._transport.call("DeleteWorkspace", "DELETE", _WORKSPACE, {"workspace_id": workspace_id})

    def members(self, workspace_id: str) -> Iterator[MemberRecord]:
        """ListMembers, all pages."""

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            query = {"PageNumber": number, "PageSize": size}
            names = {"workspace_id": workspace_id}
            return self._transport.call("ListMembers", "GET", _MEMBERS, names, query).json

        return read_items(MemberRecord, pages(fetch, "Members"), "ListMembers")

    def add_member(self, workspace_id: str, user_id: str, *, role: str = "PAI.AlgoDeveloper") -> None:
        """CreateMember: make a user a member, or change their role.

        Args:
            workspace_id: of the workspace.
            user_id: of the user; on a service of this package the name.
            role: such as `PAI.WorkspaceAdmin`, `PAI.AlgoDeveloper` or `PAI.WorkspaceGuest`.
        """
        body = {"Members": [{"UserId": user_id, "Roles": [role]}]}
        self._transport.call("CreateMember", "POST", _MEMBERS, {"workspace_id": workspace_id}, body=body)

    def remove_member(self, workspace_id: str, member_id: str) -> None:
        """DeleteMembers."""
        query = {"MemberIds": member_id}
        self._transport.call("DeleteMembers", "DELETE", _MEMBERS, {"workspace_id": workspace_id}, query)

    def model_export_path(self, workspace_id: str) -> str | None:
        """The folder for models that the workspace sets (GetConfig, `modelExportPath`), or None when it sets none.

        The service writes it as an OSS URI whose bucket is the workspace's default one.
        """
        try:
            response = self._transport.call(
                "GetConfig",
                "GET",
                _WORKSPACES + "/{workspace_id}/config",
                {"workspace_id": workspace_id},
                {"CategoryName": "CommonResourceConfig", "ConfigKey": "modelExportPath"},
            )
        except NotFoundError:
            return None
        return response.json.get("ConfigValue") or None
