"""AIWorkspace, as far as a client needs it: the one workspace, and where its files go by default."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response

from pai_sdk.service.http.context import Parts, PartsOf
from pai_sdk.service.http.routes.json_responses import answer
from pai_sdk.service.http.routes.training_jobs import PageNumber
from pai_sdk.service.wire_errors import Fault

__all__ = ["router"]

router = APIRouter(prefix="/api/v1")

_STORAGE = "modelExportPath"


@router.get("/workspaces")
def list_workspaces(
    request: Request,
    parts: PartsOf,
    page_number: PageNumber = 1,
    name: Annotated[str | None, Query(alias="WorkspaceName")] = None,
    ids: Annotated[str | None, Query(alias="WorkspaceIds")] = None,
) -> Response:
    """ListWorkspaces. A name fits when it contains what is asked for."""
    only = _workspace(parts)
    fits = (not name or name in only["WorkspaceName"]) and (not ids or only["WorkspaceId"] in ids.split(","))
    shown = [only] if fits and page_number == 1 else []
    return answer(request, {"Workspaces": shown, "TotalCount": int(fits)})


@router.get("/defaultWorkspaces")
def get_default_workspace(request: Request, parts: PartsOf) -> Response:
    """GetDefaultWorkspace."""
    return answer(request, _workspace(parts))


@router.get("/workspaces/{workspace_id}")
def get_workspace(request: Request, parts: PartsOf, workspace_id: str) -> Response:
    """GetWorkspace."""
    _known(parts, workspace_id)
    return answer(request, _workspace(parts))


@router.get("/workspaces/{workspace_id}/config")
def get_config(
    request: Request,
    parts: PartsOf,
    workspace_id: str,
    config_key: Annotated[str, Query(alias="ConfigKey")] = _STORAGE,
) -> Response:
    """GetConfig."""
    _known(parts, workspace_id)
    if config_key != _STORAGE:
        raise Fault(404, "CONFIG_NOT_FOUND", f"The workspace has no config {config_key[:60]!r}, only {_STORAGE}.")
    return answer(request, _storage(parts))


@router.get("/workspaces/{workspace_id}/configs")
def list_configs(
    request: Request,
    parts: PartsOf,
    workspace_id: str,
    config_keys: Annotated[str | None, Query(alias="ConfigKeys")] = None,
) -> Response:
    """ListConfigs."""
    _known(parts, workspace_id)
    configs = [_storage(parts)] if config_keys is None or _STORAGE in config_keys.split(",") else []
    return answer(request, {"Configs": configs, "TotalCount": len(configs)})


def _known(parts: Parts, workspace_id: str) -> None:
    if workspace_id != parts.settings.workspace_id:
        raise Fault(404, "WORKSPACE_NOT_FOUND", f"There is no workspace {workspace_id[:60]!r} here.")


def _workspace(parts: Parts) -> dict[str, Any]:
    return {
        "WorkspaceId": parts.settings.workspace_id,
        "WorkspaceName": "local",
        "DisplayName": "local",
        "Description": "The workspace of a pai-sdk service",
        "EnvTypes": ["prod"],
        "Status": "ENABLED",
        "IsDefault": True,
    }


def _storage(parts: Parts) -> dict[str, Any]:
    host = urlsplit(parts.info.oss_endpoint).netloc
    return {"ConfigKey": _STORAGE, "ConfigValue": f"oss://{parts.settings.bucket}.{host}/", "Labels": []}
