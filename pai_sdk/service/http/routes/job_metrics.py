"""TrainingJob: metrics and labels."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool

from pai_sdk.schemas.spec import Label
from pai_sdk.service.budgets import LISTS, BudgetedRoute, within
from pai_sdk.service.http.context import ContextOf
from pai_sdk.service.http.routes.json_responses import answer
from pai_sdk.service.http.routes.training_jobs import PageNumber
from pai_sdk.service.http.times import parse_time
from pai_sdk.service.jobs.job_table import latest_metrics
from pai_sdk.service.jobs.reading import read_body, read_model
from pai_sdk.service.jobs.snapshot import metric_point
from pai_sdk.service.state.models import Metric
from pai_sdk.service.wire_errors import invalid_parameter

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/trainingjobs/{job_id}", route_class=BudgetedRoute)

_MOST_NAMES = 1000


class _JobLabels(BaseModel):
    model_config = ConfigDict(extra="forbid")

    labels: list[Label] = Field(alias="Labels")


@router.get("/metrics")
@within(LISTS)
def list_training_job_metrics(
    request: Request,
    context: ContextOf,
    job_id: str,
    page_number: PageNumber = 1,
    page_size: Annotated[int, Query(alias="PageSize", ge=1, le=10_000)] = 100,
    name: Annotated[str | None, Query(alias="Name")] = None,
    order: Annotated[Literal["ASC", "DESC", "asc", "desc"], Query(alias="Order")] = "ASC",
    start_time: Annotated[str | None, Query(alias="StartTime")] = None,
    end_time: Annotated[str | None, Query(alias="EndTime")] = None,
) -> Response:
    """ListTrainingJobMetrics, the oldest first unless told otherwise."""
    context.jobs.version(job_id)
    conditions = [Metric.job_id == job_id]
    if name:
        conditions.append(Metric.name == name)
    started_at, ended_at = parse_time(start_time, "StartTime"), parse_time(end_time, "EndTime")
    if started_at is not None:
        conditions.append(Metric.timestamp >= started_at)
    if ended_at is not None:
        conditions.append(Metric.timestamp <= ended_at)
    columns = [Metric.timestamp, Metric.number]  # several files are read in turn, so the number is not the order
    sorting = [column.asc() if order.upper() == "ASC" else column.desc() for column in columns]
    with context.jobs.database.read() as session:
        total = session.scalar(select(func.count()).select_from(Metric).where(*conditions)) or 0
        page = select(Metric).where(*conditions).order_by(*sorting)
        metrics = session.scalars(page.limit(page_size).offset((page_number - 1) * page_size)).all()
    return answer(request, {"Metrics": [metric_point(metric) for metric in metrics], "TotalCount": total})


@router.get("/latestmetrics")
def get_training_job_latest_metrics(
    request: Request, context: ContextOf, job_id: str, names: Annotated[str | None, Query(alias="Names")] = None
) -> Response:
    """GetTrainingJobLatestMetrics."""
    context.jobs.version(job_id)
    with context.jobs.database.read() as session:
        metrics = latest_metrics(session, job_id, _names(names))
    return answer(request, {"Metrics": [metric_point(metric) for metric in metrics]})


@router.post("/labels")
async def update_training_job_labels(request: Request, context: ContextOf, job_id: str) -> Response:
    """UpdateTrainingJobLabels: adds labels, replaces those of the same key, and leaves the others."""
    labels = read_model(_JobLabels, read_body(await request.body())).labels
    new = {label.key: label.value for label in labels}
    await run_in_threadpool(context.jobs.set_labels, job_id, new)
    return answer(request)


@router.delete("/labels")
def delete_training_job_labels(
    request: Request, context: ContextOf, job_id: str, keys: Annotated[str, Query(alias="Keys")]
) -> Response:
    """DeleteTrainingJobLabels."""
    context.jobs.delete_labels(job_id, _names(keys))
    return answer(request)


def _names(text: str | None) -> list[str]:
    """A list in a query: joined by commas, or a JSON array.

    Raises:
        Fault: it is longer than a database takes.
    """
    names = _split(text) if text else []
    if len(names) > _MOST_NAMES:
        raise invalid_parameter(f"The query has a list of {len(names)} names; {_MOST_NAMES} are allowed.")
    return names


def _split(text: str) -> list[str]:
    if text.startswith("["):
        try:
            names = [str(name) for name in json.loads(text)]
            if b"\0" not in "".join(names).encode():  # no database takes NUL, or lone surrogates
                return names
        except (ValueError, RecursionError):
            pass  # a name that begins so
    return text.split(",")
