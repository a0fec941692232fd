"""The commands about runs: runs, compare; and the points of a run's folder for `metrics`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk._client.display.curves import blocks_of
from pai_sdk._client.job.runs_of_jobs import RunsOfJobs
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.names.hints import did_you_mean, name_hint, nearest
from pai_sdk._core.paths import expanded
from pai_sdk._core.tables.table import Column, Table, hparam_text
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._data.run.watch.names import has_explicit_name, is_of_instance, run_names, usual_tags
from pai_sdk._data.run.watch.query import check_names, tags_in
from pai_sdk._data.storage.store import open_store
from pai_sdk._data.storage.stores.local import path_of_file_uri
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.pai.hyperparameters import compare_hyperparameters
from pai_sdk._wire.pai.record import MetricPoint
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk.cli.jobs import status_text
from pai_sdk.cli.options import Json, LabelFilter, pairs
from pai_sdk.cli.selection.backend import selected_backend
from pai_sdk.cli.selection.job_names import LAST, complete_run, find_jobs
from pai_sdk.cli.tables import print_json, print_table, table_console
from pai_sdk.errors import InvalidInputError, NotFoundError, ObjectNotFoundError, Problem

if TYPE_CHECKING:
    from rich.text import Text

    from pai_sdk._data.run.events.series import TagSummary
    from pai_sdk._data.run.plots.figures import Comparison
    from pai_sdk._data.run.watch.manager import RunManager
    from pai_sdk._data.run.watch.records import RunBrief, RunPage

_POLL_INTERVAL_S = 1.0
_MAX_JOBS = 200
_DEFAULT_LIMIT = 20
_MAX_RUNS = 10_000
_MAX_HPARAMS, _MAX_TAGS = 6, 8
_MAX_NAMES = 10  # in a line below the table
_BLOCKS = 24

Prefixes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PREFIX",
        help="Folders or URIs with runs, or jobs; by default, the session's jobs.",
        autocompletion=complete_run,
    ),
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", "-t", help="A metric to show; may be repeated. --json has all.")
]
Filter = Annotated[
    str, typer.Option("--filter", "-f", help="Conditions: `status=Running loss<0.3 hparams.lr=0.1 name~res`.")
]
Sort = Annotated[
    str,
    typer.Option(
        help="id, name, created, updated, status, a metric or hparams.NAME; a leading - reverses the order."
    ),
]


def runs(
    prefixes: Prefixes = None,
    filter_by: Filter = "",
    label: LabelFilter = None,
    sort: Sort = "-updated",
    tag: Tags = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help="The maximum number of runs: 20 by default, no limit with -q."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the ids, one per line.")] = False,
    as_json: Json = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Update the table as runs grow, until Ctrl-C.")
    ] = False,
) -> None:
    """List runs: status, age, hyperparameters that differ, the last values of metrics.

    Without --tag, the metrics of --sort and --filter are shown, then those that most runs have.

    Example: pai-sdk runs ./runs --filter "loss<0.3" --sort loss --tag loss --tag eval/acc
    """
    max_runs = limit or (_MAX_RUNS if quiet else _DEFAULT_LIMIT)
    query = _Query(filter_by, sort, max_runs, tuple(tag or ()), pairs(label, "--label"))
    with _manager_of(prefixes or [], query.labels) as manager:
        manager.refresh()
        _raise_if_failed(manager)
        if watch:  # which waits for folders and for metrics, too
            with suppress(KeyboardInterrupt):
                _watch(manager, query, as_json=as_json)
            return
        page = query.page(manager)
        all_runs = manager.runs(limit=_MAX_RUNS).runs
        _check_folders(prefixes or [], len(all_runs))
        check_names(all_runs, filter_by, sort, query.tags)
        _print_links(manager)
        _print_limit(prefixes or [], len(all_runs))
        if quiet:
            for brief in page.runs:
                typer.echo(brief.id)
            return
        if not page.runs and not as_json:
            typer.echo(_no_runs(prefixes or [], all_runs, query))
            return
        _print_page(page, query, as_json=as_json)


def compare(
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Jobs, folders or URIs of runs; by default, the session's jobs.",
            autocompletion=complete_run,
        ),
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", "-t", help="The metric; optional if all runs have exactly one.")
    ] = None,
    filter_by: Filter = "",
    label: LabelFilter = None,
    sort: Sort = "created",
    x: Annotated[str, typer.Option(help="step, relative_step, relative_time, wall or metric:TAG.")] = "step",
    smooth: Annotated[float, typer.Option(min=0.0, max=0.999, help="The weight of smoothing.")] = 0.0,
    save: Annotated[
        Path | None, typer.Option(help="Write the curves to a file: .svg, or .html with a list of the runs.")
    ] = None,
    log_y: Annotated[bool, typer.Option("--log-y", help="A logarithmic axis in that file.")] = False,
    as_json: Json = False,
) -> None:
    """Compare one metric of several runs: last, minimum and maximum value, and the curve.

    Example: pai-sdk compare --label sweep=lr --tag loss --sort loss --save loss.svg
    """
    query = _Query(filter_by, sort, _MAX_RUNS, labels=pairs(label, "--label"))
    with _manager_of(run or [], query.labels) as manager:
        manager.refresh()
        _raise_if_failed(manager)
        all_runs = manager.runs(limit=_MAX_RUNS).runs
        _check_folders(run or [], len(all_runs))
        check_names(all_runs, filter_by, sort)
        _print_links(manager)
        _print_limit(run or [], len(all_runs))
        runs = query.page(manager).runs
        if not runs and not as_json:
            typer.echo(_no_runs(run or [], all_runs, query))
            return
        tag = _tag_to_compare(runs, tag)
        comparable = [brief for brief in runs if tag in brief.tags and brief.tags[tag].kind == "scalar"]
        ids = [brief.id for brief in comparable]
        comparison = manager.compare(ids, tag, x=x, smooth=smooth, buckets=_BLOCKS)
        if as_json:
            for brief in comparable:
                print_json(_json_of(brief, [tag]))
        else:
            _print_comparison(runs, tag, comparison)
        if save is not None:
            curves = manager.compare(ids, tag, x=x, smooth=smooth)
            typer.echo(f"saved to {curves.plot(log_y=log_y).save(save)}", err=as_json)


def _tag_to_compare(runs: Sequence[RunBrief], tag: str | None) -> str:
    """Returns the requested metric, or the only one, or the only one that all runs have."""
    tags = usual_tags(runs, _MAX_RUNS)
    if tag is not None and tag not in tags:
        hint = name_hint(tag, tags) or "nothing is reported yet"
        raise InvalidInputError([Problem("--tag", f"no run has a metric {tag!r}", hint)])
    if not tags:
        raise InvalidInputError([Problem("RUN", "no run has a metric yet")])
    if tag is None:
        common = [name for name in tags if all(name in brief.tags for brief in runs)]
        if len(tags) > 1 and len(common) != 1:
            raise InvalidInputError([Problem("--tag", "is required", f"the metrics are: {_some(tags)}")])
        tag = tags[0] if len(tags) == 1 else common[0]
    return tag


# ---- for `metrics` and `ui`


def run_id_in(folder: str, run: str) -> str:
    """Returns the id of a run in a folder by its id, by its name in tables, or by `-` for the newest run."""
    with _manager_of([folder]) as manager:
        manager.refresh()
        _raise_if_failed(manager)
        runs = manager.runs(limit=_MAX_RUNS).runs
    ids = {brief.id: brief.id for brief in runs}
    if run == LAST and runs:
        return max(runs, key=lambda brief: (brief.created_at or 0, brief.updated_at or 0)).id
    by_name = {**{name: run_id for run_id, name in run_names(runs).items()}, **ids}
    if run not in by_name:
        hint = name_hint(run, by_name) or "there are no runs yet"
        raise NotFoundError(f"there is no run {run!r} in {folder}; {hint}", code="RunNotFound", status_code=404)
    return by_name[run]


def is_folder(run: str) -> bool:
    """Returns whether a run is given by a folder or a URI, and not by the id of a job."""
    return uri_scheme(run) is not None or "/" in run or Path(run).exists()


def run_points(folder: str, name: str | None) -> list[MetricPoint]:
    """Returns all points of the only run in a folder, metric by metric."""
    with _manager_of([folder]) as manager:
        return [
            point for _, points in _points(manager, _single_run_id(manager, folder), name, {}) for point in points
        ]


def follow_run(folder: str, name: str | None) -> Iterator[MetricPoint]:
    """Yields each point of the only run in a folder as it arrives, until the run has finished."""
    with _manager_of([folder]) as manager:
        run_id = _single_run_id(manager, folder)
        num_yielded: dict[str, int] = {}
        while True:
            for tag, points in _points(manager, run_id, name, num_yielded):
                yield from points[num_yielded.get(tag, 0) :]
                num_yielded[tag] = len(points)
            if manager.run(run_id).brief.ended_at is not None:
                return
            time.sleep(_POLL_INTERVAL_S)
            manager.refresh()


def _single_run_id(manager: RunManager, folder: str) -> str:
    manager.refresh()
    _raise_if_failed(manager)
    page = manager.runs(limit=2)
    _check_folders([folder], page.total)
    if page.total == 1:
        return page.runs[0].id
    problem = "has no event files" if not page.total else f"has {page.total} runs"
    hint = "give the folder of a run" if not page.total else f"give one of them: pai-sdk runs {folder}"
    raise InvalidInputError([Problem("RUN", f"{folder} {problem}", hint)])


def _points(
    manager: RunManager, run_id: str, name: str | None, num_yielded: dict[str, int]
) -> Iterator[tuple[str, list[MetricPoint]]]:
    """Yields the points of each metric that has more points than were yielded before."""
    run = manager.run(run_id)
    for tag, summary in run.tags().items():
        if summary.kind != "scalar" or name not in (None, tag) or summary.count <= num_yielded.get(tag, 0):
            continue
        series = run.scalars(tag)
        columns = zip(series.wall.tolist(), series.step.tolist(), series.value.tolist(), strict=True)
        yield tag, [MetricPoint(name=tag, value=v, step=s, timestamp=wire_time(w)) for w, s, v in columns]


# ---- the manager


@contextmanager
def _manager_of(names: Sequence[str], labels: Mapping[str, str] | None = None) -> Iterator[RunManager]:
    """Yields a manager of folders and jobs, which scans only when `refresh` is called.

    Without names it is of the newest jobs with the labels.
    """
    from pai_sdk._data.run.watch.manager import RunManager

    folders = _distinct_roots(
        [name if uri_scheme(name) else str(expanded(Path(name))) for name in names if is_folder(name)]
    )
    ids = [name for name in names if not is_folder(name)]
    if names:
        jobs = RunsOfJobs(lambda: {job.id: job for name in ids for job in _jobs_of(name)}.values())
        jobs()  # an unknown job is an error of the command, not a state of the manager
    else:
        newest = partial(TrainingJob.list, local=selected_backend().local, labels=labels or None)
        jobs = RunsOfJobs(lambda: islice(newest(), _MAX_JOBS))
    manager = RunManager(*folders, records=jobs, opener=jobs.open, refresh_s=0)
    try:
        yield manager
    finally:
        manager.close()


def _distinct_roots(folders: Sequence[str]) -> list[str]:
    """Returns the folders without duplicates and without subfolders of other ones."""
    paths = {(name if uri_scheme(name) else str(Path(name).absolute())).rstrip("/"): name for name in folders}
    return [name for path, name in paths.items() if not any(_is_scanned_below(path, root) for root in paths)]


def _is_scanned_below(path: str, root: str) -> bool:
    if not path.startswith(f"{root}/"):
        return False
    relative = Path(path.removeprefix(f"{root}/"))
    is_plain = not any(part.startswith(".") for part in relative.parts)  # a manager skips hidden folders
    return is_plain and (
        uri_scheme(path) is not None or Path(path).resolve() == Path(f"{root}/").resolve() / relative
    )


def _jobs_of(name: str) -> list[TrainingJob]:
    """Returns the jobs with a name, or all whose id or name begins with it."""
    try:
        return find_jobs(name)
    except NotFoundError as error:
        near = did_you_mean(nearest(name, [path.name for path in Path().iterdir()]))
        message = f"{error}\nthere is no folder {name!r} here either{f'; {near}' if near else ''}"
        raise NotFoundError(
            message, code=error.code, status_code=error.status_code, request_id=error.request_id
        ) from error


def _raise_if_failed(manager: RunManager) -> None:
    if manager.state.error and not manager.state.runs:
        raise InvalidInputError([Problem("PREFIX", manager.state.error)])


def _check_folders(names: Sequence[str], runs: int) -> None:
    """Checks that the folders exist; URIs are not checked again if runs were found."""
    for name in filter(is_folder, names):
        if (scheme := uri_scheme(name)) in (None, "file"):
            exists = Path(path_of_file_uri(name) if scheme else expanded(Path(name))).exists()
        else:
            exists = bool(runs) or any(True for _ in open_store(name).list())
        if not exists:
            raise ObjectNotFoundError(f"{name}: no such file or folder", uri=name)


def _watch(manager: RunManager, query: _Query, *, as_json: bool) -> None:
    """Prints the runs again after each change."""
    version = -1
    console = table_console()
    while True:
        page = query.page(manager)
        if as_json:
            for brief in page.runs:
                if brief.version > version:
                    print_json(_json_of(brief, query.tags))
        elif console.is_terminal:
            console.clear()
            _print_page(page, query, as_json=False)
        elif page.version != version:
            _print_page(page, query, as_json=False)
            typer.echo()
        version = page.version
        time.sleep(_POLL_INTERVAL_S)
        manager.refresh()


# ---- output


@dataclass(frozen=True)
class _Query:
    """The options of `runs` and `compare` that select runs."""

    filter: str
    sort: str
    limit: int
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def page(self, manager: RunManager) -> RunPage:
        """Returns the runs that match, in the requested order."""
        return manager.runs(self.filter, self.sort, self.limit, labels=self.labels)

    def __str__(self) -> str:
        labels = [f"{name}={value}" for name, value in self.labels.items()]
        return " ".join(filter(None, [self.filter, *labels]))


def _print_page(page: RunPage, query: _Query, *, as_json: bool) -> None:
    from pai_sdk._data.run.watch.table import age_text

    if as_json:
        for brief in page.runs:
            print_json(_json_of(brief, query.tags))
        return
    if not page.runs:
        typer.echo("no runs")
        return
    queried_tags = tags_in(page.runs, query.filter, query.sort)
    tags = query.tags or tuple(dict.fromkeys([*queried_tags, *usual_tags(page.runs, _MAX_RUNS)]))
    table = _RunTable(page.runs)
    table.add(Column("AGE", drop=1, align="right"), [age_text(brief, time.time()) for brief in page.runs])
    table.add_hparams()
    # In a narrow window the metrics are dropped from the right but for the first, then hyperparameters, then ages.
    usual = [tag for tag in tags if tag in queried_tags or not is_of_instance(tag, tags)]
    for number, tag in enumerate(tags if query.tags else usual[:_MAX_TAGS]):
        column = Column(table.title_of(tag), tag, drop=20 + number if number else 0, align="right")
        table.add(column, [_last(brief, tag) for brief in page.runs])
    printed = table.print()
    missing = [tag for tag in tags if tag not in printed]
    if missing and query.tags:
        typer.echo(f"not shown, because the terminal is too narrow: {_some(missing)} (--json shows all)")
    elif missing:
        of_instances = [tag for tag in missing if is_of_instance(tag, tags)]
        names = [_some([tag for tag in missing if tag not in of_instances])]
        if of_instances:
            names.append(f"{len(of_instances)} of other instances, such as {visible_text(of_instances[0])}")
        typer.echo(f"more metrics: {'; '.join(filter(None, names))} (--tag NAME shows one)")
    table.print_notes()
    if page.total > len(page.runs):
        typer.echo(f"{len(page.runs)} of {page.total} runs; --limit {page.total} shows all")


def _print_comparison(runs: Sequence[RunBrief], tag: str, comparison: Comparison) -> None:
    comparable = [brief for brief in runs if tag in brief.tags and brief.tags[tag].kind == "scalar"]
    curves = {curve.name: _thinned(curve.value.tolist()) for curve in comparison.curves}
    finite = [value for values in curves.values() for value in values if math.isfinite(value)]
    scale = (min(finite), max(finite)) if finite else None
    table = _RunTable(comparable, status=9)
    table.add_hparams()
    for title, drop, text in _FIGURES:
        table.add(Column(title, drop=drop, align="right"), [text(brief.tags[tag]) for brief in comparable])
    blocks = [blocks_of(curves.get(brief.id, []), _BLOCKS, scale) for brief in comparable]
    table.add(Column(tag, tag), blocks)
    table.print()
    table.print_notes()
    if len(comparable) < len(runs):
        names = run_names(runs)
        without = [names[brief.id] for brief in runs if brief not in comparable]
        typer.echo(f"without {visible_text(tag)}: {_some(without)}")


class _RunTable:
    """A table of runs: their names, the ids of jobs, their statuses, and further columns."""

    def __init__(self, runs: Sequence[RunBrief], *, status: int = 0) -> None:
        names = run_names(runs)
        self._runs = runs
        self._columns: list[tuple[Column, Sequence[str | Text]]] = []
        self._hparams = compare_hyperparameters([brief.hparams for brief in runs])
        self._hidden_hparams: Sequence[str] = ()  # hyperparameters without a column
        self.add(Column("RUN"), [names[brief.id] for brief in runs])
        if any(map(has_explicit_name, runs)):
            self.add(Column("JOB", drop=50), [brief.id if has_explicit_name(brief) else "" for brief in runs])
        self.add(Column("STATUS", drop=status), [_status(brief) for brief in runs])

    def add(self, column: Column, cells: Sequence[str | Text]) -> None:
        """Adds a column; its key is the name of its metric or hyperparameter."""
        self._columns.append((column, cells))

    def add_hparams(self) -> None:
        """Adds the hyperparameters that differ; all of them for a single run."""
        names = tuple(self._hparams.constant) if len(self._runs) == 1 else self._hparams.differing
        for number, name in enumerate(names[:_MAX_HPARAMS]):
            column = Column(name, f"hparams.{name}", drop=10 + number)
            self.add(column, [hparam_text(brief.hparams, name) for brief in self._runs])
        self._hidden_hparams = names[_MAX_HPARAMS:]

    def title_of(self, tag: str) -> str:
        """Returns the title of a metric's column, which differs from those of hyperparameters."""
        return f"metrics.{tag}" if any(column.title == tag for column, _ in self._columns) else tag

    def print(self) -> set[str]:
        """Prints the table; returns the names of the printed metrics and hyperparameters."""
        columns, cells = zip(*self._columns, strict=True)
        dropped = [column.key for column in print_table(Table(columns, [*zip(*cells, strict=True)]))]
        hidden = [key.removeprefix("hparams.") for key in dropped if key.startswith("hparams.")]
        self._hidden_hparams = [*hidden, *self._hidden_hparams]
        return {column.key for column in columns}.difference(dropped)

    def print_notes(self) -> None:
        """Prints the hyperparameters without a column, and the number of replaced points."""
        if self._hidden_hparams:
            typer.echo(f"more hyperparameters: {_some(self._hidden_hparams)} (--json shows all)")
        if self._hparams.constant and len(self._runs) > 1:
            constant = self._hparams.constant
            typer.echo(f"the same in all: {_some([f'{name}={hparam_text(constant, name)}' for name in constant])}")
        names = run_names(self._runs)
        replaced = {
            names[brief.id]: sum(summary.replaced for summary in brief.tags.values()) for brief in self._runs
        }
        if any(replaced.values()):
            counts = [f"{count:,} of {name}" for name, count in replaced.items() if count]
            typer.echo(f"points replaced by later event files: {_some(counts)}")


