"""Registered models and their versions: create, get, list, update, delete, and their labels."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.http.bodies import accepts, read_json
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.routes.parameters import Order, PageNumber, PageSize, read_pairs
from pai_sdk._service.services.budgets import LISTS, BudgetedRoute, within
from pai_sdk._service.services.context import ContextOf, PrincipalOf
from pai_sdk._service.services.models import MODEL_COLUMNS, ModelQuery
from pai_sdk._service.state.models import ModelRow, ModelVersionRow
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.base import Empty, Sent, wire_name, wire_names
from pai_sdk._wire.labels import NewLabels, label_records, labels_by_key
from pai_sdk._wire.models import (
    ModelChanges,
    ModelList,
    ModelRecord,
    ModelVersionFields,
    ModelVersionList,
    ModelVersionRecord,
    NewModel,
    NewModelVersion,
)
from pai_sdk._wire.pai.wire import wire_time

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/models", route_class=BudgetedRoute)

_OWNER = "local"  # this service has no accounts
_MAX_TEXT_LENGTH = 65536

_Model = TypeVar("_Model", bound=Sent)


class _NewVersion(NewModelVersion):
    uri: str = Field(max_length=4096)


# ---- models ---------------------------------------------------------------------------------------------------


@router.post("", response_model=ModelRecord)
@accepts(NewModel)
async def create_model(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateModel."""
    model = await _read(NewModel, request)
    model_id = await run_in_threadpool(
        context.models.create,
        model.model_name,
        workspace_id=await run_in_threadpool(context.workspace_for, principal, model.workspace_id),
        fields=model,
        labels=labels_by_key(model.labels or []),
    )
    record_created_id(request, model_id)
    return success(request, ModelRecord(model_id=model_id))


@router.get("", response_model=ModelList)
@within(LISTS)
def list_models(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    name: Annotated[str | None, Query(alias="ModelName")] = None,
    provider: Annotated[str | None, Query(alias="Provider")] = None,
    workspace_id: Annotated[str | None, Query(alias="WorkspaceId")] = None,
    domain: Annotated[str | None, Query(alias="Domain")] = None,
    task: Annotated[str | None, Query(alias="Task")] = None,
    origin: Annotated[str | None, Query(alias="Origin")] = None,
    model_type: Annotated[str | None, Query(alias="ModelType")] = None,
    label: Annotated[str | None, Query(alias="Label")] = None,
    order: Order = "DESC",
) -> Response:
    """ListModels, in the order of their creation. A `ModelName` in double quotes is the whole name.

    Models registered here have no `Provider`: those of a provider are nowhere on this service.
    """
    query = ModelQuery(
        name=name,
        workspace_id=workspace_id,
        workspaces=principal.readable_workspaces,
        fields={"task": task, "domain": domain, "origin": origin, "model_type": model_type},
        labels=read_pairs(label),
        offset=(page_number - 1) * page_size,
        limit=page_size,
        newest_first=order.upper() == "DESC",
    )
    rows, total = ([], 0) if provider else context.models.find(query)
    return success(request, ModelList(models=[_model(row, newest) for row, newest in rows], total_count=total))


@router.get("/{model_id}", response_model=ModelRecord)
def get_model(request: Request, context: ContextOf, model_id: str) -> Response:
    """GetModel."""
    return success(request, _model(*context.models.get(model_id)))


@router.put("/{model_id}", response_model=Empty)
@accepts(ModelChanges)
async def update_model(request: Request, context: ContextOf, model_id: str) -> Response:
    """UpdateModel."""
    await run_in_threadpool(context.models.update, model_id, await _read(ModelChanges, request))
    return success(request)


@router.delete("/{model_id}", response_model=Empty)
def delete_model(request: Request, context: ContextOf, model_id: str) -> Response:
    """DeleteModel, with its versions."""
    context.models.delete(model_id)
    return success(request)


# ---- versions -------------------------------------------------------------------------------------------------


@router.post("/{model_id}/versions", response_model=ModelVersionRecord)
@accepts(_NewVersion)
async def create_model_version(request: Request, context: ContextOf, model_id: str) -> Response:
    """CreateModelVersion."""
    version = await _read(_NewVersion, request)
    name = await run_in_threadpool(
        context.models.create_version,
        model_id,
        version.version_name,
        fields=version,
        labels=labels_by_key(version.labels or []),
    )
    return success(request, ModelVersionRecord(version_name=name))


