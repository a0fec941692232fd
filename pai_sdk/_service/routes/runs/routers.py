"""All routes of runs. They read from `app.state.context.runs`."""

from __future__ import annotations

from fastapi import APIRouter, Response

from pai_sdk._service.routes.runs import compare, event_stream, files, logs, media, runs, traces
from pai_sdk._service.services.budgets import RUNS, BudgetedRoute, within
from pai_sdk._service.services.runs.runs import get_watched_run, no_job
from pai_sdk._service.services.runs.source import RunsOf
from pai_sdk._wire.runs import ExtensionBody

# For runs without a job, such as the runs of a folder; a service with jobs has routes for these paths, which are
# registered first. Reading requests are refused by `get_run`, because `GET exp/job` may mean the run `exp/job`.
_no_job_router = APIRouter(prefix="/api/v1/runs/{run_id:path}", route_class=BudgetedRoute, include_in_schema=False)


@_no_job_router.post("/rerun", response_model=ExtensionBody)
@_no_job_router.post("/stop", response_model=ExtensionBody)
@_no_job_router.patch("/annotations", response_model=ExtensionBody)
@_no_job_router.delete("", response_model=ExtensionBody)
@within(RUNS)
def refuse_action(runs: RunsOf, run_id: str) -> Response:
    """Refuse to change the job of a run."""
    get_watched_run(runs, run_id)
    raise no_job(run_id)


ROUTERS = (
    *(module.router for module in (logs, files, traces, media)),
    _no_job_router,
    *(module.router for module in (runs, compare, event_stream)),
)
"""The order matters: ids of runs may have slashes, so the routes of one run come after all longer paths."""
