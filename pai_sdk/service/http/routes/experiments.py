"""Experiment: create, get, list, update, delete, and its labels."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from pai_sdk.schemas.spec import Label
from pai_sdk.schemas.wire import wire_time
from pai_sdk.service.budgets import LISTS, BudgetedRoute, within
from pai_sdk.service.http.auditing import note_created
from pai_sdk.service.http.context import ContextOf, PrincipalOf
from pai_sdk.service.http.routes.json_responses import request_id, success
from pai_sdk.service.http.routes.parameters import Order, PageNumber, check_workspace, read_pairs
from pai_sdk.service.jobs.experiment_table import ORDERS, ExperimentQuery
from pai_sdk.service.jobs.reading import read_body, read_model
from pai_sdk.service.state.models import ExperimentRow
from pai_sdk.service.wire_errors import invalid_parameter

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/experiments", route_class=BudgetedRoute)

_OWNER = "local"  # this service has no accounts
_PageSize = Annotated[int, Query(ge=1, le=1000)]
_Accessibility = Literal["PRIVATE", "PUBLIC"]


class _NewExperiment(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(alias="Name")
    workspace_id: str | None = Field(default=None, alias="WorkspaceId")
    artifact_uri: str | None = Field(default=None, alias="ArtifactUri")
    accessibility: _Accessibility = Field(default="PRIVATE", alias="Accessibility")
    labels: list[Label] = Field(default_factory=list, alias="Labels")


class _ChangedExperiment(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(default=None, alias="Name")
    accessibility: _Accessibility | None = Field(default=None, alias="Accessibility")


class _ExperimentLabels(BaseModel):
    model_config = ConfigDict(extra="forbid")

    labels: list[Label] = Field(default_factory=list, alias="Labels")


@router.post("")
async def create_experiment(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateExperiment."""
    wanted = _read(_NewExperiment, await request.body())
    experiment_id = await run_in_threadpool(
        context.experiments.create,
        wanted.name,
        workspace_id=await run_in_threadpool(check_workspace, context, principal, wanted.workspace_id),
        bucket=context.bucket_of(principal),
        accessibility=wanted.accessibility,
        artifact_uri=wanted.artifact_uri,
        labels=_by_key(wanted.labels),
    )
    note_created(request, experiment_id)
    return success(request, {"ExperimentId": experiment_id})


@router.get("")
@within(LISTS)
def list_experiments(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    page_number: PageNumber = 1,
    page_size: Annotated[_PageSize | None, Query(alias="PageSize")] = None,
    page_token: Annotated[int, Query(alias="PageToken", ge=0, le=1_000_000_000)] = 0,
    max_results: Annotated[_PageSize, Query(alias="MaxResults")] = 10,
    name: Annotated[str | None, Query(alias="Name")] = None,
    options: Annotated[str | None, Query(alias="Options")] = None,
    labels: Annotated[str | None, Query(alias="Labels")] = None,
    workspace_id: Annotated[str | None, Query(alias="WorkspaceId")] = None,
    sort_by: Annotated[str, Query(alias="SortBy")] = "GmtCreateTime",
    order: Order = "DESC",
    order_by: Annotated[str | None, Query(alias="OrderBy")] = None,
) -> Response:
    """ListExperiment, in pages by number or by token. `Options` may hold `{"match_name_exactly": "true"}`.

    There are no runs here, so `Verbose` adds no `LatestRun`.
    """
    size = page_size or max_results
    offset = page_token + (page_number - 1) * size
    query = ExperimentQuery(
        name=name,
        is_exact=_is_exact(options),
        workspace_id=workspace_id,
        workspaces=principal.readable_workspaces,
        labels=read_pairs(labels),
        order_by=_order(order_by) or _order(f"{sort_by} {order}"),
        offset=offset,
        limit=size,
    )
    found, total = context.experiments.find(query)
    fields = {
        "Experiments": [_shown(experiment) for experiment in found],
        "TotalCount": total,
        "requestId": request_id(request),  # this response has both on the wire
    }
    if offset + len(found) < total:
        fields["NextPageToken"] = offset + len(found)
    return success(request, fields)


