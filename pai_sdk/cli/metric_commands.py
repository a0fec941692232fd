"""The commands that show a job's metrics: metrics, tensorboard."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Annotated

import typer

from pai_sdk.cli import exit_codes
from pai_sdk.cli.jobs import JobId, Json, table_console
from pai_sdk.cli.run_commands import follow_run, is_folder, run_points
from pai_sdk.cli.tables import print_json
from pai_sdk.cli.where.job_names import complete_job, find_job
from pai_sdk.display.base import visible_text
from pai_sdk.display.curves import curves_of
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.schemas.record import MetricPoint

_LOOK_S = 1.0


Run = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A job, or the folder or URI of a run.", autocompletion=complete_job),
]


def metrics(
    run: Run,
    name: Annotated[str | None, typer.Option(help="Only this metric.")] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print values until the job has ended; of a folder, until Ctrl-C."),
    ] = False,
    points: Annotated[bool, typer.Option("--points", help="Print each value instead of a summary.")] = False,
    as_json: Json = False,
) -> None:
    """Show the metrics of a run: a row for each, or each value.

    Example: pai-sdk metrics runs/first --follow
    """
    if is_folder(run):
        found: Iterator[MetricPoint] = follow_run(run, name) if follow else iter(run_points(run, name))
        has_ended = False
    else:
        job = find_job(run)
        found = _following(job, name) if follow else job.metrics(name)
        has_ended = not follow and not points and not as_json and job.status.is_terminal
    if not (follow or points or as_json):
        _print_summary(run, found, name, has_ended=has_ended)
        return
    try:
        for point in found:
            _print_point(point, as_json=as_json)
    except KeyboardInterrupt:
        if follow:
            raise typer.Exit(exit_codes.NOT_FINISHED) from None
        raise


def tensorboard(
    job_id: JobId,
    port: Annotated[int, typer.Option(help="TensorBoard's port; a free one by default.", min=0, max=65535)] = 0,
) -> None:
    """Open TensorBoard on what a job has reported, until Ctrl-C.

    Example: pai-sdk tensorboard train129f212o89d --port 6006
    """
    with find_job(job_id).tensorboard(port=port) as board:
        typer.echo(f"TensorBoard: {board.url}")
        try:
            board.wait()
        except KeyboardInterrupt:
            return


def _following(job: TrainingJob, name: str | None) -> Iterator[MetricPoint]:
    """Each value once, as it comes; ends when the job has ended."""
    shown: Counter[tuple[str | None, str | None]] = (
        Counter()
    )  # of one metric of one instance, values keep their order
    while True:
        has_ended = job.status.is_terminal  # asked first: what was reported before the end is read then
        seen: Counter[tuple[str | None, str | None]] = Counter()
        for point in job.metrics(name):
            key = point.name, point.instance
            seen[key] += 1
            if seen[key] > shown[key]:
                shown[key] = seen[key]
                yield point
        if has_ended:
            return
        time.sleep(_LOOK_S)


def _print_point(point: MetricPoint, *, as_json: bool) -> None:
    if as_json:
        print_json(point.model_dump(by_alias=True, exclude_none=True))
        return
    moment = (point.timestamp or "").replace("T", " ").rstrip("Z").partition(".")[0]
    step = f"step {point.step}" if point.step is not None else ""
    value = "" if point.value is None else f"{point.value:.6g}"
    fields = (moment, step, visible_text(point.name or ""), value)
    typer.echo("  ".join(field for field in fields if field))


def _print_summary(run: str, found: Iterator[MetricPoint], name: str | None, *, has_ended: bool) -> None:
    from rich.table import Table

    first = next(found, None)
    if first is None:
        wanted = f" {name!r}" if name else ""
        what = run if is_folder(run) else f"job {run}"
        typer.echo(f"{what} has no metric{wanted}" + ("" if has_ended else " yet"))
        return
    counted: Counter[str] = Counter()

    def counting() -> Iterator[MetricPoint]:
        for point in chain([first], found):
            counted[point.name or ""] += 1
            yield point

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("METRIC", "LAST", "MIN", "MAX", "STEP", "VALUES", ""):
        table.add_column(title, no_wrap=True, justify="left" if title in ("METRIC", "") else "right")
    for metric, curve in curves_of(counting()).items():
        if curve.values:
            numbers = (curve.values[-1], min(curve.values), max(curve.values))
            step = "" if curve.last_step is None else str(curve.last_step)
            texts = (f"{number:.6g}" for number in numbers)
            table.add_row(visible_text(metric), *texts, step, str(counted[metric]), curve.blocks())
    table_console().print(table)
