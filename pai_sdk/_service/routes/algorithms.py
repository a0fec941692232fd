"""Registered algorithms and their versions."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.http.bodies import accepts
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.routes.parameters import PageNumber, PageSize
from pai_sdk._service.services.algorithms import PROVIDER
from pai_sdk._service.services.budgets import LISTS, BudgetedRoute, within
from pai_sdk._service.services.context import ContextOf, PrincipalOf
from pai_sdk._service.services.jobs.creation import read_spec
from pai_sdk._service.services.jobs.reading import read_body, read_model
from pai_sdk._service.state.models import Algorithm, AlgorithmVersion
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.algorithms import (
    AlgorithmChanges,
    AlgorithmList,
    AlgorithmRecord,
    AlgorithmVersionForm,
    AlgorithmVersionList,
    AlgorithmVersionRecord,
    NewAlgorithm,
)
from pai_sdk._wire.base import Empty
from pai_sdk._wire.pai.definitions import AlgorithmDefinition
from pai_sdk._wire.pai.wire import wire_time

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/algorithms", route_class=BudgetedRoute)

_Text = Annotated[str | None, Field(max_length=4096)]


class _NewAlgorithm(NewAlgorithm):
    algorithm_description: _Text = None
    display_name: _Text = None


class _AlgorithmChanges(AlgorithmChanges):
    algorithm_description: _Text = None
    display_name: _Text = None


@router.post("", response_model=AlgorithmRecord)
@accepts(_NewAlgorithm)
async def create_algorithm(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateAlgorithm."""
    algorithm = read_model(_NewAlgorithm, await _fields(request))
    algorithm_id = await run_in_threadpool(
        context.algorithms.create,
        algorithm.algorithm_name,
        workspace_id=await run_in_threadpool(context.workspace_for, principal, algorithm.workspace_id),
        display_name=algorithm.display_name,
        description=algorithm.algorithm_description,
    )
    record_created_id(request, algorithm_id)
    return success(request, AlgorithmRecord(algorithm_id=algorithm_id))


@router.get("", response_model=AlgorithmList)
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
    rows, total = context.algorithms.find(
        algorithm_id=algorithm_id,
        name=name,
        provider=provider,
        workspace_id=workspace_id,
        workspaces=principal.readable_workspaces,
        page_number=page_number,
        page_size=page_size,
    )
    return success(request, AlgorithmList(algorithms=[_algorithm(row) for row in rows], total_count=total))


@router.get("/{algorithm_id}", response_model=AlgorithmRecord)
def get_algorithm(request: Request, context: ContextOf, algorithm_id: str) -> Response:
    """GetAlgorithm."""
    return success(request, _algorithm(context.algorithms.get(algorithm_id)))


@router.put("/{algorithm_id}", response_model=AlgorithmRecord)
@accepts(_AlgorithmChanges)
async def update_algorithm(request: Request, context: ContextOf, algorithm_id: str) -> Response:
    """UpdateAlgorithm."""
    changes = read_model(_AlgorithmChanges, await _fields(request))
    await run_in_threadpool(
        context.algorithms.update,
        algorithm_id,
        display_name=changes.display_name,
        description=changes.algorithm_description,
    )
    return success(request, AlgorithmRecord(algorithm_id=algorithm_id))


@router.delete("/{algorithm_id}", response_model=Empty)
def delete_algorithm(request: Request, context: ContextOf, algorithm_id: str) -> Response:
    """DeleteAlgorithm."""
    context.algorithms.delete(algorithm_id)
    return success(request)


@router.get("/{algorithm_id}/versions", response_model=AlgorithmVersionList)
@within(LISTS)
def list_algorithm_versions(
    request: Request, context: ContextOf, algorithm_id: str, page_number: PageNumber = 1, page_size: PageSize = 10
) -> Response:
    """ListAlgorithmVersions."""
    algorithm, rows, total = context.algorithms.list_versions(
        algorithm_id, page_number=page_number, page_size=page_size
    )
    versions = [_version(algorithm, row) for row in rows]
    return success(request, AlgorithmVersionList(algorithm_versions=versions, total_count=total))


@router.post("/{algorithm_id}/versions/{version}", response_model=AlgorithmVersionRecord)
@accepts(AlgorithmVersionForm)
async def create_algorithm_version(
    request: Request, context: ContextOf, algorithm_id: str, version: str
) -> Response:
    """CreateAlgorithmVersion."""
    form = AlgorithmVersionForm.model_validate(await _fields(request))
    spec = await run_in_threadpool(read_spec, form.algorithm_spec)
    await run_in_threadpool(context.algorithms.create_version, algorithm_id, version, spec)
    return success(request, AlgorithmVersionRecord(algorithm_id=algorithm_id, algorithm_version=version))


@router.get("/{algorithm_id}/versions/{version}", response_model=AlgorithmVersionRecord)
def get_algorithm_version(request: Request, context: ContextOf, algorithm_id: str, version: str) -> Response:
    """GetAlgorithmVersion."""
    algorithm, row = context.algorithms.get_version(algorithm_id, version)
    spec = AlgorithmDefinition.model_validate(row.spec)
    return success(request, _version(algorithm, row).model_copy(update={"algorithm_spec": spec}))


@router.put("/{algorithm_id}/versions/{version}", response_model=AlgorithmVersionRecord)
@accepts(AlgorithmVersionForm)
async def update_algorithm_version(
    request: Request, context: ContextOf, algorithm_id: str, version: str
) -> Response:
    """UpdateAlgorithmVersion."""
    form = AlgorithmVersionForm.model_validate(await _fields(request))
    spec = await run_in_threadpool(read_spec, form.algorithm_spec)
    await run_in_threadpool(context.algorithms.update_version, algorithm_id, version, spec)
    return success(request, AlgorithmVersionRecord(algorithm_id=algorithm_id, algorithm_version=version))


@router.delete("/{algorithm_id}/versions/{version}", response_model=Empty)
def delete_algorithm_version(request: Request, context: ContextOf, algorithm_id: str, version: str) -> Response:
    """DeleteAlgorithmVersion."""
    context.algorithms.delete_version(algorithm_id, version)
    return success(request)


async def _fields(request: Request) -> dict[str, Any]:
    """Reads the fields of a body: PAI's clients send a form to these actions; JSON is accepted too."""
    body = await request.body()
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return read_body(body)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise invalid_parameter("The body is not a form in UTF-8.") from error
    # Through the same checks, for text that could be stored nowhere.
    return read_body(json.dumps(dict(pairs)).encode())


def _algorithm(row: Algorithm) -> AlgorithmRecord:
    return AlgorithmRecord(
        algorithm_id=row.id,
        algorithm_name=row.name,
        algorithm_provider=row.provider,
        algorithm_description=row.description,
        display_name=row.display_name,
        workspace_id=row.workspace_id,
        user_id=PROVIDER,
        tenant_id=PROVIDER,
        gmt_create_time=wire_time(row.created_at),
        gmt_modified_time=wire_time(row.modified_at),
    )


def _version(algorithm: Algorithm, row: AlgorithmVersion) -> AlgorithmVersionRecord:
    return AlgorithmVersionRecord(
        algorithm_id=algorithm.id,
        algorithm_name=algorithm.name,
        algorithm_provider=algorithm.provider,
        algorithm_version=row.version,
        user_id=PROVIDER,
        tenant_id=PROVIDER,
        gmt_create_time=wire_time(row.created_at),
        gmt_modified_time=wire_time(row.modified_at),
    )
