"""Compares jobs: the hyperparameters in which they differ, and the last and best values of their metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._client.display.base import duration_text, elapsed_s
from pai_sdk._client.display.card import status_html
from pai_sdk._client.job.gather import check_jobs
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.extras import import_pandas, missing_extra
from pai_sdk._core.names.hints import name_hint, wrong_type
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._core.short_traceback import short_traceback, short_tracebacks
from pai_sdk._core.tables.html import table_html
from pai_sdk._core.tables.table import Cell, Table, text_columns
from pai_sdk._core.tables.terminal import table_text
from pai_sdk._data.run.events.sources import preferred_points
from pai_sdk._wire.pai.hyperparameters import ComparedHyperparameters, compare_hyperparameters
from pai_sdk._wire.pai.record import JobRecord, MetricPoint
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    import pandas as pd

    from pai_sdk._data.run.plots.figures import Plot

_MAX_REQUESTS = 8  # requests
_MAX_METRICS = 4
_MAX_HYPERPARAMETERS = 8


@dataclass(frozen=True)
class MetricRange:
    """The last, minimum and maximum value of a metric, and the number of values."""

    last: float  # NaN if it was no number
    min: float  # NaN without any number
    max: float  # NaN without any number
    count: int


@dataclass(frozen=True, repr=False)
class ComparedJob:
    """A row of a comparison: a job, its hyperparameters and its metrics."""

    record: JobRecord
    # Numbers where possible. Not masked, so not in the repr: the comparison masks them where it is displayed, also
    # in its data frame.
    hyperparameters: Mapping[str, object]
    metrics: Mapping[str, MetricRange]
    job: TrainingJob = field(compare=False)

    @checks_keywords
    def download(self, channel: str, target: str | Path | None = None, *, progress: bool = True) -> Path:
        """Download an output channel of the job, as `TrainingJob.download` does.

        Example:
            >>> def fetch_best(jobs: list[TrainingJob]) -> Path:
            ...     return compare(jobs).best("loss", mode="min").download("model", "model/")
        """
        return self.job.download(channel, target, progress=progress)

    def __repr__(self) -> str:
        values = "".join(f" {name}={metric.last:.6g}" for name, metric in self.metrics.items())
        return f"<ComparedJob {self.record.training_job_id} {self.record.status}{values}>"

    def _repr_html_(self) -> str | None:
        return self.job._repr_html_()


@short_tracebacks
@dataclass(frozen=True)
class JobComparison:
    """A comparison of jobs; it prints as a table, and displays as one in a notebook.

    Attributes:
        jobs: the rows, in the order of the argument.
        metrics: the names of the metrics, ordered by the number of jobs that have them.
    """

    jobs: Sequence[ComparedJob]
    metrics: Sequence[str]
    _num_metrics: int = field(default=_MAX_METRICS, repr=False)

    @property
    def differing(self) -> list[str]:
        """The hyperparameters in which the jobs differ, including those that only some jobs have."""
        return [*self._compared.differing]

    @property
    def constant(self) -> dict[str, object]:
        """The hyperparameters that are equal in all jobs; secrets are masked."""
        return {**self._compared.constant}

    @cached_property
    def _compared(self) -> ComparedHyperparameters:
        return compare_hyperparameters([job.hyperparameters for job in self.jobs])

    def best(self, metric: str, mode: str | None = None) -> ComparedJob:
        """The job with the minimum or maximum of a metric.

        Args:
            metric: the name of the metric.
            mode: `min` or `max`. There is no default, because small values are good for some metrics only.

        Raises:
            InvalidInputError: no job has a value of this metric, or the mode is missing or unknown.
        """
        candidates = [
            job for job in self.jobs if metric in job.metrics and not math.isnan(job.metrics[metric].min)
        ]
        if mode not in ("min", "max"):
            reason = f"is required for {metric!r}" if mode is None else f"unknown value {mode!r}"
            raise InvalidInputError([Problem("mode", reason, "mode='min' or mode='max'")])
        if not candidates:
            hint = name_hint(metric, self.metrics) or "nothing is reported"
            raise InvalidInputError([Problem("metric", f"no job has a value of {metric!r}", hint)])
        if mode == "min":
            return min(candidates, key=lambda job: job.metrics[metric].min)
        return max(candidates, key=lambda job: job.metrics[metric].max)

    def plot(self, metric: str | None = None, *, log_y: bool = False) -> Plot:
        """The curves of a metric of all jobs as one picture; a notebook displays it, `save` writes it to a file.

        Args:
            metric: the name of the metric; not needed if there is only one.
            log_y: the y axis is logarithmic; values of 0 or less are counted and not drawn.

        Raises:
            InvalidInputError: no job has a value of this metric, or it is missing and there are several.
            MissingExtraError: numpy is not installed.

        Example:
            >>> def save_curves(jobs: list[TrainingJob]) -> Path:
            ...     return compare(jobs).plot("loss").save("loss.svg")
        """
        if metric is None and len(self.metrics) == 1:
            (metric,) = self.metrics
        if metric is None or metric not in self.metrics:
            reason = "is required" if metric is None else f"no job has a value of {metric!r}"
            hint = name_hint(metric or "", self.metrics) or "nothing is reported"
            raise InvalidInputError([Problem("metric", reason, hint)])
        try:
            from pai_sdk._client.job.job_curves import plot_jobs
        except ModuleNotFoundError as error:
            if error.name != "numpy":
                raise
            raise missing_extra("a picture of curves needs numpy", "watch") from error
        return plot_jobs([row.job for row in self.jobs], metric, log_y=log_y)

    def to_pandas(self) -> pd.DataFrame:
        """A data frame with one row per job; its index is the job's id.

        The columns: `status`, `name`, `duration_s`, `hparams.<name>`, and for each metric `metrics.<name>`,
        `metrics.<name>.min` and `metrics.<name>.max`.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        pandas = import_pandas()
        rows = []
        for job, hyperparameters in zip(self.jobs, self._compared.rows, strict=True):
            record = job.record
            row: dict[str, Any] = {"status": str(record.status), "name": record.training_job_name}
            row["duration_s"] = elapsed_s(record)
            row.update({f"hparams.{name}": value for name, value in hyperparameters.items()})
            for name in self.metrics:
                metric = job.metrics.get(name) or MetricRange(math.nan, math.nan, math.nan, 0)
                row[f"metrics.{name}"] = metric.last
                row[f"metrics.{name}.min"], row[f"metrics.{name}.max"] = metric.min, metric.max
            rows.append(row)
        return pandas.DataFrame(
            rows, index=pandas.Index([job.record.training_job_id for job in self.jobs], name="id")
        )

    def __str__(self) -> str:
        return "\n".join([table_text(self._table()), *self._footer()])

    def __repr__(self) -> str:
        return f"<JobComparison of {len(self.jobs)} jobs; print it, or use plot() or to_pandas()>"

    def _repr_html_(self) -> str:
        table = self._table()
        order = [2, 1, *range(4, len(table.columns)), 3, 0]  # the id last
        return table_html(replace(table, caption=" · ".join(self._footer())).ordered(order))

    def _table(self) -> Table:
        differing, metrics = self.differing[:_MAX_HYPERPARAMETERS], self.metrics[: self._num_metrics]
        columns = ["job", "name", "status", "time", *differing]
        columns += [title for name in metrics for title in (name, f"{name} min", f"{name} max")]
        rows = []
        for job, hyperparameters in zip(self.jobs, self._compared.rows, strict=True):
            record, seconds = job.record, elapsed_s(job.record)
            row: list[object] = [record.training_job_id, record.training_job_name or ""]
            row += [
                Cell(str(record.status), status_html(record.status)),
                duration_text(seconds) if seconds is not None else "",
                *map(hyperparameters.get, differing),
            ]
            for name in metrics:
                metric = job.metrics.get(name)
                row += [metric.last, metric.min, metric.max] if metric is not None else [None, None, None]
            rows.append(row)
        return Table(text_columns(columns), rows)

    def _footer(self) -> list[str]:
        lines = []
        if more := self.differing[_MAX_HYPERPARAMETERS:]:
            lines.append(f"also different: {', '.join(more)}")
        if more := [*self.metrics[self._num_metrics :]]:
            lines.append(f"more metrics: {', '.join(more)}")
        if self.constant:
            lines.append(
                "the same in all: " + ", ".join(f"{name}={value}" for name, value in self.constant.items())
            )
        return lines


