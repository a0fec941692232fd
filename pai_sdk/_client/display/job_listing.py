"""Renders jobs as a table, in HTML and as text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pai_sdk._client.display.base import duration_text, elapsed_s
from pai_sdk._client.display.card import MONO, status_html
from pai_sdk._client.display.text_table import text_table
from pai_sdk._core.html_table import html_table, value_text
from pai_sdk._wire.pai.hyperparameters import compare_hyperparameters
from pai_sdk._wire.pai.record import JobRecord

__all__ = ["job_table_html", "job_table_text"]

_MAX_METRICS = 3
_MAX_HYPERPARAMETERS = 4


def job_table_html(records: Sequence[JobRecord], *, below: str = "") -> str:
    """Returns a row a job: status, name, hyperparameters that differ, last metrics, time, id."""
    if not records:
        return "<i>no jobs</i>"
    titles, values = _values(records)
    rows = [
        [
            status_html(record.status),
            escape(record.training_job_name or ""),
            *map(escape, row),
            escape(_elapsed_text(record)),
            f'<span style="{MONO}">{escape(record.training_job_id)}</span>',
            escape((record.gmt_create_time or "").replace("T", " ").rstrip("Z").partition(".")[0]),
        ]
        for record, row in zip(records, values, strict=True)
    ]
    return html_table(["status", "name", *titles, "time", "job", "created (UTC)"], rows, below=escape(below))


def job_table_text(records: Sequence[JobRecord]) -> list[str]:
    """Renders the lines of a text table: id, name, status, time, hyperparameters that differ, last metrics."""
    titles, values = _values(records)
    rows = [
        [
            record.training_job_id,
            record.training_job_name or "",
            str(record.status) or "…",
            _elapsed_text(record),
            *row,
        ]
        for record, row in zip(records, values, strict=True)
    ]
    return text_table(["job", "name", "status", "time", *titles], rows)


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
