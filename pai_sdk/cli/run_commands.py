"""The commands about runs: runs, compare; and what `metrics` shows of a run's folder."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk.base.html_table import hparam_text
from pai_sdk.base.paths import expanded
from pai_sdk.cli import exit_codes
from pai_sdk.cli.jobs import Json
from pai_sdk.cli.tables import Column, print_json, print_table, table_console
from pai_sdk.display.base import visible_text
from pai_sdk.display.curves import blocks_of
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, Problem
from pai_sdk.job.runs_of_jobs import RunsOfJobs
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.schemas.hyperparameters import compare_hyperparameters
from pai_sdk.schemas.record import MetricPoint
from pai_sdk.schemas.status import JobStatus
from pai_sdk.schemas.wire import wire_time
from pai_sdk.storage.store import open_store
from pai_sdk.storage.stores.local import path_of_file_uri
from pai_sdk.storage.uri import uri_scheme

if TYPE_CHECKING:
    from rich.text import Text

    from pai_sdk.run.plots.buckets import Comparison
    from pai_sdk.run.watch.manager import RunManager
    from pai_sdk.run.watch.records import RunBrief, RunPage

__all__ = ["compare", "follow_run", "is_folder", "run_points", "runs"]

_COLOURS = {exit_codes.SUCCEEDED: "green", exit_codes.FAILED: "red", exit_codes.STOPPED: "yellow"}
_LOOK_S = 1.0
_MOST_JOBS = 200
_MOST_HPARAMS = 6
_BLOCKS = 24

Prefixes = Annotated[
    list[str] | None,
    typer.Argument(metavar="PREFIX", help="Folders or URIs with runs; the session's jobs without one."),
]
Tags = Annotated[list[str] | None, typer.Option("--tag", "-t", help="A metric to show; may be repeated.")]


def runs(
    prefixes: Prefixes = None,
    filter_by: Annotated[
        str, typer.Option("--filter", "-f", help="Conditions: `status=Running loss<0.3 hparams.lr=0.1 name~res`.")
    ] = "",
    sort: Annotated[
        str, typer.Option(help="id, created, updated, status, hparams.NAME or metrics.TAG; - reverses.")
    ] = "-updated",
    tag: Tags = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most runs to show.")] = 20,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on as runs grow, until Ctrl-C.")] = False,
) -> None:
    """List runs: status, age, hyperparameters that differ, the last value of each metric.

    Example: pai-sdk runs ./runs --filter "loss<0.3" --sort metrics.loss --tag loss
    """
    with _manager_of(prefixes or []) as manager:
        manager.refresh()
        _raise_if_failed(manager)
        page = manager.runs(filter_by, sort, limit)
        if not watch:  # which waits for a folder, too
            _check_folders(prefixes or [], page.total)
            _print_page(page, tag or [], as_json=as_json)
            return
        try:
            _watch(manager, lambda: manager.runs(filter_by, sort, limit), tag or [], as_json=as_json)
        except KeyboardInterrupt:
            return


def compare(
    run: Annotated[list[str], typer.Argument(metavar="RUN…", help="Ids of jobs; folders or URIs of runs.")],
    tag: Annotated[str, typer.Option("--tag", "-t", help="The metric.")],
    x: Annotated[str, typer.Option(help="step, relative_step, relative_time or wall.")] = "step",
    smooth: Annotated[float, typer.Option(min=0.0, max=0.999, help="The weight of smoothing.")] = 0.0,
    save: Annotated[
        Path | None, typer.Option(help="Write the curves to a file: .svg, or .html with a list of the runs.")
    ] = None,
    log_y: Annotated[bool, typer.Option("--log-y", help="A logarithmic axis in that file.")] = False,
    as_json: Json = False,
) -> None:
    """Compare one metric of several runs: last, least and largest value, and the course on one scale.

    Example: pai-sdk compare runs/a runs/b train129f212o89d --tag loss --save loss.svg
    """
    with _manager_of(run) as manager:
        manager.refresh()
        _raise_if_failed(manager)
        page = manager.runs(sort="id", limit=10_000)
        _check_folders(run, page.total)
        having = [brief for brief in page.runs if tag in brief.tags and brief.tags[tag].kind == "scalar"]
        if not having:
            known = sorted(
                {name for brief in page.runs for name, one in brief.tags.items() if one.kind == "scalar"}
            )
            hint = f"there are: {', '.join(known)}" if known else "nothing is reported yet"
            raise InvalidInputError([Problem("--tag", f"no run has a metric {tag!r}", hint)])
        ids = [brief.id for brief in having]
        found = manager.compare(ids, tag, x=x, smooth=smooth, buckets=_BLOCKS)  # type: ignore[arg-type]  # checked
        if as_json:
            for brief in having:
                print_json(_json_of(brief, [tag]))
        else:
            _print_comparison(having, tag, found)
        if save is not None:
            picture = manager.compare(ids, tag, x=x, smooth=smooth).plot(log_y=log_y)  # type: ignore[arg-type]
            typer.echo(f"saved to {picture.save(save)}", err=as_json)


# ---- what `metrics` needs


def is_folder(run: str) -> bool:
    """True if a run is named by a folder or a URI, and not by the id of a job."""
    return uri_scheme(run) is not None or "/" in run or Path(run).exists()


def run_points(folder: str, name: str | None) -> list[MetricPoint]:
    """All points of the one run in a folder, metric by metric.

    Raises:
        InvalidInputError: there is no run, or there are several.
    """
    with _manager_of([folder]) as manager:
        return [point for _, points in _points(manager, _the_run(manager, folder), name, {}) for point in points]


def follow_run(folder: str, name: str | None) -> Iterator[MetricPoint]:
    """Each point of the one run in a folder, as it comes; never ends by itself."""
    with _manager_of([folder]) as manager:
        run_id = _the_run(manager, folder)
        shown: dict[str, int] = {}
        while True:
            for tag, points in _points(manager, run_id, name, shown):
                yield from points[shown.get(tag, 0) :]
                shown[tag] = len(points)
            time.sleep(_LOOK_S)
            manager.refresh()


def _the_run(manager: RunManager, folder: str) -> str:
    manager.refresh()
    _raise_if_failed(manager)
    page = manager.runs(limit=2)
    _check_folders([folder], page.total)
    if page.total == 1:
        return page.runs[0].id
    what = "has no event files" if not page.total else f"has {page.total} runs"
    hint = "give the folder of a run" if not page.total else f"give one of them: pai-sdk runs {folder}"
    raise InvalidInputError([Problem("RUN", f"{folder} {what}", hint)])


def _points(
    manager: RunManager, run_id: str, name: str | None, shown: dict[str, int]
) -> Iterator[tuple[str, list[MetricPoint]]]:
    """The points of each metric that has more of them than were shown."""
    run = manager.run(run_id)
    for tag, summary in run.tags().items():
        if summary.kind != "scalar" or name not in (None, tag) or summary.count <= shown.get(tag, 0):
            continue
        series = run.scalars(tag)
        columns = zip(series.wall.tolist(), series.step.tolist(), series.value.tolist(), strict=True)
        yield tag, [MetricPoint(name=tag, value=v, step=s, timestamp=wire_time(w)) for w, s, v in columns]


# ---- the manager


@contextmanager
def _manager_of(names: Sequence[str]) -> Iterator[RunManager]:
    """A manager of folders and jobs, which scans when it is asked to."""
    from pai_sdk.run.watch.manager import RunManager

    folders = [name if uri_scheme(name) else str(expanded(Path(name))) for name in names if is_folder(name)]
    ids = [name for name in names if not is_folder(name)]
    if names:
        jobs = RunsOfJobs(lambda: [TrainingJob.get(job_id) for job_id in ids])
        jobs()  # an unknown job is an error of the command, not a state of the manager
    else:
        jobs = RunsOfJobs(lambda: islice(TrainingJob.list(), _MOST_JOBS))
    manager = RunManager(*folders, records=jobs, opener=jobs.open, refresh_s=0)
    try:
        yield manager
    finally:
        manager.close()


def _raise_if_failed(manager: RunManager) -> None:
    if manager.state.error and not manager.state.runs:
        raise InvalidInputError([Problem("PREFIX", manager.state.error)])


def _check_folders(names: Sequence[str], runs: int) -> None:
    """See that folders are there.

    Args:
        names: ids, folders and URIs, as they were given.
        runs: how many runs were found; where there are some, URIs are not asked again.

    Raises:
        ObjectNotFoundError: one is not there.
    """
    for name in filter(is_folder, names):
        if (scheme := uri_scheme(name)) in (None, "file"):
            is_there = Path(path_of_file_uri(name) if scheme else expanded(Path(name))).exists()
        else:
            is_there = bool(runs) or any(True for _ in open_store(name).list())
        if not is_there:
            raise ObjectNotFoundError(f"{name}: there is no such file or folder", uri=name)


def _watch(manager: RunManager, page_of: Any, tags: Sequence[str], *, as_json: bool) -> None:
    """Show the runs again whenever they have changed."""
    version = -1
    console = table_console()
    while True:
        page = page_of()
        if as_json:
            for brief in page.runs:
                if brief.version > version:
                    print_json(_json_of(brief, tags))
        elif console.is_terminal:
            console.clear()
            _print_page(page, tags, as_json=False)
        elif page.version != version:
            _print_page(page, tags, as_json=False)
            typer.echo()
        version = page.version
        time.sleep(_LOOK_S)
        manager.refresh()


# ---- how it looks


def _print_page(page: RunPage, tags: Sequence[str], *, as_json: bool) -> None:
    from pai_sdk.run.watch.table import age_text, usual_tags

    if as_json:
        for brief in page.runs:
            print_json(_json_of(brief, tags))
        return
    if not page.runs:
        typer.echo("no runs")
        return
    shown = tuple(tags) or usual_tags(page.runs)
    differing = compare_hyperparameters([brief.hparams for brief in page.runs]).differing[:_MOST_HPARAMS]
    # The first metric stays, whatever the width; then others go from the right, then hyperparameters, then ages.
    columns = [Column("RUN"), Column("STATUS"), Column("AGE", drop=1, justify="right")]
    columns += [Column(visible_text(name), drop=2 + number) for number, name in enumerate(differing)]
    columns += [
        Column(visible_text(name), drop=20 + number if number else 0, justify="right")
        for number, name in enumerate(shown)
    ]
    now = time.time()
    rows: list[list[str | Text]] = [
        [
            _id_of(brief),
            _status(brief),
            age_text(brief, now),
            *(hparam_text(brief.hparams, name) for name in differing),
            *(_last(brief, name) for name in shown),
        ]
        for brief in page.runs
    ]
    print_table(columns, rows)
    if page.total > len(page.runs):
        typer.echo(f"{len(page.runs)} of {page.total} runs; --limit {page.total} shows all")


def _print_comparison(briefs: Sequence[RunBrief], tag: str, found: Comparison) -> None:
    differing = compare_hyperparameters([brief.hparams for brief in briefs]).differing[:_MOST_HPARAMS]
    columns = [Column("RUN"), Column("STATUS", drop=9)]
    columns += [Column(visible_text(name), drop=10 + number) for number, name in enumerate(differing)]
    columns += [Column(title, drop=drop, justify="right") for title, drop in _FIGURES]
    columns.append(Column(visible_text(tag)))
    courses = {curve.name: _thinned(curve.value.tolist()) for curve in found.curves}
    ends = [value for values in courses.values() for value in values if math.isfinite(value)]
    rows: list[list[str | Text]] = []
    for brief in briefs:
        summary = brief.tags[tag]
        step = str(summary.last.step) if summary.last else ""
        rows.append(
            [
                _id_of(brief),
                _status(brief),
                *(hparam_text(brief.hparams, name) for name in differing),
                *(_number(value) for value in (summary.last and summary.last.value, summary.min, summary.max)),
                step,
                blocks_of(courses.get(brief.id, []), _BLOCKS, (min(ends), max(ends)) if ends else None),
            ]
        )
    print_table(columns, rows)


_FIGURES = (("LAST", 0), ("MIN", 1), ("MAX", 2), ("STEP", 3))


def _thinned(values: list[float]) -> list[float]:
    """As many values as there are blocks, from the first to the last one."""
    last = len(values) - 1
    return values if last < _BLOCKS else [values[round(at * last / (_BLOCKS - 1))] for at in range(_BLOCKS)]


def _id_of(brief: RunBrief) -> str:
    """The id; of a folder that is itself the run, its name."""
    return brief.id if brief.id != "." else brief.uri.rstrip("/").rpartition("/")[2]


def _status(brief: RunBrief) -> Text:
    from rich.text import Text

    shown = Text(
        visible_text(brief.status), style=_COLOURS.get(exit_codes.of_status(JobStatus(brief.status)), "cyan")
    )
    if brief.error or brief.damaged:
        shown.append(" !", style="yellow")
    return shown


def _last(brief: RunBrief, tag: str) -> str:
    summary = brief.tags.get(tag)
    return _number(summary.last.value if summary and summary.last else None)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _json_of(brief: RunBrief, tags: Sequence[str]) -> dict[str, Any]:
    """A run for scripts."""
    return {
        "Id": brief.id,
        "Uri": brief.uri,
        "Name": brief.name,
        "Status": brief.status,
        "CreateTime": wire_time(brief.created_at),
        "UpdateTime": wire_time(brief.updated_at),
        "EndTime": wire_time(brief.ended_at),
        "HyperParameters": dict(brief.hparams),
        "Labels": dict(brief.labels),
        "Metrics": {
            tag: {
                "Last": one.last.value if one.last else None,
                "Step": one.last.step if one.last else None,
                "Min": one.min,
                "Max": one.max,
                "Count": one.count,
                "NanCount": one.nan_count,
                "InfCount": one.inf_count,
            }
            for tag, one in brief.tags.items()
            if one.kind == "scalar" and (not tags or tag in tags)
        },
        **({"Error": brief.error} if brief.error else {}),
        **({"DamagedParts": brief.damaged} if brief.damaged else {}),
    }
