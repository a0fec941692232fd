"""Renders a job or a plan as an HTML card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pai_sdk._client.display.base import duration_text, elapsed_s, finding_text
from pai_sdk._client.display.commands import next_commands, page_url
from pai_sdk._client.display.curves import MetricCurve
from pai_sdk._core.tables.html import BADGE_COLOURS, NO_MATH, badge_html
from pai_sdk._wire.pai.record import ChannelUri, JobRecord, MetricPoint
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk._wire.requests import RecordedCompute, RecordedRequest, RecordedSpec

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
    reason = record.reason_message if record.status.is_failure else finding_text(record)
    if reason:
        # The text colour of the page beside a red line: red letters are hard to read on a dark page.
        edge = f"border-left:3px solid {BADGE_COLOURS['failure']};padding-left:8px;margin-top:4px"
        parts.append(f'<div style="{edge}">{escape(reason)}</div>')
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


_CODE = f"{MONO};white-space:pre-wrap;overflow-wrap:anywhere"
_SHELL = ["sh", "-c"]


def plan_card_html(request: Mapping[str, Any], notes: Sequence[str] = ()) -> str:
    """Draws the card of a request with masked secrets; `notes` tell what happens before it is sent."""
    plan = RecordedRequest.model_validate(request)
    name = escape(plan.training_job_name or "plan")
    head = f'<div><span style="{DIM}">plan</span> <b>{name}</b> <span style="{DIM}">not submitted yet</span></div>'
    rows = "".join(
        f'<div style="{DIM}">{escape(title)}</div><div style="{_CODE}">{escape(text)}</div>'
        for title, text in _properties(plan)
        if text
    )
    grid = "display:grid;grid-template-columns:max-content 1fr;column-gap:12px;margin-top:4px"
    parts = [head, f'<div style="{grid}">{rows}</div>']
    for title, names in (
        ("hyperparameters", [(each.name or "", each.value or "") for each in plan.hyperparameters]),
        ("inputs", _sources(plan.input_channels)),
        ("outputs", _sources(plan.output_channels)),
        ("environment", [*(plan.environments or {}).items()]),
    ):
        parts.append(
            _details_html(title, [f"{key} = {value}" for key, value in names], is_open=title != "environment")
        )
    parts.append(_details_html("before it is sent", list(notes), is_open=True))
    parts.append(_details_html("request", [json.dumps(request, ensure_ascii=False, indent=2)], count=False))
    return f'<div {NO_MATH} style="{BOX}">{"".join(parts)}</div>'


def _properties(plan: RecordedRequest) -> list[tuple[str, str]]:
    spec, resource = plan.algorithm_spec or RecordedSpec(), plan.compute_resource or RecordedCompute()
    command = spec.command
    kind, count = resource.ecs_spec or resource.resource_id, resource.num_instances
    limit_s = plan.scheduler.max_running_time_in_seconds if plan.scheduler else None
    return [
        ("algorithm", " ".join(filter(None, (plan.algorithm_name, plan.algorithm_version)))),
        ("image", spec.image or ""),
        ("command", command[2] if command[:2] == _SHELL and len(command) == 3 else " ".join(command)),
        ("runs on", f"{count} × {kind}" if kind else f"{count} instance{'' if count == 1 else 's'}"),
        ("at most", duration_text(limit_s) if limit_s else ""),
        ("requirements", " ".join(plan.python_requirements)),
    ]


def _sources(channels: Sequence[ChannelUri]) -> list[tuple[str, str]]:
    return [(each.name or "", each.uri or each.dataset_id or "") for each in channels]


def _details_html(title: str, lines: Sequence[str], *, is_open: bool = False, count: bool = True) -> str:
    if not lines:
        return ""
    summary = f'{escape(title)} <span style="{DIM}">{len(lines)}</span>' if count else escape(title)
    return (
        f'<details style="margin-top:4px"{" open" if is_open else ""}>'
        f'<summary style="cursor:pointer">{summary}</summary>'
        f'<pre style="{_CODE};margin:2px 0 2px 16px;background:none">{escape(chr(10).join(lines))}</pre></details>'
    )
