"""The curves of one metric of several jobs, as a picture. Needs numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._data.run.events.series import Series
from pai_sdk._data.run.events.sources import preferred_points
from pai_sdk._data.run.plots.buckets import compared
from pai_sdk._data.run.plots.curve_view import CurveView
from pai_sdk._data.run.plots.figures import Plot
from pai_sdk._data.run.watch.names import run_names
from pai_sdk._data.run.watch.records import RunBrief
from pai_sdk._wire.pai.record import MetricPoint
from pai_sdk._wire.pai.wire import seconds_of


def plot_jobs(jobs: Sequence[TrainingJob], metric: str, *, log_y: bool = False) -> Plot:
    """Returns the picture of a metric; jobs without a value of it are left out."""
    series = [(job, _series(metric, preferred_points(job.metrics(metric)))) for job in jobs]
    plotted = [(job, points) for job, points in series if len(points)]
    names = [job.id for job, _ in plotted]
    comparison = compared([points for _, points in plotted], CurveView(), names=names)
    labels = run_names([RunBrief(job.id, name=job.record.training_job_name or "") for job, _ in plotted])
    return replace(comparison, labels=labels, tags=(metric,)).plot(log_y=log_y)


def _series(metric: str, points: Sequence[MetricPoint]) -> Series:
    # Values from a log have no steps: they are numbered.
    steps = [number if point.step is None else point.step for number, point in enumerate(points, 1)]
    walls = [seconds_of(point.timestamp) for point in points]
    return Series(
        metric,
        np.array([math.nan if wall is None else wall for wall in walls], np.float64),
        np.array(steps, np.int64),
        np.array([math.nan if point.value is None else point.value for point in points], np.float64),
    )
