"""Workspaces on the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pai_sdk.api.paging import pages
from pai_sdk.api.responses import read_items, read_model
from pai_sdk.api.transport import Transport
from pai_sdk.errors import NotFoundError
from pai_sdk.schemas.wire import Received

VERSION = "2021-02-04"
_WORKSPACES = "/api/v1/workspaces"


class WorkspaceRecord(Received):
    """A workspace, as the service describes it."""

    workspace_id: str | None = None
    workspace_name: str | None = None
    display_name: str | None = None
    description: str | None = None
    status: str | None = None
    is_default: bool | None = None


class Workspaces:
    """The actions on workspaces, one method each.

    Args:
        transport: to the workspace API, version `VERSION`.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, workspace_id: str) -> WorkspaceRecord:
        """GetWorkspace."""
        response = self._transport.call(
            "GetWorkspace", "GET", _WORKSPACES + "/{workspace_id}", {"workspace_id": workspace_id}
        )
        return read_model(
            WorkspaceRecord, {"WorkspaceId": workspace_id, **response.json}, response, "GetWorkspace"
        )

    def default(self) -> WorkspaceRecord:
        """GetDefaultWorkspace."""
        response = self._transport.call("GetDefaultWorkspace", "GET", "/api/v1/defaultWorkspaces")
        return read_model(WorkspaceRecord, response.json, response, "GetDefaultWorkspace")

    def list(self, *, name: str | None = None) -> Iterator[WorkspaceRecord]:
        """ListWorkspaces, all pages.

        Args:
            name: only workspaces with this text in their name.
        """

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            query = {"WorkspaceName": name, "PageNumber": number, "PageSize": size}
            return self._transport.call("ListWorkspaces", "GET", _WORKSPACES, query=query).json

        return read_items(WorkspaceRecord, pages(fetch, "Workspaces"), "ListWorkspaces")

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
