"""AIWorkspace, as far as a client needs it: the one workspace and the default place of its files."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response

from pai_sdk.service.budgets import BudgetedRoute
from pai_sdk.service.http.context import ContextOf, ServiceContext
from pai_sdk.service.http.routes.json_responses import success
from pai_sdk.service.http.routes.parameters import PageNumber, check_workspace
from pai_sdk.service.wire_errors import WireError

__all__ = ["router"]

router = APIRouter(prefix="/api/v1", route_class=BudgetedRoute)

_STORAGE = "modelExportPath"


@router.get("/workspaces")
def list_workspaces(
    request: Request,
    context: ContextOf,
    page_number: PageNumber = 1,
    name: Annotated[str | None, Query(alias="WorkspaceName")] = None,
    ids: Annotated[str | None, Query(alias="WorkspaceIds")] = None,
) -> Response:
    """ListWorkspaces. A name fits when it contains what is asked for."""
    only = _workspace(context)
    fits = (not name or name in only["WorkspaceName"]) and (not ids or only["WorkspaceId"] in ids.split(","))
    shown = [only] if fits and page_number == 1 else []
    return success(request, {"Workspaces": shown, "TotalCount": int(fits)})


@router.get("/defaultWorkspaces")
def get_default_workspace(request: Request, context: ContextOf) -> Response:
    """GetDefaultWorkspace."""
    return success(request, _workspace(context))


@router.get("/workspaces/{workspace_id}")
def get_workspace(request: Request, context: ContextOf, workspace_id: str) -> Response:
    """GetWorkspace."""
    check_workspace(context, workspace_id)
    return success(request, _workspace(context))


@router.get("/workspaces/{workspace_id}/config")
def get_config(
    request: Request,
    context: ContextOf,
    workspace_id: str,
    config_key: Annotated[str, Query(alias="ConfigKey")] = _STORAGE,
) -> Response:
    """GetConfig."""
    check_workspace(context, workspace_id)
    if config_key != _STORAGE:
        raise WireError(
            404, "CONFIG_NOT_FOUND", f"The workspace has no config {config_key[:60]!r}, only {_STORAGE}."
        )
    return success(request, _storage(context))


@router.get("/workspaces/{workspace_id}/configs")
def list_configs(
    request: Request,
    context: ContextOf,
    workspace_id: str,
    config_keys: Annotated[str | None, Query(alias="ConfigKeys")] = None,
) -> Response:
    """ListConfigs."""
    check_workspace(context, workspace_id)
    configs = [_storage(context)] if config_keys is None or _STORAGE in config_keys.split(",") else []
    return success(request, {"Configs": configs, "TotalCount": len(configs)})


def _workspace(context: ServiceContext) -> dict[str, Any]:
    return {
        "WorkspaceId": context.settings.workspace_id,
        "WorkspaceName": "local",
        "DisplayName": "local",
        "Description": "The workspace of a pai-sdk service",
        "EnvTypes": ["prod"],
        "Status": "ENABLED",
        "IsDefault": True,
    }


def _storage(context: ServiceContext) -> dict[str, Any]:
    host = urlsplit(context.info.oss_endpoint).netloc
    return {"ConfigKey": _STORAGE, "ConfigValue": f"oss://{context.settings.bucket}.{host}/", "Labels": []}
