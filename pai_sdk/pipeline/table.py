"""A run as a table: live in a terminal, a line for each end elsewhere."""

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

from pai_sdk.display.choice import notebook_cell
from pai_sdk.pipeline.picture import run_svg
from pai_sdk.pipeline.records import PipelineRunRecord, StepRecord
from pai_sdk.pipeline.steps import PipelineStep

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

_MOST_ROWS = 40
_REDRAW_S = 0.25  # in a notebook


def run_table(run: PipelineRunRecord, steps: Mapping[str, StepRecord], uri: str) -> str:
    """A run as text."""
    out = StringIO()
    # In a notebook, Rich would show the table there, and write nothing.
    Console(file=out, width=140, force_jupyter=False).print(_table(run, [*steps.values()], uri, most=10_000))
    return out.getvalue().rstrip()


def step_order(steps: Sequence[PipelineStep], known: Mapping[str, StepRecord]) -> list[StepRecord]:
    """The states of steps: each, then those that it has become."""
    found = []
    for step in steps:
        record = known.get(step.name) or StepRecord(step.name)
        found.append(record)
        children = (known.get(f"{step.name}[{number}]") for number in range(record.children))
        found += [one for one in children if one is not None]
    return found


class RunDisplay:
    """Shows a run while it goes on.

    Args:
        run: the run.
        steps: of the pipeline.
        known: their states, which change.
        uri: of the run.
        shown: whether anything is shown.
    """

    def __init__(
        self,
        run: PipelineRunRecord,
        steps: Sequence[PipelineStep],
        known: Mapping[str, StepRecord],
        uri: str,
        *,
        shown: bool,
    ) -> None:
        self._run, self._steps, self._known, self._uri = run, steps, known, uri
        console = Console(stderr=True)
        self._live: Live | None = None
        self._cell = notebook_cell() if shown else None
        self._handle: Any = None  # IPython's DisplayHandle, which has no types
        self._drawn_at = float("-inf")
        self._prints = shown and self._cell is None and not console.is_terminal
        self._console = console
        self._told: dict[str, str] = {}
        if shown and self._cell is None and console.is_terminal:
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
    def shown_in_cell(self) -> int | None:
        """The cell of a notebook that has the picture; None outside of a notebook."""
        return self._cell

    def _draw(self) -> None:
        """Draw the picture of the run in the cell, in the place of the one before."""
        from IPython.display import HTML, display

        html = HTML(run_svg(self._run, self._known))  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display(html, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(html)
        self._drawn_at = time.monotonic()

    def update(self) -> None:
        """Something has changed."""
        if self._cell is not None and time.monotonic() - self._drawn_at >= _REDRAW_S:
            self._draw()
        if not self._prints:
            return
        for record in [*self._known.values()]:
            if record.is_over and self._told.get(record.name) != record.status:
                self._told[record.name] = record.status
                sys.stderr.write(f"{record.name}: {record.status}{_seconds(record)}{_because(record)}\n")

    def _renderable(self) -> Table:
        return _table(self._run, step_order(self._steps, self._known), self._uri, most=_MOST_ROWS)


def _table(run: PipelineRunRecord, steps: Sequence[StepRecord], uri: str, *, most: int) -> Table:
    counts: dict[str, int] = {}
    for one in steps:
        counts[one.status] = counts.get(one.status, 0) + 1
    title = f"{run.pipeline}, run {run.run_id}: " + ", ".join(f"{n} {status}" for status, n in counts.items())
    table = Table(title=title, title_justify="left", caption=uri, caption_justify="left", box=None, pad_edge=False)
    for heading in ("step", "status", "time", "job", "reason"):
        table.add_column(heading, overflow="fold")
    shown = steps if len(steps) <= most else [one for one in steps if one.status in ("running", "failed")][:most]
    for one in shown:
        status = f"[{COLOURS[one.status]}]{one.status}[/]"
        text = (one.error.splitlines() or [""])[0] if one.error else one.reason
        table.add_row(escape(one.name), status, _seconds(one).strip(), one.job_id, escape(text))
    if len(shown) < len(steps):
        table.add_row(f"… {len(steps) - len(shown)} more", "", "", "", "")
    return table


def _seconds(one: StepRecord) -> str:
    if one.started_at is None or one.status in ("cached", "skipped", "blocked"):
        return ""
    return f" {(one.ended_at or time.time()) - one.started_at:.1f} s"


def _because(one: StepRecord) -> str:
    text = (one.error.splitlines() or [""])[0] if one.error else one.reason
    return f" ({text})" if text else ""
