"""AIWorkspace, as far as a client needs it: the one workspace, and where its files go by default."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response

from pai_sdk.service.budgets import BudgetedRoute
from pai_sdk.service.http.context import ContextOf, ServiceContext
from pai_sdk.service.http.routes.json_responses import answer
from pai_sdk.service.http.routes.training_jobs import PageNumber
from pai_sdk.service.wire_errors import Fault

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
    return answer(request, {"Workspaces": shown, "TotalCount": int(fits)})


@router.get("/defaultWorkspaces")
def get_default_workspace(request: Request, context: ContextOf) -> Response:
    """GetDefaultWorkspace."""
    return answer(request, _workspace(context))


@router.get("/workspaces/{workspace_id}")
def get_workspace(request: Request, context: ContextOf, workspace_id: str) -> Response:
    """GetWorkspace."""
    _known(context, workspace_id)
    return answer(request, _workspace(context))


@router.get("/workspaces/{workspace_id}/config")
def get_config(
    request: Request,
    context: ContextOf,
    workspace_id: str,
    config_key: Annotated[str, Query(alias="ConfigKey")] = _STORAGE,
) -> Response:
    """GetConfig."""
    _known(context, workspace_id)
    if config_key != _STORAGE:
        raise Fault(404, "CONFIG_NOT_FOUND", f"The workspace has no config {config_key[:60]!r}, only {_STORAGE}.")
    return answer(request, _storage(context))


@router.get("/workspaces/{workspace_id}/configs")
def list_configs(
    request: Request,
    context: ContextOf,
    workspace_id: str,
    config_keys: Annotated[str | None, Query(alias="ConfigKeys")] = None,
) -> Response:
    """ListConfigs."""
    _known(context, workspace_id)
    configs = [_storage(context)] if config_keys is None or _STORAGE in config_keys.split(",") else []
    return answer(request, {"Configs": configs, "TotalCount": len(configs)})


def _known(context: ServiceContext, workspace_id: str) -> None:
    if workspace_id != context.settings.workspace_id:
        raise Fault(404, "WORKSPACE_NOT_FOUND", f"There is no workspace {workspace_id[:60]!r} here.")


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
