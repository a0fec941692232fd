"""AIWorkspace: workspaces, and the default place of their files."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.http.bodies import accepts, read_json
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.identity.workspaces import WorkspaceInfo
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.routes.parameters import PageNumber, PageSize
from pai_sdk._service.services.context import ContextOf, ServiceContext
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk._wire.workspaces import (
    NewWorkspace,
    WorkspaceConfig,
    WorkspaceConfigList,
    WorkspaceList,
    WorkspaceRecord,
)

router = APIRouter(prefix="/api/v1", route_class=ActionRoute)

_STORAGE = "modelExportPath"


@router.post("/workspaces", response_model=WorkspaceRecord)
@accepts(NewWorkspace)
async def create_workspace(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateWorkspace, without members, by administrators of the service. It keeps its name only.

    Clients of PAI have to send the other fields, so these are accepted.
    """
    principal.require("admin")
    workspace = await read_json(NewWorkspace, request)
    created = await run_in_threadpool(context.workspaces.add, workspace.workspace_name)
    record_created_id(request, created.id)
    return success(request, WorkspaceRecord(workspace_id=created.id))


@router.get("/workspaces")
def list_workspaces(
    context: ContextOf,
    principal: PrincipalOf,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    name: Annotated[str | None, Query(alias="WorkspaceName")] = None,
    ids: Annotated[str | None, Query(alias="WorkspaceIds")] = None,
) -> WorkspaceList:
    """ListWorkspaces: those of which the user is a member. `WorkspaceName` may be a part of a name."""
    workspaces = [
        workspace
        for workspace in context.workspaces.visible(principal)
        if (name or "") in workspace.name and (not ids or workspace.id in ids.split(","))
    ]
    page = workspaces[(page_number - 1) * page_size : page_number * page_size]
    records = [_workspace(context, workspace) for workspace in page]
    return WorkspaceList(workspaces=records, total_count=len(workspaces))


@router.get("/defaultWorkspaces")
def get_default_workspace(context: ContextOf, principal: PrincipalOf) -> WorkspaceRecord:
    """GetDefaultWorkspace: the first one of the service, or of those of the user."""
    visible = context.workspaces.visible(principal)
    default = next((workspace for workspace in visible if workspace.id == context.workspaces.default_id), None)
    if default is None and not visible:
        raise WireError(404, "WORKSPACE_NOT_FOUND", "The user of this key is a member of no workspace.")
    return _workspace(context, default or visible[0])


@router.get("/workspaces/{workspace_id}")
def get_workspace(context: ContextOf, principal: PrincipalOf, workspace_id: str) -> WorkspaceRecord:
    """GetWorkspace."""
    return _workspace(context, context.workspaces.require(workspace_id, principal, "read"))


@router.delete("/workspaces/{workspace_id}")
def delete_workspace(context: ContextOf, principal: PrincipalOf, workspace_id: str) -> None:
    """DeleteWorkspace, by administrators of the service; only an empty one, and not the default one."""
    principal.require("admin")
    context.workspaces.require(workspace_id, principal, "admin")
    context.workspaces.remove(workspace_id)


@router.get("/workspaces/{workspace_id}/config")
def get_config(
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    config_key: Annotated[str, Query(alias="ConfigKey")] = _STORAGE,
) -> WorkspaceConfig:
    """GetConfig. The default place of files is the bucket of the user who asks."""
    context.workspaces.require(workspace_id, principal, "read")
    if config_key != _STORAGE:
        raise WireError(
            404, "CONFIG_NOT_FOUND", f"The workspace has no config {config_key[:60]!r}, only {_STORAGE}."
        )
    return _storage(context, principal)


@router.get("/workspaces/{workspace_id}/configs")
def list_configs(
    context: ContextOf,
    principal: PrincipalOf,
    workspace_id: str,
    config_keys: Annotated[str | None, Query(alias="ConfigKeys")] = None,
) -> WorkspaceConfigList:
    """ListConfigs."""
    context.workspaces.require(workspace_id, principal, "read")
    is_requested = config_keys is None or _STORAGE in config_keys.split(",")
    configs = [_storage(context, principal)] if is_requested else []
    return WorkspaceConfigList(configs=configs, total_count=len(configs))


def _workspace(context: ServiceContext, workspace: WorkspaceInfo) -> WorkspaceRecord:
    return WorkspaceRecord(
        workspace_id=workspace.id,
        workspace_name=workspace.name,
        display_name=workspace.name,
        description="A workspace of a pai-sdk service",
        env_types=["prod"],
        status="ENABLED",
        is_default=workspace.id == context.workspaces.default_id,
        gmt_create_time=wire_time(workspace.created_at),
    )


def _storage(context: ServiceContext, principal: Principal) -> WorkspaceConfig:
    host = urlsplit(context.info.oss_endpoint).netloc
    uri = f"oss://{context.bucket_of(principal)}.{host}/"
    return WorkspaceConfig(config_key=_STORAGE, config_value=uri, labels=[])
