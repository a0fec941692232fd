"""Registered models and their versions: create, get, list, update, delete, and their labels."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.action_route import FilledFieldsRoute
from pai_sdk._service.routes.parameters import Order, PageNumber, PageSize, read_pairs
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.models import MODEL_COLUMNS, ModelQuery
from pai_sdk._service.state.models import ModelRow, ModelVersionRow
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.base import wire_name, wire_names
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

_OWNER = "local"  # this service has no accounts
_MAX_TEXT_LENGTH = 65536

_Model = TypeVar("_Model", bound=BaseModel)


class _Route(FilledFieldsRoute):
    async def read_body(self, model: type[_Model], request: Request) -> _Model:
        body = await super().read_body(model, request)
        for name, value in body:
            if isinstance(value, str) and len(value) > _MAX_TEXT_LENGTH:
                raise invalid_parameter(f"{wire_name(name)}: has more than {_MAX_TEXT_LENGTH} characters")
        return body


router = APIRouter(prefix="/api/v1/models", route_class=_Route)


class _NewVersion(NewModelVersion):
    uri: str = Field(max_length=4096)


# ---- models ---------------------------------------------------------------------------------------------------


@router.post("")
def create_model(request: Request, context: ContextOf, principal: PrincipalOf, model: NewModel) -> ModelRecord:
    """CreateModel."""
    model_id = context.models.create(
        model.model_name,
        workspace_id=context.workspace_for(principal, model.workspace_id),
        fields=model,
        labels=labels_by_key(model.labels or []),
    )
    record_created_id(request, model_id)
    return ModelRecord(model_id=model_id)


@router.get("")
@within(LISTS)
def list_models(
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
) -> ModelList:
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
    return ModelList(models=[_model(row, newest) for row, newest in rows], total_count=total)


@router.get("/{model_id}")
def get_model(context: ContextOf, model_id: str) -> ModelRecord:
    """GetModel."""
    return _model(*context.models.get(model_id))


@router.put("/{model_id}")
def update_model(context: ContextOf, model_id: str, changes: ModelChanges) -> None:
    """UpdateModel."""
    context.models.update(model_id, changes)


@router.delete("/{model_id}")
def delete_model(context: ContextOf, model_id: str) -> None:
    """DeleteModel, with its versions."""
    context.models.delete(model_id)


# ---- versions -------------------------------------------------------------------------------------------------


@router.post("/{model_id}/versions")
def create_model_version(context: ContextOf, model_id: str, version: _NewVersion) -> ModelVersionRecord:
    """CreateModelVersion."""
    name = context.models.create_version(
        model_id,
        version.version_name,
        fields=version,
        labels=labels_by_key(version.labels or []),
    )
    return ModelVersionRecord(version_name=name)


@router.get("/{model_id}/versions")
@within(LISTS)
def list_model_versions(
    context: ContextOf,
    model_id: str,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    name: Annotated[str | None, Query(alias="VersionName")] = None,
) -> ModelVersionList:
    """ListModelVersions, the newest first."""
    _, rows, total = context.models.list_versions(
        model_id, name=name, page_number=page_number, page_size=page_size
    )
    return ModelVersionList(versions=[_version(row) for row in rows], total_count=total)


@router.get("/{model_id}/versions/{version}")
def get_model_version(context: ContextOf, model_id: str, version: str) -> ModelVersionRecord:
    """GetModelVersion."""
    return _version(context.models.get_version(model_id, version)[1])


@router.put("/{model_id}/versions/{version}")
def update_model_version(context: ContextOf, model_id: str, version: str, changes: ModelVersionFields) -> None:
    """UpdateModelVersion."""
    context.models.update_version(model_id, version, changes)


@router.delete("/{model_id}/versions/{version}")
def delete_model_version(context: ContextOf, model_id: str, version: str) -> None:
    """DeleteModelVersion."""
    context.models.delete_version(model_id, version)


# ---- labels ---------------------------------------------------------------------------------------------------


@router.post("/{model_id}/labels")
@router.post("/{model_id}/versions/{version}/labels")
def create_model_labels(context: ContextOf, model_id: str, body: NewLabels, version: str | None = None) -> None:
    """CreateModelLabels and CreateModelVersionLabels: add labels, or replace those of the same key."""
    labels = labels_by_key(body.labels)
    context.models.change_labels(model_id, version, added=labels)


@router.delete("/{model_id}/labels")
@router.delete("/{model_id}/versions/{version}/labels")
def delete_model_labels(
    context: ContextOf, model_id: str, keys: Annotated[str, Query(alias="LabelKeys")], version: str | None = None
) -> None:
    """DeleteModelLabels and DeleteModelVersionLabels; a label that is not there is no error."""
    context.models.change_labels(model_id, version, added={}, removed=keys.split(","))


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
