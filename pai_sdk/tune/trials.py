"""The trials of a study as values, and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from pai_sdk.base.extras import import_pandas
from pai_sdk.base.html_table import html_table, value_text
from pai_sdk.display.base import duration_text
from pai_sdk.display.text_table import text_table
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.tune.objectives import Objective

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Trial", "TrialList", "best_of"]

_MOST_LINES = 60
_MOST_ROWS = 200
_LONGEST_REASON = 240


@dataclass(frozen=True)
class Trial:
    """One trial of a study.

    Attributes:
        number: its number in the study.
        state: `running`, `complete`, `pruned` or `failed`.
        params: its hyperparameters.
        values: the value of each objective, by the metric; of a pruned trial the last one, of others none.
        steps: the last step that the pruner has seen; None where nothing is pruned.
        job_id: of its job; empty for a function, and before the submission.
        run: the folder of a trial that is a function.
        reason: why it failed, or where it was pruned.
        seconds: how long it took; None before the end.
        is_earlier: it comes from another study, or from earlier runs.
        parent: the trial whose checkpoint it began with; None in the first generation, and without a population.
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
        """The value of the first objective; None if there is none."""
        return next(iter(self.values.values()), None)

    @property
    def is_feasible(self) -> bool:
        """True if it breaks no constraint."""
        return all(value <= 0.0 for value in self.constraints)

    @property
    def job(self) -> TrainingJob:
        """The job of the trial.

        Raises:
            InvalidInputError: it has none: it was a function in a process, or is not submitted yet.
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
            what = f"its job {self.job_id} has no output 'model'"
            raise InvalidInputError(
                [Problem(f"trial {self.number}", what, f"it has: {', '.join(outputs) or 'none'}")]
            )
        return outputs["model"]


class TrialList(list[Trial]):
    """Trials in the order of their numbers; in a terminal and in a notebook, they are a table.

    Args:
        trials: the trials.
        objectives: what was searched for.

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
        """The best complete and feasible trial for the first objective; of equal ones the first."""
        return best_of(self, self.objectives[:1])

    def to_pandas(self) -> pd.DataFrame:
        """A data frame with a row a trial.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        pandas = import_pandas()
        titles = _titles(self)
        columns: dict[str, list[Any]] = {
            "trial": [one.number for one in self],
            "state": [one.state for one in self],
            **({"parent": [one.parent for one in self]} if _has_parents(self) else {}),
            **{metric: [one.values.get(metric) for one in self] for metric in titles[0]},
            **({"feasible": [one.is_feasible for one in self]} if _has_constraints(self) else {}),
            **{name: [one.params.get(name) for one in self] for name in titles[1]},
            "seconds": [one.seconds for one in self],
            "job": [one.job_id for one in self],
            "reason": [one.reason for one in self],
        }
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        if not self:
            return "[]"
        columns, rows = self._table()
        shown = rows if len(rows) <= _MOST_LINES else [*rows[:20], *rows[-20:]]
        lines = text_table(columns, shown, last_column=_LONGEST_REASON)
        if len(shown) < len(rows):
            lines = [*lines[:21], f"… {len(rows) - len(shown):,} more …", *lines[21:]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self:
            return "<i>no trials</i>"
        columns, rows = self._table()
        best = self.best
        cells = [[escape(str("" if cell is None else cell)) for cell in row] for row in rows]
        for one, row in zip(self, cells, strict=True):
            if one is best:
                row[:] = [f"<b>{cell}</b>" for cell in row]
        order = sorted(range(len(cells)), key=lambda at: self[at] is not best)[:_MOST_ROWS]
        more = len(cells) - len(order)
        shown = [cells[at] for at in sorted(order)]
        return html_table([escape(title) for title in columns], shown, below=f"and {more:,} more" if more else "")

    def _table(self) -> tuple[list[str], list[list[object]]]:
        metrics, names = _titles(self)
        has_jobs, has_reasons = any(one.job_id for one in self), any(one.reason for one in self)
        has_parents = _has_parents(self)
        has_constraints = _has_constraints(self)
        columns = ["trial", *(["parent"] if has_parents else []), "state", *metrics]
        columns += [*(["feasible"] if has_constraints else []), *names, "time"]
        columns += [*(["job"] if has_jobs else []), *(["reason"] if has_reasons else [])]
        rows: list[list[object]] = []
        for one in self:
            numbers = [_shown(one.values.get(metric)) for metric in metrics]
            row = [one.number, *([_shown(one.parent)] if has_parents else []), one.state, *numbers]
            row += ["yes" if one.is_feasible else "no"] if has_constraints else []
            row += [_shown(one.params.get(name)) for name in names]
            row.append(duration_text(one.seconds) if one.seconds is not None and one.seconds >= 1 else "")
            row += [
                *([one.job_id] if has_jobs else []),
                *([_one_line(one.reason)] if has_reasons else []),
            ]
            rows.append(row)
        return columns, rows


def best_of(trials: Iterable[Trial], objectives: Sequence[Objective]) -> Trial | None:
    """The best complete and feasible trial for one objective; of equal ones the first; None without any."""
    if not objectives:
        return None
    one = objectives[0]
    found = [
        trial
        for trial in trials
        if trial.state == "complete"
        and trial.is_feasible
        and not math.isnan(trial.values.get(one.metric, math.nan))
    ]
    sign = -1 if one.is_maximized else 1
    return min(found, key=lambda trial: (sign * trial.values[one.metric], trial.number), default=None)


def _titles(trials: Sequence[Trial]) -> tuple[list[str], list[str]]:
    """The metrics, and the hyperparameters, that any of the trials has."""
    metrics = dict.fromkeys(name for trial in trials for name in trial.values)
    return [*metrics], [*dict.fromkeys(name for trial in trials for name in trial.params)]


def _one_line(reason: str) -> str:
    """Returns a reason in one line; of a long one its start, and its end, where the line of the code is named."""
    text = " ".join(reason.split())
    if len(text) <= _LONGEST_REASON:
        return text
    return f"{text[: _LONGEST_REASON - 83]} … {text[-80:]}"


def _has_constraints(trials: Sequence[Trial]) -> bool:
    return any(one.constraints for one in trials)


def _has_parents(trials: Sequence[Trial]) -> bool:
    return any(one.parent is not None for one in trials)


def _shown(value: object) -> object:
    if value is None:
        return ""
    return value_text(value) if isinstance(value, float) else value
