"""The commands about the metrics of a run: metrics, tensorboard."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any

import typer

from pai_sdk._client.display.base import short_instance
from pai_sdk._client.display.curves import MetricCurve
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.names.hints import name_hint
from pai_sdk._core.tables.table import Column, Table
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._data.run.events.sources import point_order
from pai_sdk._wire.pai.record import MetricPoint
from pai_sdk.cli import exit_codes
from pai_sdk.cli.jobs import time_text
from pai_sdk.cli.options import Json
from pai_sdk.cli.run_commands import follow_run, is_folder, run_points
from pai_sdk.cli.selection.job_names import JobId, complete_run, find_job
from pai_sdk.cli.tables import print_json, print_table
from pai_sdk.errors import InvalidInputError, Problem

_POLL_INTERVAL_S = 1.0


Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A job, or the folder or URI of a run.", autocompletion=complete_run)
]


def metrics(
    run: Run,
    name: Annotated[str | None, typer.Option("--name", "--tag", "-t", help="Only this metric.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print values until the run has finished, or Ctrl-C.")
    ] = False,
    points: Annotated[bool, typer.Option("--points", help="Print each value instead of a summary.")] = False,
    as_json: Json = False,
) -> None:
    """Show the metrics of a run: a row per metric, or with --points each value.

    Example: pai-sdk metrics runs/first --follow
    """
    job = None if is_folder(run) else find_job(run)
    if job is None:
        values: Iterator[MetricPoint] = follow_run(run, name) if follow else iter(run_points(run, name))
    else:
        values = _following(job, name) if follow else iter(job.metrics(name))
    if not follow:
        first = next(values, None)
        if first is None:
            all_points = run_points(run, None) if job is None else job.metrics()
            line = _no_values_text(
                run if job is None else job.id,
                name,
                all_points,
                has_ended=job is not None and job.status.is_terminal,
            )
            typer.echo(line, err=points or as_json)
            return
        values = chain([first], values)
    if not (follow or points or as_json):
        _print_summary("" if job is None else job.id, values)
        return
    try:
        for point in values:
            _print_point(point, as_json=as_json)
    except KeyboardInterrupt:
        if follow:
            raise typer.Exit(exit_codes.NOT_FINISHED) from None
        raise


def tensorboard(
    job_id: JobId,
    port: Annotated[int, typer.Option(help="TensorBoard's port; a free one by default.", min=0, max=65535)] = 0,
) -> None:
    """Open TensorBoard with the metrics of a job, until Ctrl-C.

    Example: pai-sdk tensorboard train129f212o89d --port 6006
    """
    with find_job(job_id).tensorboard(port=port) as board:
        typer.echo(f"TensorBoard: {board.url}")
        try:
            board.wait()
        except KeyboardInterrupt:
            return


def _following(job: TrainingJob, name: str | None) -> Iterator[MetricPoint]:
    """Yields each value once as it arrives, until the job has finished."""
    # Values of one key keep their order. A restart removes values with steps: by step and time they differ.
    num_yielded: Counter[tuple[object, ...]] = Counter()
    while True:
        has_ended = job.status.is_terminal  # before the read, which then includes all values before the end
        counts: Counter[tuple[object, ...]] = Counter()
        for point in job.metrics(name):
            key: tuple[object, ...] = point.name, point.instance
            if point.step is not None:
                key = *key, point.rank, point.step, point.timestamp
            counts[key] += 1
            if counts[key] > num_yielded[key]:
                num_yielded[key] = counts[key]
                yield point
        if has_ended:
            return
        time.sleep(_POLL_INTERVAL_S)


def _print_point(point: MetricPoint, *, as_json: bool) -> None:
    if as_json:
        print_json(point.model_dump(by_alias=True, exclude_none=True))
        return
    step = f"step {point.step}" if point.step is not None else ""
    value = "" if point.value is None else f"{point.value:.6g}"
    fields = (time_text(point.timestamp), step, visible_text(point.name or ""), value)
    typer.echo("  ".join(field for field in fields if field))


def _no_values_text(run: str, name: str | None, all_points: Iterable[MetricPoint], *, has_ended: bool) -> str:
    """Returns the message for a run without values; raises InvalidInputError if it can have no more."""
    subject = run if is_folder(run) else f"job {run}"
    names = dict.fromkeys(visible_text(point.name) for point in all_points if point.name) if name else ()
    hint = name_hint(name or "", names)
    if hint and (has_ended or is_folder(run)):
        raise InvalidInputError([Problem("--name", f"{subject} has no metric {name!r}", hint)])
    quoted_name = f" {name!r}" if name else ""
    return f"{subject} has no metric{quoted_name}" + ("" if has_ended else " yet") + (f"; {hint}" if hint else "")


@dataclass
class _Values:
    """The values of a metric from one instance."""

    curve: MetricCurve = field(default_factory=MetricCurve)
    last: float = math.nan
    count: int = 0  # of all values, also those that are not finite

    def add(self, point: MetricPoint) -> None:
        """Adds a point."""
        self.curve.add(point)
        self.count += 1
        self.last = math.nan if point.value is None else point.value

    def cells(self) -> tuple[str, ...]:
        """Returns the cells of the summary."""
        values = self.curve.values
        limits = (f"{value:.6g}" for value in (min(values), max(values))) if len(values) else ("-", "-")
        step = "" if self.curve.last_step is None else str(self.curve.last_step)
        return f"{self.last:.6g}", *limits, step, str(self.count), self.curve.blocks()


_COLUMNS = (
    Column("METRIC"),
    Column("LAST", align="right"),
    Column("MIN", drop=2, align="right"),
    Column("MAX", drop=3, align="right"),
    Column("STEP", drop=4, align="right"),
    Column("VALUES", drop=5, align="right"),
    Column("", drop=1),
)


def _print_summary(job_id: str, points: Iterable[MetricPoint]) -> None:
    """Prints a row for each metric, and for each instance if several instances report it."""
    by_name: dict[str, dict[tuple[Any, ...], tuple[str, _Values]]] = {}
    for point in points:
        sources = by_name.setdefault(visible_text(point.name or ""), {})
        order = point_order(point)
        if order not in sources:
            # Values that a metric definition matches in a log have no step.
            suffix = f" rank-{point.rank}" if point.rank else "" if point.step is not None else ".log"
            sources[order] = f"{short_instance(job_id, point.instance or '')}{suffix}", _Values()
        sources[order][1].add(point)
    rows = []
    for name, sources in by_name.items():
        for number, order in enumerate(sorted(sources)):
            source, values = sources[order]
            rows.append((f"{name} ({source})" if number else name, *values.cells()))
    print_table(Table(_COLUMNS, rows))
