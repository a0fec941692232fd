"""Experiment: create, get, list, update, delete, and its labels."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.http.bodies import accepts, read_json
from pai_sdk._service.routes.json_responses import request_id, success
from pai_sdk._service.routes.parameters import Order, PageNumber, read_pairs
from pai_sdk._service.services.budgets import LISTS, BudgetedRoute, within
from pai_sdk._service.services.context import ContextOf, PrincipalOf
from pai_sdk._service.services.experiments import ORDERS, ExperimentQuery
from pai_sdk._service.state.models import ExperimentRow
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.base import Empty
from pai_sdk._wire.experiments import (
    ExperimentChanges,
    ExperimentLabel,
    ExperimentList,
    ExperimentRecord,
    NewExperiment,
)
from pai_sdk._wire.labels import NewLabels, labels_by_key
from pai_sdk._wire.pai.wire import wire_time

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/experiments", route_class=BudgetedRoute)

_OWNER = "local"  # this service has no accounts
_PageSize = Annotated[int, Query(ge=1, le=1000)]


@router.post("", response_model=ExperimentRecord)
@accepts(NewExperiment)
async def create_experiment(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """CreateExperiment."""
    experiment = await read_json(NewExperiment, request, empty_is_unset=True)
    experiment_id = await run_in_threadpool(
        context.experiments.create,
        experiment.name,
        workspace_id=await run_in_threadpool(context.workspace_for, principal, experiment.workspace_id),
        bucket=context.bucket_of(principal),
        accessibility=experiment.accessibility or "PRIVATE",
        artifact_uri=experiment.artifact_uri,
        labels=labels_by_key(experiment.labels or []),
    )
    record_created_id(request, experiment_id)
    return success(request, ExperimentRecord(experiment_id=experiment_id))


@router.get("", response_model=ExperimentList)
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
    rows, total = context.experiments.find(query)
    page = ExperimentList(
        experiments=[_experiment(row) for row in rows], total_count=total, request_id=request_id(request)
    )
    if (next_offset := offset + len(rows)) < total:
        page = page.model_copy(update={"next_page_token": next_offset})
    return success(request, page)


@router.get("/{experiment_id}", response_model=ExperimentRecord)
def get_experiment(request: Request, context: ContextOf, experiment_id: str) -> Response:
    """GetExperiment."""
    return success(request, _experiment(context.experiments.get(experiment_id)))


@router.put("/{experiment_id}", response_model=Empty)
@accepts(ExperimentChanges)
async def update_experiment(request: Request, context: ContextOf, experiment_id: str) -> Response:
    """UpdateExperiment."""
    changes = await read_json(ExperimentChanges, request, empty_is_unset=True)
    await run_in_threadpool(
        context.experiments.update, experiment_id, name=changes.name, accessibility=changes.accessibility
    )
    return success(request)


@router.delete("/{experiment_id}", response_model=Empty)
def delete_experiment(request: Request, context: ContextOf, experiment_id: str) -> Response:
    """DeleteExperiment."""
    context.experiments.delete(experiment_id)
    return success(request)


@router.post("/{experiment_id}/labels", response_model=Empty)
@accepts(NewLabels)
async def set_experiment_labels(request: Request, context: ContextOf, experiment_id: str) -> Response:
    """SetExperimentLabels."""
    body = await read_json(NewLabels, request, empty_is_unset=True)
    labels = labels_by_key(body.labels)
    await run_in_threadpool(context.experiments.set_labels, experiment_id, labels)
    return success(request)


@router.delete("/{experiment_id}/labels/{key:path}", response_model=Empty)
def delete_experiment_label(request: Request, context: ContextOf, experiment_id: str, key: str) -> Response:
    """DeleteExperimentLabel."""
    context.experiments.delete_label(experiment_id, key)
    return success(request)


def _is_exact(options: str | None) -> bool:
    try:
        option = json.loads(options or "{}")
    except (ValueError, RecursionError) as error:
        raise invalid_parameter("Options: is not a JSON object.") from error
    if not isinstance(option, dict) or option.keys() - {"match_name_exactly"}:
        raise invalid_parameter('Options: only {"match_name_exactly": "true"} is known.')
    return str(option.get("match_name_exactly", "")).lower() == "true"


def _order(text: str | None) -> tuple[tuple[str, bool], ...]:
    """Parses `GmtCreateTime DESC,Name`: columns, each with whether its order is descending."""
    orders = []
    for part in filter(None, map(str.strip, (text or "").split(","))):
        column, _, direction = part.partition(" ")
        if column not in ORDERS or direction.strip().upper() not in ("", "ASC", "DESC"):
            raise invalid_parameter(f"OrderBy: {part[:60]!r} is none of {', '.join(ORDERS)}, with ASC or DESC.")
        orders.append((column, direction.strip().upper() == "DESC"))
    return tuple(orders)


def _experiment(row: ExperimentRow) -> ExperimentRecord:
    return ExperimentRecord(
        experiment_id=row.id,
        name=row.name,
        workspace_id=row.workspace_id,
        accessibility=row.accessibility,
        artifact_uri=row.artifact_uri,
        tensorboard_log_uri=f"{row.artifact_uri.rstrip('/')}/tensorboard/",
        owner_id=_OWNER,
        user_id=_OWNER,
        gmt_create_time=wire_time(row.created_at),
        gmt_modified_time=wire_time(row.modified_at),
        labels=[
            ExperimentLabel(
                experiment_id=row.id,
                key=label.key,
                value=label.value,
                gmt_create_time=wire_time(label.created_at),
                gmt_modified_time=wire_time(label.modified_at),
            )
            for label in row.labels
        ],
    )
