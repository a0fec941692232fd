"""Registered models and their versions: create, get, list, update, delete, and their labels."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_pascal
from starlette.concurrency import run_in_threadpool

from pai_sdk.schemas.spec import Label
from pai_sdk.schemas.wire import wire_time
from pai_sdk.service.budgets import LISTS, BudgetedRoute, within
from pai_sdk.service.http.auditing import note_created
from pai_sdk.service.http.context import ContextOf, PrincipalOf
from pai_sdk.service.http.routes.json_responses import success
from pai_sdk.service.http.routes.parameters import Order, PageNumber, PageSize, check_workspace, read_pairs
from pai_sdk.service.jobs.reading import read_body, read_model
from pai_sdk.service.registry.model_registry import MODEL_FIELDS, ModelQuery
from pai_sdk.service.state.models import ModelRow, ModelVersionRow

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/models", route_class=BudgetedRoute)

_OWNER = "local"  # this service has no accounts
_Text = Annotated[str | None, Field(max_length=65536)]


class _Body(BaseModel):
    model_config = ConfigDict(alias_generator=to_pascal, extra="forbid", protected_namespaces=())

    def fields(self, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
        """The fields that are given, by their names on the wire."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"labels", *without})


class _ModelFields(_Body):
    accessibility: _Text = None
    domain: _Text = None
    extra_info: dict[str, Any] | None = None
    model_description: _Text = None
    model_doc: _Text = None
    model_type: _Text = None
    order_number: int | None = None
    origin: _Text = None
    parameter_size: int | None = None
    tag: list[Label] | None = None
    task: _Text = None


class _NewModel(_ModelFields):
    model_name: str
    workspace_id: str | None = None
    labels: list[Label] = Field(default_factory=list)


class _ChangedModel(_ModelFields):
    model_name: str | None = None  # models are not renamed; clients send the name they know


class _VersionFields(_Body):
    approval_status: _Text = None
    compression_spec: dict[str, Any] | None = None
    distillation_spec: dict[str, Any] | None = None
    evaluation_spec: dict[str, Any] | None = None
    extra_info: dict[str, Any] | None = None
    inference_spec: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    options: _Text = None
    source_id: _Text = None
    source_type: _Text = None
    training_spec: dict[str, Any] | None = None
    version_description: _Text = None


class _NewVersion(_VersionFields):
    uri: str = Field(max_length=4096)
    version_name: str | None = None
    format_type: _Text = None
    framework_type: _Text = None
    labels: list[Label] = Field(default_factory=list)


class _Labels(_Body):
    labels: list[Label] = Field(default_factory=list)


# ---- models ---------------------------------------------------------------------------------------------------


