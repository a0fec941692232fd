"""The trials of a study as values, and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pai_sdk._client.display.base import duration_text
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.tune.objectives import Objective
from pai_sdk._core.extras import import_pandas
from pai_sdk._core.tables.html import table_html
from pai_sdk._core.tables.table import Cell, Table, text_columns, value_text
from pai_sdk._core.tables.terminal import table_text
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    import pandas as pd

_MAX_LINES = 60
_END_LINES = 20
_MAX_ROWS = 200
_MAX_REASON_LENGTH = 240


@dataclass(frozen=True)
class SearchLimits:
    """The limits of one run of a tuner."""

    trials: int  # of the study, not of this run
    parallel: int
    max_failures: int
    timeout_s: float | None = None  # of this run; jobs are stopped after it, and no call runs longer
    trial_timeout_s: float | None = None  # of a trial that is a function, which then fails


@dataclass(frozen=True)
class Trial:
    """One trial of a study.

    Attributes:
        number: in the study.
        state: `running`, `complete`, `pruned` or `failed`.
        params: the hyperparameters.
        values: the value of each objective, by the metric; for a pruned trial the last one, for other states none.
        steps: the last step reported to the pruner; None without a pruner.
        job_id: of the job; empty for a function, and before the submission.
        run: the folder of a trial that is a function.
        reason: why it failed, or where it was pruned.
        seconds: the duration; None before the end.
        is_earlier: whether it is from another study, or from earlier runs.
        parent: the trial whose checkpoint it started from; None in the first generation, and without a population.
        constraints: values of the constraints of a sampler of Optuna; above 0, the constraint is broken.

    Example:
        >>> Trial(3, "complete", {"lr": 0.1}, {"loss": 0.25}).value
        0.25
    """

    number: int
    state: str
    params: dict[str, Any]
    values: dict[str, float] = field(default_factory=dict)
    steps: int | None = None
    job_id: str = ""
    run: str = ""
    reason: str = ""
    seconds: float | None = None
    is_earlier: bool = False
    parent: int | None = None
    constraints: tuple[float, ...] = ()
    _session: Any = field(default=None, repr=False, compare=False)

    @property
    def value(self) -> float | None:
        """The value of the first objective; None without one."""
        return next(iter(self.values.values()), None)

    @property
    def is_feasible(self) -> bool:
        """True if the trial satisfies all constraints."""
        return all(value <= 0.0 for value in self.constraints)

    @property
    def job(self) -> TrainingJob:
        """The job of the trial.

        Raises:
            InvalidInputError: it has no job: it was a function in a process, or is not submitted yet.
        """
        if not self.job_id:
            hint = f"its run is {self.run}" if self.run else ""
            raise InvalidInputError([Problem(f"trial {self.number}", "has no job", hint)])
        return TrainingJob.get(self.job_id, session=self._session)

    @property
    def model(self) -> str:
        """The URI of the model: the output `model` of the job, or the folder of the function's run.

        Raises:
            InvalidInputError: the job has no such output.
        """
        if not self.job_id and self.run:
            return self.run
        outputs = self.job.record.outputs
        if "model" not in outputs:
            message = f"its job {self.job_id} has no output 'model'"
            raise InvalidInputError(
                [Problem(f"trial {self.number}", message, f"it has: {', '.join(outputs) or 'none'}")]
            )
        return outputs["model"]


class TrialList(list[Trial]):
    """Trials in the order of their numbers, displayed as a table in terminals and notebooks.

    Args:
        trials: the trials.
        objectives: of the search.

    Example:
        >>> TrialList([Trial(0, "complete", {"lr": 0.1}, {"loss": 0.25})], [Objective("loss", "minimize")])
        trial  state     loss  lr   time
            0  complete  0.25  0.1
    """

    def __init__(self, trials: Iterable[Trial] = (), objectives: Sequence[Objective] = ()) -> None:
        super().__init__(trials)
        self.objectives = list(objectives)

    @property
    def best(self) -> Trial | None:
        """The best complete and feasible trial for the first objective; the first of equal ones."""
        return best_of(self, self.objectives[:1])

    def to_pandas(self) -> pd.DataFrame:
        """Returns a data frame with a row for each trial.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        pandas = import_pandas()
        titles = _titles(self)
        columns: dict[str, list[Any]] = {
            "trial": [trial.number for trial in self],
            "state": [trial.state for trial in self],
            **({"parent": [trial.parent for trial in self]} if _has_parents(self) else {}),
            **{metric: [trial.values.get(metric) for trial in self] for metric in titles[0]},
            **({"feasible": [trial.is_feasible for trial in self]} if _has_constraints(self) else {}),
            **{name: [trial.params.get(name) for trial in self] for name in titles[1]},
            "seconds": [trial.seconds for trial in self],
            "job": [trial.job_id for trial in self],
            "reason": [trial.reason for trial in self],
        }
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        if not self:
            return "[]"
        return table_text(self._table().shortened(_MAX_LINES, _END_LINES))

    def _repr_html_(self) -> str:
        if not self:
            return "<i>no trials</i>"
        table, best = self._table(), self.best
        rows = [
            [Cell(value_text(cell), style="bold") for cell in row] if trial is best else row
            for trial, row in zip(self, table.rows, strict=True)
        ]
        order = sorted(range(len(rows)), key=lambda index: self[index] is not best)[:_MAX_ROWS]
        more = len(rows) - len(order)
        visible = [rows[index] for index in sorted(order)]
        return table_html(replace(table, rows=visible, caption=f"and {more:,} more" if more else ""))

    def _table(self) -> Table:
        metrics, names = _titles(self)
        has_jobs, has_reasons = any(trial.job_id for trial in self), any(trial.reason for trial in self)
        has_parents = _has_parents(self)
        has_constraints = _has_constraints(self)
        columns = ["trial", *(["parent"] if has_parents else []), "state", *metrics]
        columns += [*(["feasible"] if has_constraints else []), *names, "time"]
        columns += [*(["job"] if has_jobs else []), *(["reason"] if has_reasons else [])]
        rows: list[list[object]] = []
        for trial in self:
            numbers = [_display_value(trial.values.get(metric)) for metric in metrics]
            row = [trial.number, *([_display_value(trial.parent)] if has_parents else []), trial.state, *numbers]
            row += ["yes" if trial.is_feasible else "no"] if has_constraints else []
            row += [_display_value(trial.params.get(name)) for name in names]
            row.append(duration_text(trial.seconds) if trial.seconds is not None and trial.seconds >= 1 else "")
            row += [
                *([trial.job_id] if has_jobs else []),
                *([_single_line(trial.reason)] if has_reasons else []),
            ]
            rows.append(row)
        return Table(text_columns(columns, last_width=_MAX_REASON_LENGTH), rows)


