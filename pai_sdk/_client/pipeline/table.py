"""Displays a run as a table: live in a terminal, elsewhere a line for each finished step."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pai_sdk._client.display.choice import notebook_cell
from pai_sdk._client.pipeline.picture import run_svg
from pai_sdk._client.pipeline.records import PipelineRunRecord, StepRecord
from pai_sdk._client.pipeline.steps import PipelineStep

__all__ = ["COLOURS", "RunDisplay", "run_table", "step_order"]

COLOURS = {
    "waiting": "grey58",
    "running": "blue",
    "succeeded": "green",
    "cached": "cyan",
    "skipped": "grey58",
    "failed": "red",
    "blocked": "yellow",
    "stopped": "yellow",
}
"""The colour of each status, by the names of Rich."""

_MAX_ROWS = 40
_REDRAW_S = 0.25  # in a notebook


def run_table(run: PipelineRunRecord, steps: Mapping[str, StepRecord], uri: str) -> str:
    """Renders a run as a text table."""
    out = StringIO()
    # In a notebook, Rich would show the table there, and write nothing.
    Console(file=out, width=140, force_jupyter=False).print(_table(run, [*steps.values()], uri, max_rows=10_000))
    return out.getvalue().rstrip()


def step_order(steps: Sequence[PipelineStep], step_records: Mapping[str, StepRecord]) -> list[StepRecord]:
    """Returns the states of steps; an `each` is followed by its steps."""
    records = []
    for step in steps:
        record = step_records.get(step.name) or StepRecord(step.name)
        records.append(record)
        children = (step_records.get(f"{step.name}[{number}]") for number in range(record.children))
        records += [child for child in children if child is not None]
    return records


class RunDisplay:
    """Displays a run while it is running."""

    def __init__(
        self,
        run: PipelineRunRecord,
        steps: Sequence[PipelineStep],
        step_records: Mapping[str, StepRecord],
        uri: str,
        *,
        is_enabled: bool,
    ) -> None:
        self._run, self._steps, self._step_records, self._uri = run, steps, step_records, uri
        console = Console(stderr=True)
        self._live: Live | None = None
        self._cell = notebook_cell() if is_enabled else None
        self._handle: Any = None  # IPython's DisplayHandle, which has no types
        self._drawn_at = float("-inf")
        self._prints = is_enabled and self._cell is None and not console.is_terminal
        self._console = console
        self._reported: dict[str, str] = {}
        if is_enabled and self._cell is None and console.is_terminal:
            self._live = Live(console=console, get_renderable=self._renderable, refresh_per_second=4)

    def __enter__(self) -> RunDisplay:
        if self._live is not None:
            self._live.start()
        self.update()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        if self._cell is not None:
            self._draw()

    @property
    def displayed_in_cell(self) -> int | None:
        """Returns the cell of a notebook that has the picture; None outside of a notebook."""
        return self._cell

    def _draw(self) -> None:
        """Draws the picture of the run in the cell, in place of the previous one."""
        from IPython.display import HTML, display

        html = HTML(run_svg(self._run, self._step_records))  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display(html, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(html)
        self._drawn_at = time.monotonic()

    def update(self) -> None:
        """Draws the picture again, or prints each step that has finished since the last call."""
        if self._cell is not None and time.monotonic() - self._drawn_at >= _REDRAW_S:
            self._draw()
        if not self._prints:
            return
        for record in [*self._step_records.values()]:
            if record.is_finished and self._reported.get(record.name) != record.status:
                self._reported[record.name] = record.status
                sys.stderr.write(f"{record.name}: {record.status}{_seconds(record)}{_reason_text(record)}\n")

    def _renderable(self) -> Table:
        return _table(self._run, step_order(self._steps, self._step_records), self._uri, max_rows=_MAX_ROWS)


def _table(run: PipelineRunRecord, steps: Sequence[StepRecord], uri: str, *, max_rows: int) -> Table:
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.status] = counts.get(step.status, 0) + 1
    title = f"{run.pipeline}, run {run.run_id}: " + ", ".join(f"{n} {status}" for status, n in counts.items())
    table = Table(title=title, title_justify="left", caption=uri, caption_justify="left", box=None, pad_edge=False)
    for heading in ("step", "status", "time", "job", "reason"):
        table.add_column(heading, overflow="fold")
    visible = (
        steps
        if len(steps) <= max_rows
        else [step for step in steps if step.status in ("running", "failed")][:max_rows]
    )
    for step in visible:
        status = f"[{COLOURS[step.status]}]{step.status}[/]"
        text = (step.error.splitlines() or [""])[0] if step.error else step.reason
        table.add_row(escape(step.name), status, _seconds(step).strip(), step.job_id, escape(text))
    if len(visible) < len(steps):
        table.add_row(f"… {len(steps) - len(visible)} more", "", "", "", "")
    return table


def _seconds(step: StepRecord) -> str:
    if step.started_at is None or step.status in ("cached", "skipped", "blocked"):
        return ""
    return f" {(step.ended_at or time.time()) - step.started_at:.1f} s"


def _reason_text(step: StepRecord) -> str:
    text = (step.error.splitlines() or [""])[0] if step.error else step.reason
    return f" ({text})" if text else ""
