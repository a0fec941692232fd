"""Workspaces on the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pai_sdk._client.api.paging import pages
from pai_sdk._client.api.responses import read_items, read_model
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.workspaces import (
    MemberList,
    MemberRecord,
    NewMember,
    NewMembers,
    NewWorkspace,
    WorkspaceConfig,
    WorkspaceList,
    WorkspaceRecord,
)
from pai_sdk.errors import NotFoundError

__all__ = ["VERSION", "MemberRecord", "WorkspaceRecord", "Workspaces"]

VERSION = "2021-02-04"
_WORKSPACES = "/api/v1/workspaces"
_WORKSPACE = _WORKSPACES + "/{workspace_id}"
_MEMBERS = _WORKSPACE + "/members"


class Workspaces:
    """Actions on workspaces and members; the transport is that of the workspace API, version `VERSION`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, workspace_id: str) -> WorkspaceRecord:
        """Calls GetWorkspace."""
        response = self._transport.call("GetWorkspace", "GET", _WORKSPACE, {"workspace_id": workspace_id})
        return read_model(WorkspaceRecord, response, "GetWorkspace", workspace_id=workspace_id)

    def default(self) -> WorkspaceRecord:
        """Calls GetDefaultWorkspace."""
        response = self._transport.call("GetDefaultWorkspace", "GET", "/api/v1/defaultWorkspaces")
        return read_model(WorkspaceRecord, response, "GetDefaultWorkspace")

    def list(self, *, name: str | None = None) -> Iterator[WorkspaceRecord]:
        """Calls ListWorkspaces, all pages; with `name`, only workspaces with this string in their name."""

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            query = wire_names(workspace_name=name, page_number=number, page_size=size)
            return self._transport.call("ListWorkspaces", "GET", _WORKSPACES, query=query).json

        return read_items(WorkspaceRecord, pages(fetch, WorkspaceList), "ListWorkspaces")

    def create(self, name: str) -> WorkspaceRecord:
        """Calls CreateWorkspace of a service of this package; Alibaba Cloud requires more than a name."""
        body = NewWorkspace(workspace_name=name).to_wire()
        response = self._transport.call("CreateWorkspace", "POST", _WORKSPACES, body=body)
        return read_model(WorkspaceRecord, response, "CreateWorkspace", workspace_name=name)

    def delete(self, workspace_id: str) -> None:
        """Calls DeleteWorkspace."""
        self._transport.call("DeleteWorkspace", "DELETE", _WORKSPACE, {"workspace_id": workspace_id})

    def members(self, workspace_id: str) -> Iterator[MemberRecord]:
        """ListMembers, all pages."""

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            query = wire_names(page_number=number, page_size=size)
            names = {"workspace_id": workspace_id}
            return self._transport.call("ListMembers", "GET", _MEMBERS, names, query).json

        return read_items(MemberRecord, pages(fetch, MemberList), "ListMembers")

    def add_member(self, workspace_id: str, user_id: str, *, role: str = "PAI.AlgoDeveloper") -> None:
        """Calls CreateMember: makes a user a member, or changes the role.

        Args:
            workspace_id: id of the workspace.
            user_id: id of the user; on a service of this package the name.
            role: such as `PAI.WorkspaceAdmin`, `PAI.AlgoDeveloper` or `PAI.WorkspaceGuest`.
        """
        body = NewMembers(members=[NewMember(user_id=user_id, roles=[role])]).to_wire()
        self._transport.call("CreateMember", "POST", _MEMBERS, {"workspace_id": workspace_id}, body=body)

    def remove_member(self, workspace_id: str, member_id: str) -> None:
        """Calls DeleteMembers."""
        query = wire_names(member_ids=member_id)
        self._transport.call("DeleteMembers", "DELETE", _MEMBERS, {"workspace_id": workspace_id}, query)

    def model_export_path(self, workspace_id: str) -> str | None:
        """Returns the folder for models that the workspace sets (GetConfig, `modelExportPath`), or None."""
        try:
            response = self._transport.call(
                "GetConfig",
                "GET",
                _WORKSPACES + "/{workspace_id}/config",
                {"workspace_id": workspace_id},
                wire_names(category_name="CommonResourceConfig", config_key="modelExportPath"),
            )
        except NotFoundError:
            return None
        # An OSS URI, whose bucket is the workspace's default one.
        return read_model(WorkspaceConfig, response, "GetConfig").config_value or None
