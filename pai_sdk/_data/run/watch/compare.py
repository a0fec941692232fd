"""One metric of many runs: on shared buckets, or as a table with a row for each run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pai_sdk._core.extras import import_pandas
from pai_sdk._data.run.plots.buckets import compared
from pai_sdk._data.run.plots.curve_view import Band, CurveView, metric_of, tags_of_axis
from pai_sdk._data.run.plots.figures import Comparison
from pai_sdk._data.run.plots.metric_axis import join_by_step
from pai_sdk._data.run.watch.filter import RunKey, parse_key
from pai_sdk._data.run.watch.names import run_names
from pai_sdk._data.run.watch.query import runs_with
from pai_sdk._data.run.watch.records import RunBrief
from pai_sdk._data.run.watch.run_data import RunData

if TYPE_CHECKING:
    import pandas as pd


def compare(
    data: RunData,
    briefs: Sequence[RunBrief],
    tag: str,
    view: CurveView,
    group_by: Sequence[str],
    band: Band | None,
) -> Comparison:
    """Compares a metric of runs, see `RunManager.compare`; runs without it are left out."""
    x_tag = metric_of(view.x)
    # A run without an entry was removed meanwhile.
    loaded = [
        (brief, [entry.series(name) for name in tags_of_axis(tag, view.x)])
        for brief in runs_with(briefs, tags_of_axis(tag, view.x))
        if (entry := data.entries.get(brief.id)) is not None
    ]
    data.keep_within_budget()
    plotted = [brief for brief, _ in loaded]
    series, drawn_view = [columns[0] for _, columns in loaded], view
    if x_tag is not None:
        is_smoothed = 0 < view.smooth < 1  # another weight is refused by the comparison
        series = [
            join_by_step(columns[0], columns[-1], view.smooth if is_smoothed else 0.0) for _, columns in loaded
        ]
        drawn_view = replace(view, x="wall", smooth=0.0 if is_smoothed else view.smooth)
    comparison = compared(
        series,
        drawn_view,
        names=[brief.id for brief in plotted],
        groups=_groups(plotted, group_by) if group_by else (),
        band=band,
    )
    if x_tag is not None:
        left_out = sum(len(columns[0]) for _, columns in loaded) - sum(map(len, series))
        comparison = replace(comparison, x=view.x, left_out=left_out)
    if group_by:
        return comparison
    labels = {run_id: name for run_id, name in run_names(plotted).items() if name != run_id}
    return replace(comparison, labels=labels)


def _groups(briefs: Sequence[RunBrief], names: Sequence[str]) -> list[str]:
    """Returns the name of each run's group, such as `lr=0.1, seed=7`; a dash stands for a missing value."""
    keys = [_group_key(name) for name in names]
    return [", ".join(f"{key.name}={key.value(run) if key.is_in(run) else '–'}" for key in keys) for run in briefs]


def _group_key(name: str) -> RunKey:
    """Parses a key to group by; a plain name is a hyperparameter."""
    # As a filter, a plain name is a metric. Runs are not grouped by the last value of a metric.
    key = parse_key(name)
    is_plain = key.group == "metrics" and not name.startswith("metrics.")
    return parse_key(f"hparams.{name}") if is_plain else key


def table_of(briefs: Iterable[RunBrief], tags: Sequence[str] | None = None) -> pd.DataFrame:
    """Returns a data frame with a row for each run; see `RunManager.to_pandas`."""
    pandas = import_pandas()
    rows = [_row(brief, None if tags is None else set(tags)) for brief in briefs]
    first = ["status", "name", "created", "updated", "ended"]
    frame = pandas.DataFrame(rows, index=pandas.Index([row.pop("id") for row in rows], name="id"))
    for column in ("created", "updated", "ended"):
        if column in frame:
            frame[column] = pandas.to_datetime(frame[column], unit="s", utc=True)
    other_columns = sorted(column for column in frame.columns if column not in first)
    return frame[[column for column in first if column in frame] + other_columns]


def _row(brief: RunBrief, tags: set[str] | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": brief.id,
        "status": brief.status,
        "name": brief.name,
        "created": brief.created_at,
        "updated": brief.updated_at,
        "ended": brief.ended_at,
    }
    row.update({f"hparams.{name}": value for name, value in brief.hparams.items()})
    row.update({f"labels.{name}": value for name, value in brief.labels.items()})
    for tag, summary in brief.tags.items():
        if summary.kind == "scalar" and (tags is None or tag in tags):
            row[f"metrics.{tag}"] = summary.last.value if summary.last else math.nan
            row[f"metrics.{tag}.min"] = math.nan if summary.min is None else summary.min
            row[f"metrics.{tag}.max"] = math.nan if summary.max is None else summary.max
    return row
