"""AIWorkspace: workspaces, and the default place of their files."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from pai_sdk.schemas.wire import wire_time
from pai_sdk.service.budgets import BudgetedRoute
from pai_sdk.service.http.auditing import note_created
from pai_sdk.service.http.context import ContextOf, PrincipalOf, ServiceContext
from pai_sdk.service.http.routes.json_responses import success
from pai_sdk.service.http.routes.parameters import PageNumber, PageSize, check_workspace
from pai_sdk.service.identity.principal import Principal
from pai_sdk.service.identity.workspaces import WorkspaceInfo
from pai_sdk.service.jobs.reading import read_body, read_model
from pai_sdk.service.wire_errors import WireError

__all__ = ["router"]

router = APIRouter(prefix="/api/v1", route_class=BudgetedRoute)

_STORAGE = "modelExportPath"


class _NewWorkspace(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(alias="WorkspaceName")
    display_name: str | None = Field(default=None, alias="DisplayName")
    description: str | None = Field(default=None, alias="Description")
    env_types: list[str] = Field(default_factory=list, alias="EnvTypes")


@router.post("/workspaces")
async def create_workspace(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateWorkspace, without members, by administrators of the service. It keeps its name only.

    Clients of PAI have to send the other fields, so these are accepted.
    """
    principal.require("admin")
    wanted = read_model(_NewWorkspace, read_body(await request.body()))
    created = await run_in_threadpool(context.workspaces.add, wanted.name)
    note_created(request, created.id)
    return success(request, {"WorkspaceId": created.id})


@router.get("/workspaces")
def list_workspaces(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    name: Annotated[str | None, Query(alias="WorkspaceName")] = None,
    ids: Annotated[str | None, Query(alias="WorkspaceIds")] = None,
) -> Response:
    """ListWorkspaces: those of which the user is a member. A name fits when it contains what is asked for."""
    found = [
        one
        for one in context.workspaces.visible(principal)
        if (name or "") in one.name and (not ids or one.id in ids.split(","))
    ]
    page = found[(page_number - 1) * page_size : page_number * page_size]
    return success(request, {"Workspaces": [_shown(context, one) for one in page], "TotalCount": len(found)})


@router.get("/defaultWorkspaces")
def get_default_workspace(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """GetDefaultWorkspace: the first one of the service, or of those of the user."""
    found = context.workspaces.visible(principal)
    default = next((one for one in found if one.id == context.workspaces.default_id), None)
    if default is None and not found:
        raise WireError(404, "WORKSPACE_NOT_FOUND", "The user of this key is a member of no workspace.")
    return success(request, _shown(context, default or found[0]))


@router.get("/workspaces/{workspace_id}")
def get_workspace(request: Request, context: ContextOf, principal: PrincipalOf, workspace_id: str) -> Response:
    """GetWorkspace."""
    return success(request, _shown(context, context.workspaces.require(workspace_id, principal, "read")))


@router.delete("/workspaces/{workspace_id}")
def delete_workspace(request: Request, context: ContextOf, principal: PrincipalOf, workspace_id: str) -> Response:
    """DeleteWorkspace, by administrators of the service; only an empty one, and not the default one."""
    principal.require("admin")
    context.workspaces.require(workspace_id, principal, "admin")
    context.workspaces.remove(workspace_id)
    return success(request)


@router.get("/workspaces/{workspace_id}/config")
def get_config(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    config_key: Annotated[str, Query(alias="ConfigKey")] = _STORAGE,
) -> Response:
    """GetConfig. The default place of files is the bucket of the user who asks."""
    check_workspace(context, principal, workspace_id, "read")
    if config_key != _STORAGE:
        raise WireError(
            404, "CONFIG_NOT_FOUND", f"The workspace has no config {config_key[:60]!r}, only {_STORAGE}."
        )
    return success(request, _storage(context, principal))


@router.get("/workspaces/{workspace_id}/configs")
def list_configs(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    config_keys: Annotated[str | None, Query(alias="ConfigKeys")] = None,
) -> Response:
    """ListConfigs."""
    check_workspace(context, principal, workspace_id, "read")
    is_wanted = config_keys is None or _STORAGE in config_keys.split(",")
    configs = [_storage(context, principal)] if is_wanted else []
    return success(request, {"Configs": configs, "TotalCount": len(configs)})


def _shown(context: ServiceContext, workspace: WorkspaceInfo) -> dict[str, Any]:
    return {
        "WorkspaceId": workspace.id,
        "WorkspaceName": workspace.name,
        "DisplayName": workspace.name,
        "Description": "A workspace of a pai-sdk service",
        "EnvTypes": ["prod"],
        "Status": "ENABLED",
        "IsDefault": workspace.id == context.workspaces.default_id,
        "GmtCreateTime": wire_time(workspace.created_at),
    }


def _storage(context: ServiceContext, principal: Principal) -> dict[str, Any]:
    host = urlsplit(context.info.oss_endpoint).netloc
    return {"ConfigKey": _STORAGE, "ConfigValue": f"oss://{context.bucket_of(principal)}.{host}/", "Labels": []}