@short_traceback
def compare(jobs: Iterable[TrainingJob], metrics: Sequence[str] | None = None) -> JobComparison:
    """Compare jobs: the hyperparameters in which they differ; the last, minimum and maximum value of each metric.

    If several instances report a metric, the first one counts: process 0, otherwise the first by role and number;
    reported values are preferred to those from logs. All values are read: for long trainings and many jobs, name
    the metrics.

    Args:
        jobs: the jobs; they may still be running.
        metrics: only these, in this order; all by default.

    Raises:
        InvalidInputError: an item is no job, or no job has one of `metrics`.
        PaiError: a job cannot be requested.

    Example:
        >>> def best_rate(jobs: list[TrainingJob]) -> object:
        ...     return compare(jobs, ["loss"]).best("loss", mode="min").hyperparameters["lr"]
    """
    if isinstance(metrics, str):
        raise InvalidInputError([wrong_type("metrics", metrics, "a list of names", "such as ['loss']")])
    checked_jobs = check_jobs(jobs)
    with ThreadPoolExecutor(_MAX_REQUESTS, thread_name_prefix="pai-compare") as pool:
        rows = [*pool.map(partial(_row, metrics=metrics), checked_jobs)]
    counts: dict[str, int] = {}
    for row in rows:
        for name in row.metrics:
            counts[name] = counts.get(name, 0) + 1
    if metrics is None:
        return JobComparison(rows, sorted(counts, key=lambda name: -counts[name]))
    reported = dict.fromkeys(point.name for row in rows for point in row.record.latest_metrics if point.name)
    wrong = [
        Problem(f"metrics[{number}]", f"no job has a metric {name!r}", name_hint(name, reported))
        for number, name in enumerate(metrics)
        if name not in counts
    ]
    if wrong and checked_jobs:
        raise InvalidInputError(wrong)
    return JobComparison(rows, [*metrics], len(metrics))


