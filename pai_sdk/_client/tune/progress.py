"""Displays the trials of a running search in the live table of many jobs, with other columns."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pai_sdk._client.display.base import duration_text, elapsed_s
from pai_sdk._client.display.live_table import JobsDisplay, TableLayout, choose_jobs_display
from pai_sdk._client.tune.objectives import UNNAMED, Objective
from pai_sdk._client.tune.study import Study
from pai_sdk._client.tune.trials import Trial
from pai_sdk._core.kernel import in_notebook
from pai_sdk._core.tables.html import table_html
from pai_sdk._core.tables.table import Column, Table, value_text
from pai_sdk._wire.pai.record import JobRecord

_EVERY_S = 0.25
_KINDS = {"running": "running", "complete": "success", "pruned": "stopped", "failed": "failure"}


@dataclass(frozen=True)
class _Row:
    """A trial, with the last snapshot of its job if this process follows one."""

    trial: Trial
    record: JobRecord | None


def trials_layout(objectives: Sequence[Objective], *, has_jobs: bool) -> TableLayout:
    """Returns the layout of trials: results are on the left, where a narrow terminal has room for them."""
    metrics = [objective.metric for objective in objectives]

    def cells(row: _Row) -> list[object]:
        trial, record = row.trial, row.record
        seconds = elapsed_s(record) if trial.seconds is None and record is not None else trial.seconds
        params = ", ".join(f"{name}={value_text(value)}" for name, value in trial.params.items())
        return [
            trial.number,
            _state(row),
            *(_value(row, metric) for metric in metrics),
            duration_text(seconds) if seconds is not None else "",
            " · ".join(filter(None, [trial.reason, params])),
            *([trial.job_id] if has_jobs else []),
        ]

    def counts(rows: Sequence[_Row]) -> str:
        numbers = Counter(row.trial.state for row in rows)
        states = ", ".join(f"{count} {state}" for state, count in numbers.most_common())
        return f"{len(rows)} {'trial' if len(rows) == 1 else 'trials'}: {states}"

    columns = ["", "trial", "state", *metrics, "time", "reason, hyperparameters", *(["job"] if has_jobs else [])]
    return TableLayout(
        columns,
        cells,
        lambda row: _KINDS[row.trial.state],
        lambda row: str(row.trial.number),
        counts,
        lambda rows: table_html(Table([*map(Column, columns[1:])], [*map(cells, rows)])),
    )


def _state(row: _Row) -> str:
    """Returns the state of a trial, or the status of a job before its start."""
    status = row.record.status if row.record is not None else None
    is_before = row.trial.state == "running" and status and not status.is_terminal
    return str(status).lower() if is_before else row.trial.state


def _value(row: _Row, metric: str) -> str:
    value = row.trial.values.get(metric)
    if value is None and row.record is not None and row.trial.state == "running":
        latest = {point.name: point.value for point in row.record.latest_metrics}
        value = latest.get(metric, latest.get(UNNAMED))
    return "" if value is None else f"{value:.5g}"


def shows_functions() -> bool:
    """Returns True where a table of calls in this process is useful: in a terminal and in a notebook."""
    return in_notebook() or sys.stdout.isatty()


class TrialsDisplay:
    """The live table of the trials of a study."""

    def __init__(self, study: Study, inner: JobsDisplay | None = None, *, has_jobs: bool = True) -> None:
        self._study = study
        self._inner = inner or choose_jobs_display(trials_layout(study.objectives, has_jobs=has_jobs))
        self._drawn_at = float("-inf")
        self._best: int | None = None
        self.beat = getattr(self._inner, "beat", None)
        self.stop_beat = getattr(self._inner, "stop_beat", None)

    def changed(self, records: Sequence[JobRecord]) -> None:
        """Draws the last records of the jobs of this process, and all finished trials."""
        if time.monotonic() - self._drawn_at >= _EVERY_S:
            self._draw({record.training_job_id: record for record in records})

    def functions_changed(self) -> None:
        """Draws the table after a trial that is a function is finished."""
        self.changed(())

    def notice(self, text: str) -> None:
        """Prints a notice that does not end the search."""
        self._inner.notice(text)

    def detached(self, count: int) -> None:
        """Draws the table at the end of a search; `count` jobs are still running."""
        self._draw({})
        self._inner.detached(count)
        self._inner.notice(f"to continue the study, run the same search with study={self._study.uri!r}")

    def ended(self) -> None:
        """Draws the table at the end of a search."""
        self._draw({})
        self._inner.ended()

    def _draw(self, records: dict[str, JobRecord]) -> None:
        trials = self._study.trials()
        self._inner.changed([_Row(trial, records.get(trial.job_id)) for trial in trials if not trial.is_earlier])
        best = trials.best
        if best is not None and best.number != self._best and not best.is_earlier:
            self._best = best.number
            values = ", ".join(f"{name}={value_text(value)}" for name, value in best.values.items())
            self._inner.notice(f"best so far: trial {best.number}, {values}")
        self._drawn_at = time.monotonic()