def best_of(trials: Iterable[Trial], objectives: Sequence[Objective]) -> Trial | None:
    """Returns the best complete and feasible trial for one objective, the first of equal ones; else None."""
    if not objectives:
        return None
    objective = objectives[0]
    candidates = [
        trial
        for trial in trials
        if trial.state == "complete"
        and trial.is_feasible
        and not math.isnan(trial.values.get(objective.metric, math.nan))
    ]
    sign = -1 if objective.is_maximized else 1
    return min(candidates, key=lambda trial: (sign * trial.values[objective.metric], trial.number), default=None)


def _titles(trials: Sequence[Trial]) -> tuple[list[str], list[str]]:
    """Returns the metrics and the hyperparameters of all trials."""
    metrics = dict.fromkeys(name for trial in trials for name in trial.values)
    return [*metrics], [*dict.fromkeys(name for trial in trials for name in trial.params)]


def _single_line(reason: str) -> str:
    """Returns a reason in one line; a long one is shortened in the middle, since its end has the line of code."""
    text = " ".join(reason.split())
    if len(text) <= _MAX_REASON_LENGTH:
        return text
    return f"{text[: _MAX_REASON_LENGTH - 83]} … {text[-80:]}"


def _has_constraints(trials: Sequence[Trial]) -> bool:
    return any(trial.constraints for trial in trials)


def _has_parents(trials: Sequence[Trial]) -> bool:
    return any(trial.parent is not None for trial in trials)


def _display_value(value: object) -> object:
    if value is None:
        return ""
    return value_text(value) if isinstance(value, float) else value
