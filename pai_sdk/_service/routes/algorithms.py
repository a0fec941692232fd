"""Registered algorithms and their versions."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.parameters import PageNumber, PageSize
from pai_sdk._service.services.algorithms import PROVIDER
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
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
from pai_sdk._wire.base import Sent
from pai_sdk._wire.pai.definitions import AlgorithmDefinition
from pai_sdk._wire.pai.wire import wire_time

_Text = Annotated[str | None, Field(max_length=4096)]
_Model = TypeVar("_Model", bound=BaseModel)


class _Route(ActionRoute):
    async def read_body(self, model: type[_Model], request: Request) -> _Model:
        fields = await _fields(request)
        return read_model(model, fields) if issubclass(model, Sent) else model.model_validate(fields)


router = APIRouter(prefix="/api/v1/algorithms", route_class=_Route)


class _NewAlgorithm(NewAlgorithm):
    algorithm_description: _Text = None
    display_name: _Text = None


class _AlgorithmChanges(AlgorithmChanges):
    algorithm_description: _Text = None
    display_name: _Text = None


@router.post("")
def create_algorithm(
    request: Request, context: ContextOf, principal: PrincipalOf, algorithm: _NewAlgorithm
) -> AlgorithmRecord:
    """CreateAlgorithm."""
    algorithm_id = context.algorithms.create(
        algorithm.algorithm_name,
        workspace_id=context.workspace_for(principal, algorithm.workspace_id),
        display_name=algorithm.display_name,
        description=algorithm.algorithm_description,
    )
    record_created_id(request, algorithm_id)
    return AlgorithmRecord(algorithm_id=algorithm_id)


@router.get("")
@within(LISTS)
def list_algorithms(
    context: ContextOf,
    principal: PrincipalOf,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    algorithm_id: Annotated[str | None, Query(alias="AlgorithmId")] = None,
    name: Annotated[str | None, Query(alias="AlgorithmName")] = None,
    provider: Annotated[str | None, Query(alias="AlgorithmProvider")] = None,
    workspace_id: Annotated[str | None, Query(alias="WorkspaceId")] = None,
) -> AlgorithmList:
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
    return AlgorithmList(algorithms=[_algorithm(row) for row in rows], total_count=total)


@router.get("/{algorithm_id}")
def get_algorithm(context: ContextOf, algorithm_id: str) -> AlgorithmRecord:
    """GetAlgorithm."""
    return _algorithm(context.algorithms.get(algorithm_id))


@router.put("/{algorithm_id}")
def update_algorithm(context: ContextOf, algorithm_id: str, changes: _AlgorithmChanges) -> AlgorithmRecord:
    """UpdateAlgorithm."""
    context.algorithms.update(
        algorithm_id,
        display_name=changes.display_name,
        description=changes.algorithm_description,
    )
    return AlgorithmRecord(algorithm_id=algorithm_id)


@router.delete("/{algorithm_id}")
def delete_algorithm(context: ContextOf, algorithm_id: str) -> None:
    """DeleteAlgorithm."""
    context.algorithms.delete(algorithm_id)


@router.get("/{algorithm_id}/versions")
@within(LISTS)
def list_algorithm_versions(
    context: ContextOf, algorithm_id: str, page_number: PageNumber = 1, page_size: PageSize = 10
) -> AlgorithmVersionList:
    """ListAlgorithmVersions."""
    algorithm, rows, total = context.algorithms.list_versions(
        algorithm_id, page_number=page_number, page_size=page_size
    )
    versions = [_version(algorithm, row) for row in rows]
    return AlgorithmVersionList(algorithm_versions=versions, total_count=total)


@router.post("/{algorithm_id}/versions/{version}")
def create_algorithm_version(
    context: ContextOf, algorithm_id: str, version: str, form: AlgorithmVersionForm
) -> AlgorithmVersionRecord:
    """CreateAlgorithmVersion."""
    spec = read_spec(form.algorithm_spec)
    context.algorithms.create_version(algorithm_id, version, spec)
    return AlgorithmVersionRecord(algorithm_id=algorithm_id, algorithm_version=version)


@router.get("/{algorithm_id}/versions/{version}")
def get_algorithm_version(context: ContextOf, algorithm_id: str, version: str) -> AlgorithmVersionRecord:
    """GetAlgorithmVersion."""
    algorithm, row = context.algorithms.get_version(algorithm_id, version)
    spec = AlgorithmDefinition.model_validate(row.spec)
    return _version(algorithm, row).model_copy(update={"algorithm_spec": spec})


@router.put("/{algorithm_id}/versions/{version}")
def update_algorithm_version(
    context: ContextOf, algorithm_id: str, version: str, form: AlgorithmVersionForm
) -> AlgorithmVersionRecord:
    """UpdateAlgorithmVersion."""
    spec = read_spec(form.algorithm_spec)
    context.algorithms.update_version(algorithm_id, version, spec)
    return AlgorithmVersionRecord(algorithm_id=algorithm_id, algorithm_version=version)


@router.delete("/{algorithm_id}/versions/{version}")
def delete_algorithm_version(context: ContextOf, algorithm_id: str, version: str) -> None:
    """DeleteAlgorithmVersion."""
    context.algorithms.delete_version(algorithm_id, version)


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
