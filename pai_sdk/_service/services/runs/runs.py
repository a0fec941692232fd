"""Reads runs from the manager: a page of the list, one run, the points of its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.runs.cursors import Position, epoch_of_points, join_cursor, read_cursor
from pai_sdk._service.services.runs.list_responses import QUEUE_POSITION, STAR, WAITS_FOR, brief_row, tags_of
from pai_sdk._service.services.runs.on_demand_manager import loaded
from pai_sdk._service.services.runs.responses import json_bytes, json_list
from pai_sdk._service.services.runs.source import RunMark, RunSource
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk.errors import InvalidInputError, RunNotFoundError

if TYPE_CHECKING:
    from pai_sdk._data.run.events.series import Series
    from pai_sdk._data.run.watch.manager import RunManager
    from pai_sdk._data.run.watch.records import RunBrief
    from pai_sdk._data.run.watch.watched_run import WatchedRun

_MARKED_TAGS = 100


def get_watched_run(runs: RunSource, run_id: str) -> WatchedRun:
    """Returns a run, or raises WireError."""
    run: WatchedRun = call_manager(loaded(runs, run_id).run, run_id)
    return run


def no_job(run_id: str) -> WireError:
    """Returns the error of a request about the job of a run without a job."""
    message = f"Run {run_id[:200]!r} is a folder of files, without a job: nothing can be stopped or run again."
    return WireError(404, "RUN_HAS_NO_JOB", message)


def call_manager(method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Calls a method of the manager, and turns its errors into responses."""
    try:
        return method(*arguments, **options)
    except RunNotFoundError as error:
        raise WireError(404, "RUN_NOT_FOUND", f"{str(error)[:500]}.") from error
    except InvalidInputError as error:
        raise invalid_parameter(str(error)[:2000]) from error


def version_of(manager: RunManager) -> str:
    """Returns a text that changes with the content of every list."""
    state = manager.state
    return f"{state.epoch}.{state.version}.{state.loaded_at is None}.{state.error}"


def first_nonfinite(run: WatchedRun, work: Work) -> Iterator[RunMark]:
    """Yields the first value of each metric that is not finite."""
    import numpy as np

    tags = [tag for tag, summary in run.tags().items() if summary.nan_count or summary.inf_count]
    for tag in tags[:_MARKED_TAGS]:
        work.check()
        series = run.scalars(tag)
        indices = np.flatnonzero(~np.isfinite(series.value))
        if len(indices):
            at = int(indices[0])
            text = f"{tag} is {float(series.value[at])}"
            yield RunMark("not_finite", text, float(series.wall[at]), int(series.step[at]))


@dataclass(frozen=True)
class RunsQuery:
    """Which runs a page of the list has, and what of them."""

    filter: str
    sort: str
    limit: int
    cursor: str | None
    fields: Sequence[str]
    tags: Sequence[str]  # without any: those of all runs on the page
    user: str  # whose stars the rows have


def runs_page(runs: RunSource, manager: RunManager, query: RunsQuery, work: Work) -> bytes:
    """Returns the JSON of a page of runs; the rows of unchanged runs are cached."""
    page = call_manager(manager.runs, query.filter, query.sort, query.limit, query.cursor)
    row_tags = query.tags or tags_of(page.runs)
    state = manager.state
    positions = runs.queue_positions([brief.id for brief in page.runs]) if QUEUE_POSITION in query.fields else {}
    view = (state.epoch, tuple(row_tags), tuple(query.fields))

    def row(brief: RunBrief) -> Mapping[str, Any] | bytes:
        # Few rows have these. They are not cached: positions change with other jobs, and stars differ by user.
        extra: dict[str, Any] = {}
        if brief.id in positions:
            extra |= zip((QUEUE_POSITION, WAITS_FOR), positions[brief.id], strict=True)
        if query.user in brief.annotations.starred_by and STAR in query.fields:
            extra[STAR] = True
        if extra:
            return {**brief_row(brief, row_tags, query.fields, state.epoch), **extra}
        return runs.rows.row(
            view,
            brief.id,
            brief.version,
            lambda: json_bytes(brief_row(brief, row_tags, query.fields, state.epoch)),
        )

    extra = {
        "tags": row_tags,
        "next": page.next,
        "total": page.total,
        "all": page.all,
        "statuses": page.statuses,
        "version": f"{state.epoch}.{page.version}",
        "loading": state.loaded_at is None,
        "error": state.error,
    }
    return json_list("runs", map(row, page.runs), extra, work)


def points_after(runs: RunSource, run: WatchedRun, tag: str, after: str) -> tuple[Series, dict[str, Any]]:
    """Returns the points of a metric after a cursor, and the header of their response."""
    series = call_manager(run.scalars, tag)
    key = f"scalars:{run.id}:{tag}"
    previous = read_cursor(after, [key]).get(key)
    first = 0 if previous is None else previous.offset
    is_reset = bool(after) and (
        previous is None or first > len(series) or previous.epoch != epoch_of_points(series, first)
    )
    if is_reset:
        first = 0
    state = runs.manager.state
    position = Position(epoch_of_points(series, len(series)), state.version, len(series))
    header = {"run": run.id, "tag": tag, "first": first, "reset": is_reset, "cursor": join_cursor({key: position})}
    return series[first:], header
