"""Refuses actions on the job of a run without a job, such as the runs of a folder.

A service with jobs has routes for these paths, which are registered first. Reading requests are refused by
`get_run`, because `GET exp/job` may mean the run `exp/job`.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from pai_sdk._service.services.budgets import RUNS, BudgetedRoute, within
from pai_sdk._service.services.runs.runs import get_watched_run, no_job
from pai_sdk._service.services.runs.source import RunsOf
from pai_sdk._wire.runs import ExtensionBody

router = APIRouter(prefix="/api/v1/runs/{run_id:path}", route_class=BudgetedRoute, include_in_schema=False)


@router.post("/rerun", response_model=ExtensionBody)
@router.post("/stop", response_model=ExtensionBody)
@router.delete("", response_model=ExtensionBody)
@within(RUNS)
def refuse_action(runs: RunsOf, run_id: str) -> Response:
    """Refuse to change the job of a run."""
    get_watched_run(runs, run_id)
    raise no_job(run_id)
