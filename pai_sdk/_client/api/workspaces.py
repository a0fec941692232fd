"""Workspaces on the wire."""

from __future__ import annotations

from collections.abc import Iterator

from pai_sdk._client.api.resource import Resource
from pai_sdk._client.api.responses import read_model
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

VERSION = "2021-02-04"
_WORKSPACES = "/api/v1/workspaces"
_WORKSPACE = _WORKSPACES + "/{workspace_id}"
_MEMBERS = _WORKSPACE + "/members"


class Workspaces(Resource):
    """Actions on workspaces and members; the transport is that of the workspace API, version `VERSION`."""

    def get(self, workspace_id: str) -> WorkspaceRecord:
        """Calls GetWorkspace."""
        params = {"workspace_id": workspace_id}
        return read_model(WorkspaceRecord, self._call("GetWorkspace", "GET", _WORKSPACE, params), **params)

    def default(self) -> WorkspaceRecord:
        """Calls GetDefaultWorkspace."""
        response = self._call("GetDefaultWorkspace", "GET", "/api/v1/defaultWorkspaces")
        return read_model(WorkspaceRecord, response)

    def list(self, *, name: str | None = None) -> Iterator[WorkspaceRecord]:
        """Calls ListWorkspaces, all pages; with `name`, only workspaces with this string in their name."""
        query = wire_names(workspace_name=name)
        return self._list(WorkspaceRecord, WorkspaceList, "ListWorkspaces", _WORKSPACES, query=query)

    def create(self, name: str) -> WorkspaceRecord:
        """Calls CreateWorkspace of a service of this package; Alibaba Cloud requires more than a name."""
        body = NewWorkspace(workspace_name=name).to_wire()
        response = self._call("CreateWorkspace", "POST", _WORKSPACES, body=body)
        return read_model(WorkspaceRecord, response, workspace_name=name)

    def delete(self, workspace_id: str) -> None:
        """Calls DeleteWorkspace."""
        self._call("DeleteWorkspace", "DELETE", _WORKSPACE, {"workspace_id": workspace_id})

    def members(self, workspace_id: str) -> Iterator[MemberRecord]:
        """ListMembers, all pages."""
        return self._list(MemberRecord, MemberList, "ListMembers", _MEMBERS, {"workspace_id": workspace_id})

    def add_member(self, workspace_id: str, user_id: str, *, role: str = "PAI.AlgoDeveloper") -> None:
        """Calls CreateMember: makes a user a member, or changes the role.

        Args:
            workspace_id: id of the workspace.
            user_id: id of the user; on a service of this package the name.
            role: such as `PAI.WorkspaceAdmin`, `PAI.AlgoDeveloper` or `PAI.WorkspaceGuest`.
        """
        body = NewMembers(members=[NewMember(user_id=user_id, roles=[role])]).to_wire()
        self._call("CreateMember", "POST", _MEMBERS, {"workspace_id": workspace_id}, body=body)

    def remove_member(self, workspace_id: str, member_id: str) -> None:
        """Calls DeleteMembers."""
        query = wire_names(member_ids=member_id)
        self._call("DeleteMembers", "DELETE", _MEMBERS, {"workspace_id": workspace_id}, query)

    def model_export_path(self, workspace_id: str) -> str | None:
        """Returns the folder for models that the workspace sets (GetConfig, `modelExportPath`), or None."""
        try:
            response = self._call(
                "GetConfig",
                "GET",
                _WORKSPACES + "/{workspace_id}/config",
                {"workspace_id": workspace_id},
                wire_names(category_name="CommonResourceConfig", config_key="modelExportPath"),
            )
        except NotFoundError:
            return None
        # An OSS URI, whose bucket is the workspace's default one.
        return read_model(WorkspaceConfig, response).config_value or None
