"""Jobs as an HTML table, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pai_sdk.display.base import duration_text, elapsed_s
from pai_sdk.display.card import MONO, status_html
from pai_sdk.schemas.hyperparameters import compare_hyperparameters
from pai_sdk.schemas.record import JobRecord

__all__ = ["job_table_html"]

_CELL = "text-align:left;padding:2px 10px 2px 0"
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
    head = "".join(f'<th style="{_CELL}">{escape(title)}</th>' for title in titles)
    rows = "".join(
        _row(record, [one.get(name) or "" for name in differing], metrics)
        for record, one in zip(records, compared.rows, strict=True)
    )
    more = "<div>and more; iterate over the list for all</div>" if has_more else ""
    return (
        '<div style="overflow-x:auto;font-family:system-ui,sans-serif;font-size:13px">'
        '<table style="border-collapse:collapse;font-size:13px">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"{more}</div>"
    )


def _row(record: JobRecord, hyperparameters: Sequence[str], metrics: Sequence[str]) -> str:
    seconds = elapsed_s(record)
    latest = {point.name: point.value for point in record.latest_metrics}
    created = (record.gmt_create_time or "").replace("T", " ").rstrip("Z").partition(".")[0]
    numbers = [f"{value:.5g}" if (value := latest.get(name)) is not None else "" for name in metrics]
    cells = [
        status_html(record.status),
        escape(record.training_job_name or ""),
        f'<span style="{MONO}">{escape(record.training_job_id)}</span>',
        duration_text(seconds) if seconds is not None else "",
        escape(created),
        *(escape(value) for value in hyperparameters),
        *numbers,
    ]
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"
