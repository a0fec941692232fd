"""Progress values in the log of a job, by the progress definitions of its algorithm."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from pai_sdk._service.state.models import Progress
from pai_sdk._wire.pai.spec import AlgorithmSpec

OVERALL_PROGRESS = "OverallProgress"
REMAINING_TIME = "RemainingTime"


def progress_patterns(spec: AlgorithmSpec) -> Iterator[tuple[str, str]]:
    """Yields name in the REST API and regular expression of each progress definition."""
    defined = spec.progress_definitions
    if defined is not None and defined.overall_progress is not None:
        yield OVERALL_PROGRESS, defined.overall_progress.regex
    if defined is not None and defined.remaining_time is not None:
        yield REMAINING_TIME, defined.remaining_time.regex


def latest_progress_of(session: Session, job_ids: Collection[str] | Select[Any]) -> dict[str, list[Progress]]:
    """Returns the last progress values of several jobs, by job; the query of a select may match any number."""
    figures_by_job: dict[str, list[Progress]] = {}
    for figure in session.scalars(select(Progress).where(Progress.job_id.in_(job_ids)).order_by(Progress.name)):
        figures_by_job.setdefault(figure.job_id, []).append(figure)
    return figures_by_job
