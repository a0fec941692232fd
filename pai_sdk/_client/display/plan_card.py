"""Renders a plan as an HTML card, with the complete request folded below it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pai_sdk._client.display.base import duration_text
from pai_sdk._client.display.card import BOX, DIM, MONO
from pai_sdk._core.tables.html import NO_MATH
from pai_sdk._wire.pai.record import ChannelUri
from pai_sdk._wire.requests import RecordedCompute, RecordedRequest, RecordedSpec

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
