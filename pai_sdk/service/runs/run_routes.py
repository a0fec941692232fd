"""Runs: the list, one of them, and the points of its metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from pai_sdk.errors import InvalidInputError, RunNotFoundError
from pai_sdk.service.budgets import RUNS, BudgetedRoute, Work, WorkOf, within
from pai_sdk.service.runs.cursors import Position, epoch_of_points, join_cursor, read_cursor
from pai_sdk.service.runs.curve_responses import CSV, JSON, PAIC, series_response
from pai_sdk.service.runs.kept_manager import loaded
from pai_sdk.service.runs.list_responses import FIELDS, QUEUE_PLACE, brief_row, tag_row, tags_of
from pai_sdk.service.runs.responses import IMMUTABLE, LIVE, best_of, json_bytes, json_list, tagged
from pai_sdk.service.runs.source import RunMark, RunsOf, RunSource
from pai_sdk.service.wire_errors import WireError, invalid_parameter

if TYPE_CHECKING:
    from pai_sdk.run.watch.manager import RunManager
    from pai_sdk.run.watch.records import RunBrief
    from pai_sdk.run.watch.watched_run import WatchedRun

__all__ = ["XName", "asked", "found_run", "names_of", "no_job", "router"]

router = APIRouter(prefix="/api/v1/runs", route_class=BudgetedRoute)

_MOST_RUNS = 10_000
_MOST_NAMES = 1000
_MARKED_TAGS = 100
_PARTS_OF_JOBS = ("job", "usage", "diff", "rerun")
_TERMINAL = frozenset({"Succeed", "Failed", "Terminated", "InitializeFailed", "CreateFailed"})
_Names = Annotated[str, Query(max_length=65_536)]
_Version = Annotated[str, Query(max_length=100, description="The run's version: then the response can be kept.")]
XName = Literal["step", "relative_step", "relative_time", "wall"]


@router.get("")
@within(RUNS)
def list_runs(
    request: Request,
    runs: RunsOf,
    work: WorkOf,
    filter: Annotated[str, Query(max_length=16_384, description="Such as: status=Running loss<0.3")] = "",
    sort: Annotated[str, Query(max_length=1000)] = "-updated",
    fields: _Names = "",
    tags: _Names = "",
    limit: Annotated[int, Query(ge=1, le=_MOST_RUNS)] = 100,
    cursor: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """A page of runs, each with its last values.

    `tags` and `fields` are lists, joined by commas or as JSON. The lists of numbers of a run (`last`, `min`,
    `max`, `step`, `count`, `nan`) have one entry for each of the `tags` of the response, null where the run has
    none; `nonfinite` has the indices of those that are NaN or infinite. Without `tags`, the response has those of
    all runs on the page. A later page is asked for with the `next` of this one as `cursor`.
    """
    manager = loaded(runs)
    version = _version_of(manager)
    key = (filter, sort, fields, tags, limit, cursor)
    content = runs.responses.get(key, version)
    if content is None:
        wanted, given = _fields_of(fields), names_of(tags, "tags")
        page = asked(manager.runs, filter, sort, limit, cursor or None)
        shown = given or tags_of(page.runs)
        state = manager.state
        places = runs.queue_places() if QUEUE_PLACE in wanted else {}
        of = (state.epoch, tuple(shown), tuple(wanted))

        def row(brief: RunBrief) -> Mapping[str, Any] | bytes:
            if brief.id in places:
                return {**brief_row(brief, shown, wanted, state.epoch), QUEUE_PLACE: places[brief.id]}
            return runs.rows.row(
                of, brief.id, brief.version, lambda: json_bytes(brief_row(brief, shown, wanted, state.epoch))
            )

        rest = {
            "tags": shown,
            "next": page.next,
            "total": page.total,
            "version": f"{state.epoch}.{page.version}",
            "loading": state.loaded_at is None,
            "error": state.error,
        }
        content = json_list("runs", map(row, page.runs), rest, work)
        runs.responses.put(key, version, content)
    return tagged(request, content, JSON, LIVE)


@router.get("/{run_id:path}/tags")
@within(RUNS)
def list_run_tags(request: Request, runs: RunsOf, work: WorkOf, run_id: str, v: _Version = "") -> Response:
    """The content of the event files of a run: each tag with its kind, count, first and last point, extremes."""
    brief = found_run(runs, run_id).brief
    content = json_list("tags", map(tag_row, brief.tags.values()), {}, work)
    return tagged(request, content, JSON, _headers(runs, brief, v))


@router.get("/{run_id:path}/events")
@within(RUNS)
def list_run_events(request: Request, runs: RunsOf, work: WorkOf, run_id: str) -> Response:
    """The marks of a run for the x axis: statuses, events, checkpoints, first values that are not finite."""
    run = found_run(runs, run_id)
    marks = sorted([*runs.marks(run_id), *_first_nonfinite(run, work)], key=lambda mark: mark.time or 0.0)
    return tagged(request, json_list("events", map(asdict, marks), {}, work), JSON, LIVE)


@router.get("/{run_id:path}/scalars", responses={200: {"content": {CSV: {}, PAIC: {}}}})
@within(RUNS)
def read_scalars(
    request: Request,
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    tag: Annotated[str, Query(max_length=4096)],
    x: XName = "step",
    start: Annotated[float | None, Query(alias="from", description="The least x.")] = None,
    end: Annotated[float | None, Query(alias="to", description="The largest x.")] = None,
    buckets: Annotated[int, Query(ge=0, le=100_000, description="0 for all points.")] = 0,
    smooth: Annotated[float, Query(ge=0, lt=1)] = 0.0,
    after: Annotated[str, Query(max_length=4096, description="The cursor of an earlier response.")] = "",
    v: _Version = "",
) -> Response:
    """The points of one metric: JSON, CSV (`text/csv`) or columns (`application/vnd.pai.columns`), by `Accept`.

    Without `buckets` all points come, with a `cursor`: given back as `after`, only later points come. `reset` is
    true if they do not continue those that the client has; then all points come. With `buckets`, the least, the
    largest and the last value of each bucket come where there are more than two points a bucket.
    """
    run = found_run(runs, run_id)
    media_type = best_of(request, (JSON, CSV, PAIC))
    _check_range(start, end)
    if after and (buckets or smooth or start is not None or end is not None):
        raise invalid_parameter("after: cannot be combined with buckets, smooth, from and to.")
    series = asked(run.scalars, tag)
    key = f"scalars:{run_id}:{tag}"
    known = read_cursor(after, [key]).get(key)
    first = 0 if known is None else known.offset
    is_reset = bool(after) and (
        known is None or first > len(series) or known.epoch != epoch_of_points(series, first)
    )
    if is_reset:
        first = 0
    state = runs.manager.state
    position = Position(epoch_of_points(series, len(series)), state.version, len(series))
    facts = {"run": run_id, "tag": tag, "first": first, "reset": is_reset, "cursor": join_cursor({key: position})}
    content = asked(series_response, series[first:], media_type, facts, x, start, end, buckets, smooth, work)
    return tagged(request, content, media_type, _headers(runs, run.brief, v))


@router.get("/{run_id:path}")
@within(RUNS)
def get_run(request: Request, runs: RunsOf, work: WorkOf, run_id: str, v: _Version = "") -> Response:
    """One run: status, times, hyperparameters, labels, tags, and what of its files could not be read."""
    try:
        brief = found_run(runs, run_id).brief
    except WireError:
        of_run, _, part = run_id.rpartition("/")
        if part in _PARTS_OF_JOBS:
            found_run(runs, of_run)
            raise no_job(of_run) from None
        raise
    row = brief_row(brief, [], FIELDS, runs.manager.state.epoch)
    content = json_list("tags", map(tag_row, brief.tags.values()), row, work)
    return tagged(request, content, JSON, _headers(runs, brief, v))


def found_run(runs: RunSource, run_id: str) -> WatchedRun:
    """One run.

    Raises:
        WireError: there is none.
    """
    run: WatchedRun = asked(loaded(runs, run_id).run, run_id)
    return run


def no_job(run_id: str) -> WireError:
    """The refusal of a request about the job of a run that has none."""
    message = f"Run {run_id[:200]!r} is a folder of files, without a job: nothing can be stopped or run again."
    return WireError(404, "RUN_HAS_NO_JOB", message)


def names_of(text: str, parameter: str) -> list[str]:
    """A list in a query: joined by commas, or a JSON array.

    Raises:
        WireError: it is too long, or is none.
    """
    if not text.startswith("["):
        names = [name for name in text.split(",") if name]
    else:
        try:
            names = [str(name) for name in json.loads(text)]
        except (ValueError, RecursionError) as error:
            raise invalid_parameter(
                f"{parameter}: is neither a list of names with commas nor a JSON array."
            ) from error
    if len(names) > _MOST_NAMES:
        raise invalid_parameter(f"{parameter}: has {len(names)} names; {_MOST_NAMES} are allowed.")
    return names


def _fields_of(text: str) -> Sequence[str]:
    names = names_of(text, "fields")
    if unknown := [name for name in names if name not in FIELDS]:
        raise invalid_parameter(
            f"fields: {unknown[0][:100]!r} is not a field; the fields are {', '.join(FIELDS)}."
        )
    return names or FIELDS


def asked(question: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a method of the manager; what it refuses is refused here.

    Raises:
        WireError: there is no such run or tag, or an argument cannot be used.
    """
    try:
        return question(*arguments, **options)
    except RunNotFoundError as error:
        raise WireError(404, "RUN_NOT_FOUND", f"{str(error)[:500]}.") from error
    except InvalidInputError as error:
        raise invalid_parameter(str(error)[:2000]) from error


