"""Shows the trials of a running search, by the display of many jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from pai_sdk.base.html_table import value_text
from pai_sdk.base.kernel import in_notebook
from pai_sdk.display.live_table import JobsDisplay, choose_jobs_display
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.status import JobStatus
from pai_sdk.tune.study import Study
from pai_sdk.tune.trials import Trial

__all__ = ["TrialsDisplay", "shows_functions"]

_EVERY_S = 0.25
_LONGEST = 48
_STATUS = {
    "running": JobStatus.RUNNING,
    "complete": JobStatus.SUCCEED,
    "pruned": JobStatus.TERMINATED,
    "failed": JobStatus.FAILED,
}


def shows_functions() -> bool:
    """True where a table of calls in this process is worth its time: in a terminal and in a notebook."""
    return in_notebook() or sys.stdout.isatty()


class TrialsDisplay:
    """The table of many jobs, with the number and the hyperparameters of each trial in the place of a job's name.

    Args:
        study: the study.
        inner: draws the table; by default, what suits a notebook, a terminal or a file.
    """

    def __init__(self, study: Study, inner: JobsDisplay | None = None) -> None:
        self._study = study
        self._inner = inner or choose_jobs_display()
        self._drawn_at = float("-inf")
        self._best: int | None = None
        self.beat = getattr(self._inner, "beat", None)
        self.rest = getattr(self._inner, "rest", None)

    def changed(self, records: Sequence[JobRecord]) -> None:
        """The last snapshots of the jobs of this process; trials that ended before are shown too."""
        if time.monotonic() - self._drawn_at >= _EVERY_S:
            self._draw({record.training_job_id: record for record in records})

    def functions_changed(self) -> None:
        """A trial that is a function has ended."""
        self.changed(())

    def notice(self, text: str) -> None:
        """A notice that does not end the search."""
        self._inner.notice(text)

    def detached(self, count: int) -> None:
        """The search has ended; this number of jobs is still running."""
        self._draw({})
        self._inner.detached(count)
        self._inner.notice(f"to continue the study, run the same search with study={self._study.uri!r}")

    def ended(self) -> None:
        """The search has ended."""
        self._draw({})
        self._inner.ended()

    def _draw(self, records: dict[str, JobRecord]) -> None:
        trials = self._study.trials()
        self._inner.changed([_row(trial, records.get(trial.job_id)) for trial in trials if not trial.is_earlier])
        best = trials.best
        if best is not None and best.number != self._best and not best.is_earlier:
            self._best = best.number
            values = ", ".join(f"{name}={value_text(value)}" for name, value in best.values.items())
            self._inner.notice(f"best so far: trial {best.number}, {values}")
        self._drawn_at = time.monotonic()


def _row(trial: Trial, record: JobRecord | None) -> JobRecord:
    params = ", ".join(f"{name}={value_text(value)}" for name, value in trial.params.items())
    notes = f" · {trial.reason}" if trial.state == "pruned" else ""
    known: dict[str, Any] = {
        "training_job_name": f"{trial.number}: {params}"[:_LONGEST] + notes,
        "status": _STATUS[trial.state],
    }
    found = record or JobRecord(training_job_id=trial.job_id or f"trial {trial.number}")
    if record is not None and trial.state == "running":
        del known["status"]
    if record is None:
        known["duration"] = None if trial.seconds is None else int(trial.seconds)
        known["latest_metrics"] = [{"name": name, "value": value} for name, value in trial.values.items()]
        return JobRecord.model_validate({**known, "training_job_id": found.training_job_id})
    return record.model_copy(update=known)
