"""Renders a run as SVG: the steps in columns behind those that they need, in the colours of their states."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from pai_sdk._data.pipelines.records import PipelineRunRecord, StepRecord

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _EDGE = 170, 44, 60, 18, 16
_FILLS = {
    "waiting": ("#f3f4f6", "#6b7280"),
    "running": ("#dbeafe", "#1d4ed8"),
    "succeeded": ("#dcfce7", "#166534"),
    "cached": ("#cffafe", "#155e75"),
    "skipped": ("#f3f4f6", "#6b7280"),
    "failed": ("#fee2e2", "#b91c1c"),
    "blocked": ("#fef9c3", "#854d0e"),
    "stopped": ("#fef9c3", "#854d0e"),
}
_MAX_NAME_LENGTH = 22


def run_svg(run: PipelineRunRecord, steps: Mapping[str, StepRecord]) -> str:
    """Renders the picture of a run."""
    needs = {step["name"]: list(step["needs"]) for step in run.steps}
    columns: dict[str, int] = {}
    for name, before in needs.items():  # each step stands behind those that it needs
        columns[name] = 1 + max((columns[step] for step in before), default=-1)
    rows: dict[int, int] = {}
    positions: dict[str, tuple[int, int]] = {}
    for name, column in columns.items():
        row = rows.get(column, 0)
        rows[column] = row + 1
        positions[name] = (_EDGE + column * (_WIDTH + _GAP_X), _EDGE + row * (_HEIGHT + _GAP_Y))
    width = 2 * _EDGE + max((x + _WIDTH for x, _ in positions.values()), default=0)
    height = 2 * _EDGE + max((y + _HEIGHT for _, y in positions.values()), default=0)
    lines = [_line(positions[step], positions[name]) for name, before in needs.items() for step in before]
    boxes = [_box(steps.get(name) or StepRecord(name), positions[name], _progress(name, steps)) for name in needs]
    title = escape(f"{run.pipeline}, run {run.run_id}: {run.status}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="system-ui, sans-serif" '
        f'style="max-width:100%;background:#fff">'
        f"<title>{title}</title>{''.join(lines)}{''.join(boxes)}</svg>"
    )


def _line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    x2, y2 = end[0], end[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    curve = f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
    return f'<path d="{curve}" fill="none" stroke="#9ca3af" stroke-width="1.5"/>'


def _progress(name: str, steps: Mapping[str, StepRecord]) -> str:
    """Returns how many steps of a running `each` have finished."""
    step = steps.get(name)
    if step is None or not step.children or step.is_finished:
        return ""
    finished = sum(child.is_finished for other, child in steps.items() if other.startswith(f"{name}["))
    return f" · {finished} of {step.children}"


def _box(step: StepRecord, position: tuple[int, int], progress: str) -> str:
    fill, ink = _FILLS[step.status]
    x, y = position
    more = f" ×{step.children}" if step.children else ""
    name = step.name if len(step.name) <= _MAX_NAME_LENGTH else f"{step.name[: _MAX_NAME_LENGTH - 1]}…"
    seconds = ""
    if step.started_at is not None and step.ended_at is not None and step.status in ("succeeded", "failed"):
        seconds = f" · {step.ended_at - step.started_at:.1f} s"
    about = escape(f"{step.name}: {step.status}. {step.error or step.reason}")
    return (
        f'<g><title>{about}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{fill}" '
        f'stroke="{ink}"/>'
        f'<text x="{x + 10}" y="{y + 18}" font-size="13" fill="#111827">{escape(name + more)}</text>'
        f'<text x="{x + 10}" y="{y + 35}" font-size="11" fill="{ink}">{step.status}{progress}{seconds}</text></g>'
    )
