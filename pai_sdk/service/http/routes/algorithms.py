"""Registered algorithms and their versions."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from pai_sdk.schemas.wire import wire_time
from pai_sdk.service.budgets import LISTS, BudgetedRoute, within
from pai_sdk.service.http.auditing import note_created
from pai_sdk.service.http.context import ContextOf, PrincipalOf
from pai_sdk.service.http.routes.json_responses import success
from pai_sdk.service.http.routes.parameters import PageNumber, PageSize, check_workspace
from pai_sdk.service.jobs.creation import read_spec
from pai_sdk.service.jobs.reading import read_body, read_model
from pai_sdk.service.registry.algorithm_registry import PROVIDER
from pai_sdk.service.state.models import Algorithm, AlgorithmVersion
from pai_sdk.service.wire_errors import invalid_parameter

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/algorithms", route_class=BudgetedRoute)

_Text = Annotated[str | None, Field(max_length=4096)]


class _NewAlgorithm(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(alias="AlgorithmName")
    description: _Text = Field(default=None, alias="AlgorithmDescription")
    display_name: _Text = Field(default=None, alias="DisplayName")
    workspace_id: str | None = Field(default=None, alias="WorkspaceId")


class _ChangedAlgorithm(BaseModel):
    model_config = ConfigDict(extra="forbid")

    description: _Text = Field(default=None, alias="AlgorithmDescription")
    display_name: _Text = Field(default=None, alias="DisplayName")


@router.post("")
async def create_algorithm(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateAlgorithm."""
    wanted = read_model(_NewAlgorithm, await _fields(request))
    algorithm_id = await run_in_threadpool(
        context.algorithms.create,
        wanted.name,
        workspace_id=await run_in_threadpool(check_workspace, context, principal, wanted.workspace_id),
        display_name=wanted.display_name,
        description=wanted.description,
    )
    note_created(request, algorithm_id)
    return success(request, {"AlgorithmId": algorithm_id})


@router.get("")
@within(LISTS)
def list_algorithms(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    algorithm_id: Annotated[str | None, Query(alias="AlgorithmId")] = None,
    name: Annotated[str | None, Query(alias="AlgorithmName")] = None,
    provider: Annotated[str | None, Query(alias="AlgorithmProvider")] = None,
    workspace_id: Annotated[str | None, Query(alias="WorkspaceId")] = None,
) -> Response:
    """ListAlgorithms."""
    found, total = context.algorithms.find(
        algorithm_id=algorithm_id,
        name=name,
        provider=provider,
        workspace_id=workspace_id,
        workspaces=principal.readable_workspaces,
        page_number=page_number,
        page_size=page_size,
    )
    return success(request, {"Algorithms": [_shown(algorithm) for algorithm in found], "TotalCount": total})


@router.get("/{algorithm_id}")
def get_algorithm(request: Request, context: ContextOf, algorithm_id: str) -> Response:
    """GetAlgorithm."""
    return success(request, _shown(context.algorithms.get(algorithm_id)))


@router.put("/{algorithm_id}")
async def update_algorithm(request: Request, context: ContextOf, algorithm_id: str) -> Response:
    """UpdateAlgorithm."""
    wanted = read_model(_ChangedAlgorithm, await _fields(request))
    await run_in_threadpool(
        context.algorithms.update, algorithm_id, display_name=wanted.display_name, description=wanted.description
    )
    return success(request, {"AlgorithmId": algorithm_id})


@router.delete("/{algorithm_id}")
def delete_algorithm(request: Request, context: ContextOf, algorithm_id: str) -> Response:
    """DeleteAlgorithm."""
    context.algorithms.delete(algorithm_id)
    return success(request)


@router.get("/{algorithm_id}/versions")
@within(LISTS)
def list_algorithm_versions(
    request: Request, context: ContextOf, algorithm_id: str, page_number: PageNumber = 1, page_size: PageSize = 10
) -> Response:
    """ListAlgorithmVersions."""
    algorithm, found, total = context.algorithms.list_versions(
        algorithm_id, page_number=page_number, page_size=page_size
    )
    shown = [_shown_version(algorithm, version) for version in found]
    return success(request, {"AlgorithmVersions": shown, "TotalCount": total})


@router.post("/{algorithm_id}/versions/{version}")
async def create_algorithm_version(
    request: Request, context: ContextOf, algorithm_id: str, version: str
) -> Response:
    """CreateAlgorithmVersion."""
    spec = await run_in_threadpool(read_spec, await _fields(request))
    await run_in_threadpool(context.algorithms.create_version, algorithm_id, version, spec)
    return success(request, {"AlgorithmId": algorithm_id, "AlgorithmVersion": version})


@router.get("/{algorithm_id}/versions/{version}")
def get_algorithm_version(request: Request, context: ContextOf, algorithm_id: str, version: str) -> Response:
    """GetAlgorithmVersion."""
    algorithm, found = context.algorithms.get_version(algorithm_id, version)
    return success(request, {**_shown_version(algorithm, found), "AlgorithmSpec": found.spec})


@router.put("/{algorithm_id}/versions/{version}")
async def update_algorithm_version(
    request: Request, context: ContextOf, algorithm_id: str, version: str
) -> Response:
    """UpdateAlgorithmVersion."""
    spec = await run_in_threadpool(read_spec, await _fields(request))
    await run_in_threadpool(context.algorithms.update_version, algorithm_id, version, spec)
    return success(request, {"AlgorithmId": algorithm_id, "AlgorithmVersion": version})


@router.delete("/{algorithm_id}/versions/{version}")
def delete_algorithm_version(request: Request, context: ContextOf, algorithm_id: str, version: str) -> Response:
    """DeleteAlgorithmVersion."""
    context.algorithms.delete_version(algorithm_id, version)
    return success(request)


async def _fields(request: Request) -> dict[str, Any]:
    """The body's fields: PAI's clients send a form to these actions; JSON is taken too."""
    body = await request.body()
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return read_body(body)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise invalid_parameter("The body is not a form in UTF-8.") from error
    # Through the same checks, for text that could be stored nowhere.
    return read_body(json.dumps(dict(pairs)).encode())


def _shown(algorithm: Algorithm) -> dict[str, Any]:
    return {
        "AlgorithmId": algorithm.id,
        "AlgorithmName": algorithm.name,
        "AlgorithmProvider": algorithm.provider,
        "AlgorithmDescription": algorithm.description,
        "DisplayName": algorithm.display_name,
        "WorkspaceId": algorithm.workspace_id,
        "UserId": PROVIDER,
        "TenantId": PROVIDER,
        "GmtCreateTime": wire_time(algorithm.created_at),
        "GmtModifiedTime": wire_time(algorithm.modified_at),
    }


def _shown_version(algorithm: Algorithm, version: AlgorithmVersion) -> dict[str, Any]:
    return {
        "AlgorithmId": algorithm.id,
        "AlgorithmName": algorithm.name,
        "AlgorithmProvider": algorithm.provider,
        "AlgorithmVersion": version.version,
        "UserId": PROVIDER,
        "TenantId": PROVIDER,
        "GmtCreateTime": wire_time(version.created_at),
        "GmtModifiedTime": wire_time(version.modified_at),
    }
