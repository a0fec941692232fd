"""The routes of the page for runs of pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeAlias

from fastapi import APIRouter, Depends, FastAPI, Request, Response

from pai_sdk._service.http.page_requests import PAGE_PATH
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.services.budgets import RUNS, BudgetedRoute, Work, WorkOf, within
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._service.wire_errors import WireError
from pai_sdk.errors import RunNotFoundError, StorageError


class PipelineSource(Protocol):
    """A source of runs of pipelines. Safe to use from several threads."""

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Returns the runs, the newest first."""
        ...

    def detail(self, run_id: str) -> Mapping[str, Any]:
        """Returns a run with its steps, and its diagram as SVG; raises `RunNotFoundError`."""
        ...


OpenPipelines: TypeAlias = Callable[[Principal, Work], PipelineSource]
"""Returns the runs of pipelines that a user can see, for one request."""

_router = APIRouter(prefix=f"{PAGE_PATH}pipelines", route_class=BudgetedRoute)


def add_pipelines(app: FastAPI, open_pipelines: OpenPipelines) -> None:
    """Adds the routes to an application."""
    app.state.pipelines = open_pipelines
    app.include_router(_router, include_in_schema=False)


async def _source(request: Request, principal: PrincipalOf, work: WorkOf) -> PipelineSource:
    open_pipelines: OpenPipelines = request.app.state.pipelines
    return open_pipelines(principal, work)


_SourceOf = Annotated[PipelineSource, Depends(_source)]


@_router.get("")
@within(RUNS)
def list_pipeline_runs(pipelines: _SourceOf, work: WorkOf) -> Response:
    """Returns the runs of pipelines, the newest first."""
    return json_response({"runs": [dict(row) for row in pipelines.rows()]}, LIVE, work)


@_router.get("/{run_id:path}")
@within(RUNS)
def get_pipeline_run(pipelines: _SourceOf, work: WorkOf, run_id: str) -> Response:
    """Returns a run with its steps and its diagram."""
    try:
        return json_response(pipelines.detail(run_id), LIVE, work)
    except RunNotFoundError as error:
        raise WireError(404, "RUN_NOT_FOUND", f"{str(error)[:500]}.") from error
    except StorageError as error:
        raise WireError(404, "RUN_NOT_READABLE", f"{str(error)[:500]}.") from error
