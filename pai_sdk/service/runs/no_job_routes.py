"""Refuses actions on the job of a run that has none, such as the runs of a folder.

The application of a service has routes for them that come first. Requests that only read are refused by `get_run`:
what looks like `GET exp/job` may be the run `exp/job`.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from pai_sdk.service.budgets import RUNS, BudgetedRoute, within
from pai_sdk.service.runs.run_routes import found_run, no_job
from pai_sdk.service.runs.source import RunsOf

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/runs/{run_id:path}", route_class=BudgetedRoute, include_in_schema=False)


@router.post("/rerun")
@router.post("/stop")
@router.delete("")
@within(RUNS)
def refuse_action(runs: RunsOf, run_id: str) -> Response:
    """Refuse to change the job of a run."""
    found_run(runs, run_id)
    raise no_job(run_id)