def _row(job: TrainingJob, *, metrics: Sequence[str] | None) -> ComparedJob:
    record = job.record if job.record.status.is_terminal and job.record.latest_metrics else job.refresh()
    names: Sequence[str | None] = [None] if metrics is None else metrics
    ranges: dict[str, MetricRange] = {}
    for name in names:
        ranges.update(_ranges(job.metrics(name)))
    values = {name: _value(text) for name, text in record.hyperparameter_values.items()}
    return ComparedJob(record, values, ranges, job)


def _ranges(points: Iterable[MetricPoint]) -> dict[str, MetricRange]:
    """Returns the range of each metric, in the order of their first values."""
    ranges: dict[str, MetricRange] = {}
    for point in preferred_points(points):
        if not point.name:
            continue
        value = math.nan if point.value is None else point.value
        before = ranges.get(point.name) or MetricRange(math.nan, math.nan, math.nan, 0)
        # A comparison with NaN is false: `min(value, NaN)` would depend on the order.
        smallest = before.min if math.isnan(value) or before.min < value else value
        largest = before.max if math.isnan(value) or before.max > value else value
        ranges[point.name] = MetricRange(value, smallest, largest, before.count + 1)
    return ranges


def _value(text: str | None) -> object:
    """Returns a hyperparameter as a number if it is one; on the wire it is a string."""
    for kind in (int, float):
        try:
            return kind(text or "")
        except ValueError:
            continue
    return text
