"""TrainingJob: metrics and labels."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.routes.parameters import Order, PageNumber, TimeWindow
from pai_sdk._service.services.budgets import METRICS, WorkOf, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.job_metrics import PointsQuery
from pai_sdk._service.services.jobs.snapshot import metric_point
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.training_jobs import JobLabels, LatestMetricsList, MetricsList, metrics_page

router = APIRouter(prefix="/api/v1/trainingjobs/{job_id}", route_class=ActionRoute)

_MAX_NAMES = 1000


@router.get("/metrics", response_model=MetricsList)
@within(METRICS)
def list_training_job_metrics(
    request: Request,
    context: ContextOf,
    work: WorkOf,
    job_id: str,
    window: TimeWindow,
    page_number: PageNumber = 1,
    page_size: Annotated[int, Query(alias="PageSize", ge=1, le=10_000)] = 100,
    name: Annotated[str | None, Query(alias="Name")] = None,
    order: Order = "ASC",
) -> Response:
    """ListTrainingJobMetrics, by default the oldest first."""
    context.jobs.version(job_id)
    query = PointsQuery(
        name or "",
        window.started_at,
        window.ended_at,
        order.upper() == "DESC",
        page_size * (page_number - 1),
        page_size,
    )
    total, metrics = context.metrics.page(job_id, query, lambda count: work.hold(count, "points"))
    return success(request, metrics_page(metrics, total))


@router.get("/latestmetrics")
def get_training_job_latest_metrics(
    context: ContextOf, job_id: str, names: Annotated[str | None, Query(alias="Names")] = None
) -> LatestMetricsList:
    """GetTrainingJobLatestMetrics."""
    context.jobs.version(job_id)
    metrics = context.metrics.latest(job_id, _names(names))
    return LatestMetricsList(metrics=[metric_point(metric) for metric in metrics])


@router.post("/labels")
def update_training_job_labels(context: ContextOf, job_id: str, body: JobLabels) -> None:
    """UpdateTrainingJobLabels: adds labels, replaces those of the same key, and leaves the others."""
    new = {label.key: label.value for label in body.labels}
    context.jobs.set_labels(job_id, new)


@router.delete("/labels")
def delete_training_job_labels(context: ContextOf, job_id: str, keys: Annotated[str, Query(alias="Keys")]) -> None:
    """DeleteTrainingJobLabels."""
    context.jobs.delete_labels(job_id, _names(keys))


def _names(text: str | None) -> list[str]:
    """Reads a list in a query: joined by commas, or a JSON array."""
    names = _split(text) if text else []
    if len(names) > _MAX_NAMES:
        raise invalid_parameter(f"The query has a list of {len(names)} names; {_MAX_NAMES} are allowed.")
    return names


def _split(text: str) -> list[str]:
    if text.startswith("["):
        try:
            names = [str(name) for name in json.loads(text)]
            if b"\0" not in "".join(names).encode():  # no database stores NUL or lone surrogates
                return names
        except (ValueError, RecursionError):
            pass  # a name that starts with a bracket
    return text.split(",")
