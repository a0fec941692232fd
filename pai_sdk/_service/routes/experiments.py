"""Experiment: create, get, list, update, delete, and its labels."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.action_route import FilledFieldsRoute
from pai_sdk._service.routes.json_responses import request_id
from pai_sdk._service.routes.parameters import Order, PageNumber, read_pairs
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.experiments import ORDERS, ExperimentQuery
from pai_sdk._service.state.models import ExperimentRow
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.experiments import (
    ExperimentChanges,
    ExperimentLabel,
    ExperimentList,
    ExperimentRecord,
    NewExperiment,
)
from pai_sdk._wire.labels import NewLabels, labels_by_key
from pai_sdk._wire.pai.wire import wire_time

router = APIRouter(prefix="/api/v1/experiments", route_class=FilledFieldsRoute)

_OWNER = "local"  # this service has no accounts
_PageSize = Annotated[int, Query(ge=1, le=1000)]


@router.post("")
def create_experiment(
    request: Request, context: ContextOf, principal: PrincipalOf, experiment: NewExperiment
) -> ExperimentRecord:
    """CreateExperiment."""
    experiment_id = context.experiments.create(
        experiment.name,
        workspace_id=context.workspace_for(principal, experiment.workspace_id),
        bucket=context.bucket_of(principal),
        accessibility=experiment.accessibility or "PRIVATE",
        artifact_uri=experiment.artifact_uri,
        labels=labels_by_key(experiment.labels or []),
    )
    record_created_id(request, experiment_id)
    return ExperimentRecord(experiment_id=experiment_id)


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
) -> ExperimentList:
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
    return page


@router.get("/{experiment_id}")
def get_experiment(context: ContextOf, experiment_id: str) -> ExperimentRecord:
    """GetExperiment."""
    return _experiment(context.experiments.get(experiment_id))


@router.put("/{experiment_id}")
def update_experiment(context: ContextOf, experiment_id: str, changes: ExperimentChanges) -> None:
    """UpdateExperiment."""
    context.experiments.update(experiment_id, name=changes.name, accessibility=changes.accessibility)


@router.delete("/{experiment_id}")
def delete_experiment(context: ContextOf, experiment_id: str) -> None:
    """DeleteExperiment."""
    context.experiments.delete(experiment_id)


@router.post("/{experiment_id}/labels")
def set_experiment_labels(context: ContextOf, experiment_id: str, body: NewLabels) -> None:
    """SetExperimentLabels."""
    labels = labels_by_key(body.labels)
    context.experiments.set_labels(experiment_id, labels)


@router.delete("/{experiment_id}/labels/{key:path}")
def delete_experiment_label(context: ContextOf, experiment_id: str, key: str) -> None:
    """DeleteExperimentLabel."""
    context.experiments.delete_label(experiment_id, key)


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
            raise invalid_parameter(f"OrderBy: {part[:60]!r} is not one of {', '.join(ORDERS)}, with ASC or DESC.")
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
