"""Renders a job as an HTML card: description, progress and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from pai_sdk._client.display.base import duration_text, elapsed_s
from pai_sdk._client.display.commands import next_commands, page_url
from pai_sdk._client.display.curves import MetricCurve
from pai_sdk._core.tables.html import BADGE_COLOURS, NO_MATH, badge_html
from pai_sdk._wire.pai.record import JobRecord, MetricPoint
from pai_sdk._wire.pai.status import JobStatus

# The colours of the page are inherited, so that the card fits light and dark notebooks.
BOX = (
    "border:1px solid rgba(128,128,128,.35);border-radius:8px;padding:10px 14px;margin:4px 0;max-width:760px;"
    "font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;overflow-wrap:anywhere"
)
MONO = "font-family:ui-monospace,monospace;font-size:12px"
DIM = "opacity:.65"


def card_html(
    record: JobRecord, *, tail: Sequence[str] = (), curves: Mapping[str, MetricCurve] | None = None
) -> str:
    """Draws the card."""
    parts = [_head(record)]
    if record.status.is_failure and record.reason_message:
        # The text colour of the page beside a red line: red letters are hard to read on a dark page.
        edge = f"border-left:3px solid {BADGE_COLOURS['failure']};padding-left:8px;margin-top:4px"
        parts.append(f'<div style="{edge}">{escape(record.reason_message)}</div>')
    parts += [_metrics(record.latest_metrics, curves or {}), _rows(record)]
    if tail:
        text = escape("\n".join(tail))
        parts.append(
            f'<pre style="{MONO};background:rgba(128,128,128,.1);border-radius:4px;padding:6px 8px;margin:6px 0;'
            f'white-space:pre-wrap;overflow-wrap:anywhere;max-height:30em;overflow:auto">{text}</pre>'
        )
    box = "display:inline-block;max-width:100%"  # a command is not broken between two lines
    commands = " &nbsp; ".join(
        f'<code style="{box}">{escape(command)}</code>' for command in next_commands(record)
    )
    parts.append(f'<div style="{DIM};font-size:12px">{commands}</div>')
    return f'<div {NO_MATH} style="{BOX}">{"".join(parts)}</div>'


def status_html(status: JobStatus) -> str:
    """Renders a status on the colour of its kind."""
    return badge_html(status or "…", status.kind)


def _head(record: JobRecord) -> str:
    seconds = elapsed_s(record)
    took = f' <span style="{DIM}">{duration_text(seconds)}</span>' if seconds is not None else ""
    name = record.training_job_name or record.training_job_id
    page = page_url(record)
    if page is not None:
        name_html = f'<a href="{escape(page)}" target="_blank">{escape(name)}</a>'
    else:
        name_html = escape(name)
    return (
        f"<div>{status_html(record.status)} <b>{name_html}</b>{took}"
        f' <span style="{DIM};{MONO}">{escape(record.training_job_id)}</span></div>'
    )


def _metrics(latest: list[MetricPoint], curves: Mapping[str, MetricCurve]) -> str:
    last = {point.name: point.value for point in latest if point.name and point.value is not None}
    last = last or {name: curve.values[-1] for name, curve in curves.items() if curve.values}
    spans = [
        f'<span style="display:inline-block;margin-right:14px">{escape(name)} <b>{value:.5g}</b> '
        f"{curves[name].svg() if name in curves else ''}</span>"
        for name, value in last.items()
    ]
    return f'<div style="margin-top:4px">{"".join(spans)}</div>' if spans else ""


def _rows(record: JobRecord) -> str:
    rows = [(instance.name or "", instance.status or "") for instance in record.instances]
    rows = rows if len(rows) > 1 else []
    if record.status.is_success:
        rows += record.outputs.items()
    if not rows:
        return ""
    cells = "".join(
        f'<div style="{DIM}">{escape(name.removeprefix(record.training_job_id + "-"))}</div>'
        f'<div style="{MONO}">{escape(text)}</div>'
        for name, text in rows
    )
    return (
        '<div style="display:grid;grid-template-columns:max-content 1fr;column-gap:12px;margin-top:4px">'
        f"{cells}</div>"
    )
