"""Jobs as an HTML table, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pai_sdk.base.html_table import html_table, value_text
from pai_sdk.display.base import duration_text, elapsed_s
from pai_sdk.display.card import MONO, status_html
from pai_sdk.schemas.hyperparameters import compare_hyperparameters
from pai_sdk.schemas.record import JobRecord

__all__ = ["job_table_html"]

_MOST_METRICS = 3
_MOST_HYPERPARAMETERS = 4


def job_table_html(records: Sequence[JobRecord], *, has_more: bool = False) -> str:
    """A row a job: status, name, id, time, hyperparameters that differ, last metrics.

    Args:
        records: the jobs, in the order of the rows.
        has_more: there are jobs that are not shown.

    Example:
        >>> job_table_html([])
        '<i>no jobs</i>'
    """
    if not records:
        return "<i>no jobs</i>"
    compared = compare_hyperparameters([record.hyperparameter_values for record in records])
    differing = compared.differing[:_MOST_HYPERPARAMETERS]
    metrics = list(dict.fromkeys(p.name for r in records for p in r.latest_metrics if p.name))[:_MOST_METRICS]
    titles = ["status", "name", "job", "time", "created (UTC)", *differing, *metrics]
    rows = [
        _row(record, [one.get(name) or "" for name in differing], metrics)
        for record, one in zip(records, compared.rows, strict=True)
    ]
    return html_table(titles, rows, below="and more; iterate over the list for all" if has_more else "")


def _row(record: JobRecord, hyperparameters: Sequence[str], metrics: Sequence[str]) -> list[str]:
    seconds = elapsed_s(record)
    latest = {point.name: point.value for point in record.latest_metrics}
    created = (record.gmt_create_time or "").replace("T", " ").rstrip("Z").partition(".")[0]
    numbers = [value_text(value) if (value := latest.get(name)) is not None else "" for name in metrics]
    return [
        status_html(record.status),
        escape(record.training_job_name or ""),
        f'<span style="{MONO}">{escape(record.training_job_id)}</span>',
        duration_text(seconds) if seconds is not None else "",
        escape(created),
        *(escape(value) for value in hyperparameters),
        *numbers,
    ]