@router.get("/{experiment_id}")
def get_experiment(request: Request, context: ContextOf, experiment_id: str) -> Response:
    """GetExperiment."""
    return success(request, _shown(context.experiments.get(experiment_id)))


@router.put("/{experiment_id}")
async def update_experiment(request: Request, context: ContextOf, experiment_id: str) -> Response:
    """UpdateExperiment."""
    wanted = _read(_ChangedExperiment, await request.body())
    await run_in_threadpool(
        context.experiments.update, experiment_id, name=wanted.name, accessibility=wanted.accessibility
    )
    return success(request)


@router.delete("/{experiment_id}")
def delete_experiment(request: Request, context: ContextOf, experiment_id: str) -> Response:
    """DeleteExperiment."""
    context.experiments.delete(experiment_id)
    return success(request)


@router.post("/{experiment_id}/labels")
async def set_experiment_labels(request: Request, context: ContextOf, experiment_id: str) -> Response:
    """SetExperimentLabels."""
    labels = _by_key(_read(_ExperimentLabels, await request.body()).labels)
    await run_in_threadpool(context.experiments.set_labels, experiment_id, labels)
    return success(request)


@router.delete("/{experiment_id}/labels/{key:path}")
def delete_experiment_label(request: Request, context: ContextOf, experiment_id: str, key: str) -> Response:
    """DeleteExperimentLabel."""
    context.experiments.delete_label(experiment_id, key)
    return success(request)


_Body = TypeVar("_Body", bound=BaseModel)


def _read(model: type[_Body], body: bytes) -> _Body:
    # An empty text is unset here: no field takes it as a value.
    return read_model(model, {name: value for name, value in read_body(body).items() if value != ""})


def _by_key(labels: list[Label]) -> dict[str, str]:
    return {label.key: label.value for label in labels}


def _is_exact(options: str | None) -> bool:
    try:
        wanted = json.loads(options or "{}")
    except (ValueError, RecursionError) as error:
        raise invalid_parameter("Options: is not a JSON object.") from error
    if not isinstance(wanted, dict) or wanted.keys() - {"match_name_exactly"}:
        raise invalid_parameter('Options: only {"match_name_exactly": "true"} is known.')
    return str(wanted.get("match_name_exactly", "")).lower() == "true"


def _order(text: str | None) -> tuple[tuple[str, bool], ...]:
    """`GmtCreateTime DESC,Name` as columns, each and True for the largest first."""
    found = []
    for part in filter(None, (piece.strip() for piece in (text or "").split(","))):
        column, _, direction = part.partition(" ")
        if column not in ORDERS or direction.strip().upper() not in ("", "ASC", "DESC"):
            raise invalid_parameter(f"OrderBy: {part[:60]!r} is none of {', '.join(ORDERS)}, with ASC or DESC.")
        found.append((column, direction.strip().upper() == "DESC"))
    return tuple(found)


def _shown(experiment: ExperimentRow) -> dict[str, Any]:
    return {
        "ExperimentId": experiment.id,
        "Name": experiment.name,
        "WorkspaceId": experiment.workspace_id,
        "Accessibility": experiment.accessibility,
        "ArtifactUri": experiment.artifact_uri,
        "TensorboardLogUri": f"{experiment.artifact_uri.rstrip('/')}/tensorboard/",
        "OwnerId": _OWNER,
        "UserId": _OWNER,
        "GmtCreateTime": wire_time(experiment.created_at),
        "GmtModifiedTime": wire_time(experiment.modified_at),
        "Labels": [
            {
                "ExperimentId": experiment.id,
                "Key": label.key,
                "Value": label.value,
                "GmtCreateTime": wire_time(label.created_at),
                "GmtModifiedTime": wire_time(label.modified_at),
            }
            for label in experiment.labels
        ],
    }