def _version_of(manager: RunManager) -> str:
    state = manager.state
    return f"{state.epoch}.{state.version}.{state.loaded_at is None}.{state.error}"


def _check_range(start: float | None, end: float | None) -> None:
    for name, value in (("from", start), ("to", end)):
        if value is not None and not math.isfinite(value):
            raise invalid_parameter(f"{name}: is {value}; a finite number is needed.")


def _headers(runs: RunsOf, brief: RunBrief, version: str) -> dict[str, str]:
    """True if the response can be kept: that of a run that has ended, asked for by its version."""
    is_final = brief.status in _TERMINAL and version == f"{runs.manager.state.epoch}.{brief.version}"
    return IMMUTABLE if is_final else LIVE


def _first_nonfinite(run: WatchedRun, work: Work) -> Iterator[RunMark]:
    import numpy as np

    tags = [tag for tag, summary in run.tags().items() if summary.nan_count or summary.inf_count]
    for tag in tags[:_MARKED_TAGS]:
        work.check()
        series = run.scalars(tag)
        places = np.flatnonzero(~np.isfinite(series.value))
        if len(places):
            at = int(places[0])
            text = f"{tag} is {float(series.value[at])}"
            yield RunMark("not_finite", text, float(series.wall[at]), int(series.step[at]))