@router.post("")
async def create_model(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateModel."""
    wanted = _read(_NewModel, await request.body())
    model_id = await run_in_threadpool(
        context.models.create,
        wanted.model_name,
        workspace_id=await run_in_threadpool(check_workspace, context, principal, wanted.workspace_id),
        fields=wanted.fields(without=("model_name", "workspace_id")),
        labels=_by_key(wanted.labels),
    )
    note_created(request, model_id)
    return success(request, {"ModelId": model_id})


@router.get("")
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
        fields=dict(zip(MODEL_FIELDS, (task, domain, origin, model_type), strict=True)),
        labels=read_pairs(label),
        offset=(page_number - 1) * page_size,
        limit=page_size,
        newest_first=order.upper() == "DESC",
    )
    found, total = ([], 0) if provider else context.models.find(query)
    shown = [_shown(model, newest) for model, newest in found]
    return success(request, {"Models": shown, "TotalCount": total})


@router.get("/{model_id}")
def get_model(request: Request, context: ContextOf, model_id: str) -> Response:
    """GetModel."""
    return success(request, _shown(*context.models.get(model_id)))


@router.put("/{model_id}")
async def update_model(request: Request, context: ContextOf, model_id: str) -> Response:
    """UpdateModel."""
    wanted = _read(_ChangedModel, await request.body())
    await run_in_threadpool(context.models.update, model_id, wanted.fields(without=("model_name",)))
    return success(request)


@router.delete("/{model_id}")
def delete_model(request: Request, context: ContextOf, model_id: str) -> Response:
    """DeleteModel, with its versions."""
    context.models.delete(model_id)
    return success(request)


# ---- versions -------------------------------------------------------------------------------------------------


@router.post("/{model_id}/versions")
async def create_model_version(request: Request, context: ContextOf, model_id: str) -> Response:
    """CreateModelVersion."""
    wanted = _read(_NewVersion, await request.body())
    name = await run_in_threadpool(
        context.models.create_version,
        model_id,
        wanted.version_name,
        fields=wanted.fields(without=("version_name",)),
        labels=_by_key(wanted.labels),
    )
    return success(request, {"VersionName": name})


@router.get("/{model_id}/versions")
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
    _, found, total = context.models.list_versions(
        model_id, name=name, page_number=page_number, page_size=page_size
    )
    return success(request, {"Versions": [_shown_version(version) for version in found], "TotalCount": total})


@router.get("/{model_id}/versions/{version}")
def get_model_version(request: Request, context: ContextOf, model_id: str, version: str) -> Response:
    """GetModelVersion."""
    return success(request, _shown_version(context.models.get_version(model_id, version)[1]))


@router.put("/{model_id}/versions/{version}")
async def update_model_version(request: Request, context: ContextOf, model_id: str, version: str) -> Response:
    """UpdateModelVersion."""
    wanted = _read(_VersionFields, await request.body())
    await run_in_threadpool(context.models.update_version, model_id, version, wanted.fields())
    return success(request)


@router.delete("/{model_id}/versions/{version}")
def delete_model_version(request: Request, context: ContextOf, model_id: str, version: str) -> Response:
    """DeleteModelVersion."""
    context.models.delete_version(model_id, version)
    return success(request)


# ---- labels ---------------------------------------------------------------------------------------------------


@router.post("/{model_id}/labels")
@router.post("/{model_id}/versions/{version}/labels")
async def create_model_labels(
    request: Request, context: ContextOf, model_id: str, version: str | None = None
) -> Response:
    """CreateModelLabels and CreateModelVersionLabels: add labels, or replace those of the same key."""
    labels = _by_key(_read(_Labels, await request.body()).labels)
    await run_in_threadpool(context.models.change_labels, model_id, version, added=labels)
    return success(request)


@router.delete("/{model_id}/labels")
@router.delete("/{model_id}/versions/{version}/labels")
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


_Wanted = TypeVar("_Wanted", bound=_Body)


def _read(model: type[_Wanted], body: bytes) -> _Wanted:
    # An empty text is unset here: no field takes it as a value.
    return read_model(model, {name: value for name, value in read_body(body).items() if value != ""})


def _by_key(labels: list[Label]) -> dict[str, str]:
    return {label.key: label.value for label in labels}


def _shown(model: ModelRow, newest: ModelVersionRow | None) -> dict[str, Any]:
    fields = {name: getattr(model, column.key) for name, column in MODEL_FIELDS.items()}
    shown = {
        **model.details,
        **{name: value for name, value in fields.items() if value is not None},
        "ModelId": model.id,
        "ModelName": model.name,
        "WorkspaceId": model.workspace_id,
        "OwnerId": _OWNER,
        "UserId": _OWNER,
        "Labels": _shown_labels(model.labels),
        "GmtCreateTime": wire_time(model.created_at),
        "GmtModifiedTime": wire_time(model.modified_at),
    }
    return shown if newest is None else {**shown, "LatestVersion": _shown_version(newest)}


def _shown_version(version: ModelVersionRow) -> dict[str, Any]:
    return {
        **version.details,
        "VersionName": version.name,
        "OwnerId": _OWNER,
        "UserId": _OWNER,
        "Labels": _shown_labels(version.labels),
        "GmtCreateTime": wire_time(version.created_at),
        "GmtModifiedTime": wire_time(version.modified_at),
    }


def _shown_labels(labels: dict[str, Any]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in labels.items()]
