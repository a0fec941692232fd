"""Displays a run as a table: live in a terminal, elsewhere a line for each finished step."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pai_sdk._client.display.base import CellOutput
from pai_sdk._client.display.choice import heartbeat, notebook_cell
from pai_sdk._client.display.lines import LiveRows
from pai_sdk._client.pipeline.steps import PipelineStep
from pai_sdk._core.tables.table import Cell, Column, Table
from pai_sdk._core.tables.terminal import FittedTable, table_text
from pai_sdk._data.pipelines.picture import run_svg
from pai_sdk._data.pipelines.records import PipelineRunRecord, StepRecord

if TYPE_CHECKING:
    from rich.text import Text

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
_REDRAW_S = 0.25
_TEXT_WIDTH = 140  # of the `repr`


def run_table(run: PipelineRunRecord, steps: Mapping[str, StepRecord], uri: str) -> str:
    """Renders a run as a text table."""
    table = _table(run, [*steps.values()], uri, max_rows=10_000)
    return table_text(table, _TEXT_WIDTH)


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
        self._cell = notebook_cell() if is_enabled else None
        self._output = CellOutput()
        self._drawn_at = float("-inf")
        self._rows = LiveRows(sys.stderr, redirect_stdout=True)
        self._lock = threading.Lock()  # guards `_rows`: `beat` is called from another thread
        is_terminal = self._rows.console.is_terminal
        self._prints = is_enabled and self._cell is None and not is_terminal
        self._is_live = is_enabled and self._cell is None and is_terminal
        self._reported: dict[str, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> RunDisplay:
        if self._is_live:
            self.beat()
            self._stack.enter_context(heartbeat(self, beat_s=_REDRAW_S))
        self.update()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._cell is not None:
            self._draw()

    def beat(self) -> None:
        """Redraws the table with the elapsed times."""
        with self._lock:
            if self._is_live:
                self._rows.draw(self._lines())

    def stop_beat(self) -> None:
        """Writes the last state in place of the live table."""
        with self._lock:
            self._is_live = False  # a late `beat` of the other thread must not draw the rows again
            self._rows.draw([])
            for line in self._lines():
                self._rows.print(line)

    @property
    def displayed_in_cell(self) -> int | None:
        """Returns the cell of a notebook that has the picture; None outside of a notebook."""
        return self._cell

    def _draw(self) -> None:
        """Draws the picture of the run in the cell, in place of the previous one."""
        self._output.show_html(run_svg(self._run, self._step_records))
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

    def _lines(self) -> list[Text]:
        steps = step_order(self._steps, self._step_records)
        table = _table(self._run, steps, self._uri, max_rows=_MAX_ROWS)
        return [*FittedTable(table, self._rows.console.width - 1).lines()]  # as `LiveRows` truncates


def _table(run: PipelineRunRecord, steps: Sequence[StepRecord], uri: str, *, max_rows: int) -> Table:
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.status] = counts.get(step.status, 0) + 1
    title = f"{run.pipeline}, run {run.run_id}: " + ", ".join(f"{n} {status}" for status, n in counts.items())
    visible = (
        steps
        if len(steps) <= max_rows
        else [step for step in steps if step.status in ("running", "failed")][:max_rows]
    )
    columns = [Column(title, overflow="fold") for title in ("step", "status", "time", "job", "reason")]
    rows = [(step.name, _status(step), _seconds(step).strip(), step.job_id, _reason(step)) for step in visible]
    hidden = len(steps) - len(visible)
    return Table(columns, rows, title, uri, notes={len(rows): f"… {hidden} more"} if hidden else {})


def _status(step: StepRecord) -> Cell:
    return Cell(step.status, style=COLOURS[step.status])


def _seconds(step: StepRecord) -> str:
    if step.started_at is None or step.status in ("cached", "skipped", "blocked"):
        return ""
    return f" {(step.ended_at or time.time()) - step.started_at:.1f} s"


def _reason(step: StepRecord) -> str:
    return (step.error.splitlines() or [""])[0] if step.error else step.reason


def _reason_text(step: StepRecord) -> str:
    return f" ({_reason(step)})" if _reason(step) else ""