@router.get("/{model_id}/versions", response_model=ModelVersionList)
@within(LISTS)
def list_model_versions(
    request: Request,
    context: ContextOf,
    model_id: str,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    name: Annotated[str | None, Query(alias="VersionName")] = None,
) -> Response:
    """ListModelVersions, the newest first."""
    _, rows, total = context.models.list_versions(
        model_id, name=name, page_number=page_number, page_size=page_size
    )
    return success(request, ModelVersionList(versions=[_version(row) for row in rows], total_count=total))


@router.get("/{model_id}/versions/{version}", response_model=ModelVersionRecord)
def get_model_version(request: Request, context: ContextOf, model_id: str, version: str) -> Response:
    """GetModelVersion."""
    return success(request, _version(context.models.get_version(model_id, version)[1]))


@router.put("/{model_id}/versions/{version}", response_model=Empty)
@accepts(ModelVersionFields)
async def update_model_version(request: Request, context: ContextOf, model_id: str, version: str) -> Response:
    """UpdateModelVersion."""
    changes = await _read(ModelVersionFields, request)
    await run_in_threadpool(context.models.update_version, model_id, version, changes)
    return success(request)


@router.delete("/{model_id}/versions/{version}", response_model=Empty)
def delete_model_version(request: Request, context: ContextOf, model_id: str, version: str) -> Response:
    """DeleteModelVersion."""
    context.models.delete_version(model_id, version)
    return success(request)


# ---- labels ---------------------------------------------------------------------------------------------------


@router.post("/{model_id}/labels", response_model=Empty)
@router.post("/{model_id}/versions/{version}/labels", response_model=Empty)
@accepts(NewLabels)
async def create_model_labels(
    request: Request, context: ContextOf, model_id: str, version: str | None = None
) -> Response:
    """CreateModelLabels and CreateModelVersionLabels: add labels, or replace those of the same key."""
    labels = labels_by_key((await _read(NewLabels, request)).labels)
    await run_in_threadpool(context.models.change_labels, model_id, version, added=labels)
    return success(request)


@router.delete("/{model_id}/labels", response_model=Empty)
@router.delete("/{model_id}/versions/{version}/labels", response_model=Empty)
def delete_model_labels(
    request: Request,
    context: ContextOf,
    model_id: str,
    keys: Annotated[str, Query(alias="LabelKeys")],
    version: str | None = None,
) -> Response:
    """DeleteModelLabels and DeleteModelVersionLabels; a label that is not there is no error."""
    context.models.change_labels(model_id, version, added={}, removed=keys.split(","))
    return success(request)


async def _read(model: type[_Model], request: Request) -> _Model:
    body = await read_json(model, request, empty_is_unset=True)
    for name, value in body:
        if isinstance(value, str) and len(value) > _MAX_TEXT_LENGTH:
            raise invalid_parameter(f"{wire_name(name)}: has more than {_MAX_TEXT_LENGTH} characters")
    return body


def _model(row: ModelRow, newest: ModelVersionRow | None) -> ModelRecord:
    fields = {name: getattr(row, column.key) for name, column in MODEL_COLUMNS.items()}
    record = ModelRecord.model_validate(
        {
            **row.details,
            **wire_names(**{name: value for name, value in fields.items() if value is not None}),
            **wire_names(
                model_id=row.id,
                model_name=row.name,
                workspace_id=row.workspace_id,
                owner_id=_OWNER,
                user_id=_OWNER,
                labels=label_records(row.labels),
                gmt_create_time=wire_time(row.created_at),
                gmt_modified_time=wire_time(row.modified_at),
            ),
        }
    )
    return record if newest is None else record.model_copy(update={"latest_version": _version(newest)})


def _version(row: ModelVersionRow) -> ModelVersionRecord:
    return ModelVersionRecord.model_validate(
        {
            **row.details,
            **wire_names(
                version_name=row.name,
                owner_id=_OWNER,
                user_id=_OWNER,
                labels=label_records(row.labels),
                gmt_create_time=wire_time(row.created_at),
                gmt_modified_time=wire_time(row.modified_at),
            ),
        }
    )