def _some(names: Sequence[str]) -> str:
    """Joins names in one line; of many, the first ones."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return visible_text(", ".join(names[:_MAX_NAMES])) + more


def _print_links(manager: RunManager) -> None:
    """Prints the links that were not followed, because their targets may have runs."""
    links = manager.state.links
    if links:
        subject = "a symbolic link is" if len(links) == 1 else f"{len(links):,} symbolic links are"
        typer.echo(
            f"{subject} not followed: {_some(links)}; to include their targets, give them as further folders",
            err=True,
        )


def _print_limit(names: Sequence[str], num_runs: int) -> None:
    """Prints that older jobs were not read."""
    if not names and num_runs >= _MAX_JOBS:
        typer.echo(f"only the newest {_MAX_JOBS} jobs were read; --label, or names, select others", err=True)


def _no_runs(names: Sequence[str], runs: Sequence[RunBrief], query: _Query) -> str:
    """Returns the reason for an empty table."""
    if runs:
        return f"no run matches {str(query)!r}, of {len(runs)}"
    if not names:
        return f"no job matches {str(query)!r}" if query.labels else "no jobs"
    return f"no runs in {_some(names)}: there are no event files, which `report` and TensorBoard write"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


_FIGURES: tuple[tuple[str, int, Callable[[TagSummary], str]], ...] = (
    ("LAST", 0, lambda summary: _number(summary.last and summary.last.value)),
    ("MIN", 1, lambda summary: _number(summary.min)),
    ("MAX", 2, lambda summary: _number(summary.max)),
    ("STEP", 3, lambda summary: str(summary.last.step) if summary.last else ""),
)


def _thinned(values: list[float]) -> list[float]:
    """Returns as many values as there are blocks, from the first to the last one."""
    last = len(values) - 1
    return values if last < _BLOCKS else [values[round(at * last / (_BLOCKS - 1))] for at in range(_BLOCKS)]


def _status(brief: RunBrief) -> Text:
    text = status_text(JobStatus(brief.status))
    if brief.error or brief.damaged:
        text.append(" !", style="yellow")
    return text


def _last(brief: RunBrief, tag: str) -> str:
    summary = brief.tags.get(tag)
    return _number(summary.last.value if summary and summary.last else None)


def _json_of(brief: RunBrief, tags: Sequence[str]) -> dict[str, Any]:
    """Returns a run as JSON, for scripts."""
    run = wire_names(
        id=brief.id,
        uri=brief.uri,
        name=brief.name,
        status=brief.status,
        create_time=wire_time(brief.created_at),
        update_time=wire_time(brief.updated_at),
        end_time=wire_time(brief.ended_at),
        hyper_parameters=dict(brief.hparams),
        labels=dict(brief.labels),
        metrics={
            tag: _json_of_metric(summary)
            for tag, summary in brief.tags.items()
            if summary.kind == "scalar" and (not tags or tag in tags)
        },
    )
    run |= wire_names(error=brief.error) if brief.error else {}
    return run | (wire_names(damaged_parts=brief.damaged) if brief.damaged else {})


def _json_of_metric(summary: TagSummary) -> dict[str, Any]:
    metric = wire_names(
        last=summary.last.value if summary.last else None,
        step=summary.last.step if summary.last else None,
        min=summary.min,
        max=summary.max,
        count=summary.count,
        nan_count=summary.nan_count,
        inf_count=summary.inf_count,
    )
    return metric | (wire_names(replaced_count=summary.replaced) if summary.replaced else {})
