"""Routes of runs: the list, one run, and the points of its metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from pai_sdk._data.run.plots.curve_view import CurveView
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.services.budgets import RUNS, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.runs.curve_responses import CSV, JSON, PAIC, series_response
from pai_sdk._service.services.runs.list_responses import ANNOTATIONS, FIELDS, brief_row, tag_row
from pai_sdk._service.services.runs.on_demand_manager import loaded
from pai_sdk._service.services.runs.page_filter import check_key, page_filter
from pai_sdk._service.services.runs.parts import run_parts
from pai_sdk._service.services.runs.responses import IMMUTABLE, LIVE, best_of, json_list, tagged
from pai_sdk._service.services.runs.runs import (
    RunsQuery,
    call_manager,
    first_nonfinite,
    get_watched_run,
    no_job,
    points_after,
    runs_page,
    version_of,
)
from pai_sdk._service.services.runs.source import RunsOf
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.runs import RunDetails, RunEventList, RunList, RunScalars, RunTagList

if TYPE_CHECKING:
    from pai_sdk._data.run.watch.records import RunBrief

__all__ = ["XName", "names_of", "router"]

router = APIRouter(prefix="/api/v1/runs", route_class=BudgetedRoute)

_MAX_RUNS = 10_000
_MAX_NAMES = 1000
_PARTS_OF_JOBS = ("job", "usage", "diff", "rerun")
_TERMINAL = frozenset({"Succeed", "Failed", "Terminated", "InitializeFailed", "CreateFailed"})
_Names = Annotated[str, Query(max_length=65_536)]
_Version = Annotated[str, Query(max_length=100, description="The run's version: then the response can be kept.")]
XName = Literal["step", "relative_step", "relative_time", "wall"]


@router.get("", response_model=RunList)
@within(RUNS)
def list_runs(
    request: Request,
    runs: RunsOf,
    principal: PrincipalOf,
    work: WorkOf,
    filter: Annotated[str, Query(max_length=16_384, description="Such as: status=Running loss<0.3")] = "",
    sort: Annotated[str, Query(max_length=1000)] = "-updated",
    fields: _Names = "",
    tags: _Names = "",
    limit: Annotated[int, Query(ge=1, le=_MAX_RUNS)] = 100,
    cursor: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """List a page of runs, each with its last values.

    `tags` and `fields` are lists, joined by commas or as JSON. The lists of numbers of a run (`last`, `min`,
    `max`, `step`, `count`, `nan`) have one entry for each of the `tags` of the response, null if the run does not
    have the tag; `nonfinite` has the indices of NaN and infinity. Without `tags`, the response has the tags of all
    runs on the page. For the next page, send `next` as `cursor`. Archived jobs are left out unless the filter
    names `archived` or `id`.
    """
    manager = loaded(runs)
    version = version_of(manager)
    check_key("sort", sort)
    filter = page_filter(filter, principal.user)
    key = (principal.user, filter, sort, fields, tags, limit, cursor)
    content = runs.responses.get(key, version)
    if content is None:
        query = RunsQuery(
            filter, sort, limit, cursor or None, _fields_of(fields), names_of(tags, "tags"), principal.user
        )
        content = runs_page(runs, manager, query, work)
        runs.responses.put(key, version, content)
    return tagged(request, content, JSON, LIVE)


@router.get("/{run_id:path}/tags", response_model=RunTagList)
@within(RUNS)
def list_run_tags(request: Request, runs: RunsOf, work: WorkOf, run_id: str, v: _Version = "") -> Response:
    """List the tags of the event files of a run, with kind, count, first and last point, extremes."""
    brief = get_watched_run(runs, run_id).brief
    content = json_list("tags", map(tag_row, brief.tags.values()), {}, work)
    return tagged(request, content, JSON, _headers(runs, brief, v))


@router.get("/{run_id:path}/events", response_model=RunEventList)
@within(RUNS)
def list_run_events(request: Request, runs: RunsOf, work: WorkOf, run_id: str) -> Response:
    """List the marks of a run on the x axis: statuses, events, checkpoints, first values that are not finite."""
    run = get_watched_run(runs, run_id)
    marks = sorted([*runs.marks(run_id), *first_nonfinite(run, work)], key=lambda mark: mark.time or 0.0)
    return tagged(request, json_list("events", map(asdict, marks), {}, work), JSON, LIVE)


@router.get("/{run_id:path}/scalars", response_model=RunScalars, responses={200: {"content": {CSV: {}, PAIC: {}}}})
@within(RUNS)
def read_scalars(
    request: Request,
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    tag: Annotated[str, Query(max_length=4096)],
    x: XName = "step",
    start: Annotated[float | None, Query(alias="from", description="The minimum x.")] = None,
    end: Annotated[float | None, Query(alias="to", description="The maximum x.")] = None,
    buckets: Annotated[int, Query(ge=0, le=100_000, description="0 for all points.")] = 0,
    smooth: Annotated[float, Query(ge=0, lt=1)] = 0.0,
    after: Annotated[str, Query(max_length=4096, description="The cursor of an earlier response.")] = "",
    v: _Version = "",
) -> Response:
    """Read the points of a metric: JSON, CSV (`text/csv`) or columns (`application/vnd.pai.columns`), by `Accept`.

    Without `buckets` the response has all points and a `cursor`; with this cursor as `after` it has later points
    only. `reset` is true if these do not continue the earlier ones; then it has all points. With `buckets`, it has
    minimum, maximum and last value of each bucket if there are more than two points per bucket.
    """
    run = get_watched_run(runs, run_id)
    media_type = best_of(request, (JSON, CSV, PAIC))
    _check_range(start, end)
    if after and (buckets or smooth or start is not None or end is not None):
        raise invalid_parameter("after: cannot be combined with buckets, smooth, from and to.")
    series, header = points_after(runs, run, tag, after)
    view = CurveView(x, start, end, buckets, smooth)
    content = call_manager(series_response, series, media_type, header, view, work)
    return tagged(request, content, media_type, _headers(runs, run.brief, v))


@router.get("/{run_id:path}", response_model=RunDetails)
@within(RUNS)
def get_run(request: Request, runs: RunsOf, work: WorkOf, run_id: str, v: _Version = "") -> Response:
    """Read a run: status, times, hyperparameters, labels, tags, and the files that could not be read."""
    try:
        brief = get_watched_run(runs, run_id).brief
    except WireError:
        of_run, _, part = run_id.rpartition("/")
        if part in _PARTS_OF_JOBS:
            get_watched_run(runs, of_run)
            raise no_job(of_run) from None
        raise
    # Without annotations: `tags` are those of event files here.
    fields = [name for name in FIELDS if name not in ANNOTATIONS]
    row = {**brief_row(brief, [], fields, runs.manager.state.epoch), "parts": [*run_parts(runs, run_id)]}
    content = json_list("tags", map(tag_row, brief.tags.values()), row, work)
    return tagged(request, content, JSON, _headers(runs, brief, v))


def names_of(text: str, parameter: str) -> list[str]:
    """Parses a list in a query: names joined by commas, or a JSON array."""
    if not text.startswith("["):
        names = [name for name in text.split(",") if name]
    else:
        try:
            names = [str(name) for name in json.loads(text)]
        except (ValueError, RecursionError) as error:
            raise invalid_parameter(
                f"{parameter}: is neither a list of names with commas nor a JSON array."
            ) from error
    if len(names) > _MAX_NAMES:
        raise invalid_parameter(f"{parameter}: has {len(names)} names; {_MAX_NAMES} are allowed.")
    return names


def _fields_of(text: str) -> Sequence[str]:
    names = names_of(text, "fields")
    if unknown := [name for name in names if name not in FIELDS]:
        raise invalid_parameter(
            f"fields: {unknown[0][:100]!r} is not a field; the fields are {', '.join(FIELDS)}."
        )
    return names or FIELDS


def _check_range(start: float | None, end: float | None) -> None:
    for name, value in (("from", start), ("to", end)):
        if value is not None and not math.isfinite(value):
            raise invalid_parameter(f"{name}: is {value}; a finite number is needed.")


def _headers(runs: RunsOf, brief: RunBrief, version: str) -> dict[str, str]:
    """Returns the headers for caching: a finished run that is requested by its version never changes."""
    is_final = brief.status in _TERMINAL and version == f"{runs.manager.state.epoch}.{brief.version}"
    return IMMUTABLE if is_final else LIVE
