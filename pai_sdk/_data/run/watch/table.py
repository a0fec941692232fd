"""Runs as an HTML table: status, age, the hyperparameters that differ, the metrics with a small curve.

The table needs no script, and all strings of runs are escaped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pai_sdk._core.tables.html import badge_html, table_html
from pai_sdk._core.tables.table import Cell, Column, Table, hparam_text
from pai_sdk._data.run.events.series import TagSummary
from pai_sdk._data.run.plots.axes import number_text
from pai_sdk._data.run.plots.figures import Comparison
from pai_sdk._data.run.plots.pictures import run_colour, safe_text, save_picture, small_curve
from pai_sdk._data.run.watch.names import usual_tags
from pai_sdk._data.run.watch.records import RunBrief
from pai_sdk._wire.pai.hyperparameters import compare_hyperparameters
from pai_sdk._wire.pai.job_names import without_suffix
from pai_sdk._wire.pai.status import STATUSES, JobStatus

_MAX_HPARAMS = 8
_DIM = "opacity:.65"
_OF_A_JOB = {"Succeeded": "Succeed", "Stopped": "Terminated"}
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, eq=False)
class RunTable:
    """A table of runs, which notebooks display."""

    runs: tuple[RunBrief, ...]  # in the order of the rows
    tags: tuple[str, ...] = ()  # of the columns; the metrics that most runs have, by default
    total: int = 0  # of all runs, where the table has only some of them
    curves: Comparison | None = None  # of the first metric, drawn in its column; their names are run ids
    now: float = field(default_factory=time.time)  # for ages, in seconds since 1970

    @cached_property
    def html(self) -> str:
        """The table as HTML."""
        if not self.runs:
            return "<i>no runs</i>"
        tags = self.tags or usual_tags(self.runs)
        compared = compare_hyperparameters([run.hparams for run in self.runs])
        differing = compared.differing
        titles = ["run", "status", "age", *differing[:_MAX_HPARAMS], *tags]
        pictures = self._pictures()
        rows = [self._row(run, differing[:_MAX_HPARAMS], tags, pictures.get(run.id, "")) for run in self.runs]
        below = Cell.of_markup(self._below(len(differing), compared.constant))
        table = Table([*map(Column, titles)], [[*map(Cell.of_markup, row)] for row in rows], caption=below)
        return f'<div class="pai-runs">{table_html(table)}</div>'

    def save(self, path: str | Path) -> Path:
        """Writes the table to a file with the suffix `.html`, and returns its path."""
        return save_picture(path, "runs", html=lambda: self.html)

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return (
            f"<RunTable of {len(self.runs)} runs; it displays itself in a notebook, save('runs.html') writes it>"
        )

    def _pictures(self) -> dict[str, str]:
        if self.curves is None:
            return {}
        # A bucket has its middle as x, which can be beyond the last step.
        drawn = [(run, run.tags.get(tag)) for run in self.runs for tag in self.curves.tags]
        last_steps = {run.id: summary.last.step for run, summary in drawn if summary is not None and summary.last}
        pictures = {}
        for curve in self.curves.curves:
            finite = np.isfinite(curve.value)
            x, values = curve.x[finite], curve.value[finite].tolist()
            if values:
                last_step = last_steps.get(curve.name, int(x[-1]))
                pictures[curve.name] = small_curve(values, int(x[0]), last_step, colour=run_colour(curve.name))
        return pictures

    def _row(self, run: RunBrief, hparams: Sequence[str], tags: Sequence[str], picture: str) -> list[str]:
        cells = [
            f'<span style="color:{run_colour(run.id)}">━</span> {_name_html(run)}',
            _status_html(run),
            f'<span style="{_DIM}">{age_text(run, self.now)}</span>',
            *(safe_text(hparam_text(run.hparams, name, missing="–")) for name in hparams),
        ]
        for number, tag in enumerate(tags):
            cells.append(_metric_html(run.tags.get(tag)) + (f"<br>{picture}" if picture and number == 0 else ""))
        return cells

    def _below(self, differing: int, constant: Mapping[str, Any]) -> str:
        parts = []
        if self.total > len(self.runs):
            parts.append(f"<div>{len(self.runs):,} of {self.total:,} runs</div>")
        if differing > _MAX_HPARAMS:
            parts.append(f"<div>{differing - _MAX_HPARAMS} more hyperparameters differ</div>")
        if constant:
            same = ", ".join(safe_text(f"{name}={hparam_text(constant, name)}") for name in constant)
            parts.append(f"<details><summary>the same in all: {len(constant)}</summary>{same}</details>")
        return "".join(parts)


def age_text(run: RunBrief, now: float) -> str:
    """Returns the time since a run was changed, such as `5s`, `3m`, `2h` or `4d`; empty where it is unknown."""
    if run.updated_at is None:
        return ""
    seconds = max(0.0, now - run.updated_at)
    size, unit = next((size_and_unit for size_and_unit in _UNITS if seconds >= size_and_unit[0]), _UNITS[-1])
    return f"{int(seconds // size)}{unit}"


def _name_html(run: RunBrief) -> str:
    if not run.name or run.name == run.id:
        return f"<b>{safe_text(run.id)}</b>"
    name = f'<b title="{safe_text(run.name)}">{safe_text(without_suffix(run.name))}</b>'
    return f'{name}<br><span style="{_DIM};font-size:12px">{safe_text(run.id)}</span>'


def _status_html(run: RunBrief) -> str:
    status = JobStatus(_OF_A_JOB.get(run.status, run.status))
    kind = status.kind if status in STATUSES else "unknown"
    notes = [run.error] if run.error else []
    notes += ["loading"] if run.is_loading else []
    notes += [f"{run.damaged} damaged part{'' if run.damaged == 1 else 's'}"] if run.damaged else []
    below = "".join(
        f'<div style="{_DIM};font-size:12px;white-space:normal">{safe_text(note)}</div>' for note in notes
    )
    return badge_html(run.status, kind) + below


def _metric_html(summary: TagSummary | None) -> str:
    if summary is None or summary.last is None:
        return f'<span style="{_DIM}">–</span>'
    last = f"<b>{_short(summary.last.value)}</b>"
    ends = "" if summary.min is None or summary.max is None else f"{_short(summary.min)} … {_short(summary.max)}"
    notices = [f"▲ {summary.nan_count:,} NaN"] if summary.nan_count else []
    notices += [f"◆ {summary.inf_count:,} infinite"] if summary.inf_count else []
    notices += [f"{summary.replaced:,} replaced"] if summary.replaced else []
    small = ", ".join([*([ends] if ends else []), *notices])
    return f'{last} <span style="{_DIM};font-size:12px">{small}</span>'


def _short(value: float) -> str:
    return number_text(float(f"{value:.4g}")) if math.isfinite(value) else number_text(value)
