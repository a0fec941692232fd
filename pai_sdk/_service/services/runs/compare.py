"""Selects the runs of a comparison, and bounds its costs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pai_sdk._data.run.watch.query import runs_with
from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.runs.runs import call_manager
from pai_sdk.errors import RunNotFoundError

if TYPE_CHECKING:
    from pai_sdk._data.run.watch.manager import RunManager
    from pai_sdk._data.run.watch.records import RunBrief

MAX_RUNS = 10_000
_SMOOTHING_COSTS = 3  # smoothing copies the points: three times their memory


def check_comparison(work: Work, briefs: Sequence[RunBrief], tags: Sequence[str], *, is_smoothed: bool) -> None:
    """Refuses a comparison of a metric that needs too many points in memory; a second tag is its x axis."""
    for tag in tags:
        points = sum(brief.tags[tag].count for brief in runs_with(briefs, tags))
        if is_smoothed and tag == tags[0]:
            work.hold(_SMOOTHING_COSTS * points, f"points of {tag[:100]!r} in memory, as smoothing copies each")
        work.hold(points, f"points of {tag[:100]!r} in memory")


def count_entries(briefs: Sequence[RunBrief], tags: Sequence[str], buckets: int) -> int:
    """Returns the number of entries in the curves of a metric; exact if the view has all points."""
    counts = [brief.tags[tags[0]].count for brief in runs_with(briefs, tags)]
    if all(count <= 2 * buckets for count in counts):
        return sum(counts)
    return len(counts) * buckets


def selected_runs(manager: RunManager, selected: str | list[str], work: Work) -> list[RunBrief]:
    """Returns the selected runs; unknown ids are skipped, and refused by the comparison."""
    if isinstance(selected, str):
        page = call_manager(manager.runs, selected, "-created", MAX_RUNS)
        if page.total > MAX_RUNS:
            raise work.exceeded(f"compares {page.total:,} runs, and {MAX_RUNS:,} are allowed")
        return [*page.runs]
    briefs = []
    for run_id in dict.fromkeys(selected):
        with suppress(RunNotFoundError):
            briefs.append(manager.run(run_id).brief)
    return briefs
