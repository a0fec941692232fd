"""The table of jobs, for notebooks and terminals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from pai_sdk._client.display.base import duration_text, elapsed_s
from pai_sdk._client.display.card import MONO, status_html
from pai_sdk._core.tables.html import table_html
from pai_sdk._core.tables.table import Cell, Table, text_columns, value_text
from pai_sdk._wire.pai.hyperparameters import compare_hyperparameters
from pai_sdk._wire.pai.record import JobRecord

_MAX_METRICS = 3
_MAX_HYPERPARAMETERS = 4


def job_table_html(records: Sequence[JobRecord], *, below: str = "") -> str:
    """Renders one row per job: status, name, hyperparameters that differ, last metrics, time, id."""
    if not records:
        return "<i>no jobs</i>"
    table = _job_table(records)
    created = len(table.columns) - 1
    return table_html(replace(table, caption=below).ordered([2, 1, *range(4, created), 3, 0, created]))


def job_table(records: Sequence[JobRecord]) -> Table:
    """Returns the table for terminals: id, name, status, time, hyperparameters that differ, last metrics."""
    table = _job_table(records)
    return table.ordered(range(len(table.columns) - 1))


def _job_table(records: Sequence[JobRecord]) -> Table:
    titles, values = _values(records)
    rows = [
        [
            Cell(record.training_job_id, f'<span style="{MONO}">{escape(record.training_job_id)}</span>'),
            record.training_job_name or "",
            Cell(str(record.status) or "…", status_html(record.status)),
            _elapsed_text(record),
            *row,
            (record.gmt_create_time or "").replace("T", " ").rstrip("Z").partition(".")[0],
        ]
        for record, row in zip(records, values, strict=True)
    ]
    return Table(text_columns(["job", "name", "status", "time", *titles, "created (UTC)"]), rows)


def _elapsed_text(record: JobRecord) -> str:
    seconds = elapsed_s(record)
    return duration_text(seconds) if seconds is not None else ""


def _values(records: Sequence[JobRecord]) -> tuple[list[str], list[list[str]]]:
    """Returns the names of differing hyperparameters and of metrics, and their values for each job."""
    compared = compare_hyperparameters([record.hyperparameter_values for record in records])
    differing = compared.differing[:_MAX_HYPERPARAMETERS]
    metrics = list(dict.fromkeys(p.name for r in records for p in r.latest_metrics if p.name))[:_MAX_METRICS]
    rows = []
    for record, hyperparameters in zip(records, compared.rows, strict=True):
        latest = {point.name: point.value for point in record.latest_metrics}
        numbers = [value_text(value) if (value := latest.get(name)) is not None else "" for name in metrics]
        rows.append([*(str(hyperparameters.get(name) or "") for name in differing), *numbers])
    return [*differing, *metrics], rows
