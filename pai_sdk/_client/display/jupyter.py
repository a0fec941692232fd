"""Displays a job in a notebook: one card that updates in place."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from pai_sdk._client.display.base import CellOutput, short_instance
from pai_sdk._client.display.buttons import JobButtons
from pai_sdk._client.display.card import card_html
from pai_sdk._client.display.curves import MetricCurves, PointReader, Reporting
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.pai.record import JobRecord, LogLine

_MIN_PAUSE_S = 0.2  # between two redraws, however fast lines arrive
# The card displays the elapsed time, so it is redrawn without news, too. But a redraw loses the text selection.
_MAX_PAUSE_S = 5.0
_TAIL_LINES = 15
_LOG_LINES = 1000  # with the button pressed


class CardJob(Reporting, Protocol):
    """The methods of a job that its card uses; a `TrainingJob` is one."""

    def stop(self) -> None:
        """Requests the stop of the job."""
        ...


@dataclass
class _Row:
    """One of the last lines of the log. The next line of its instance replaces the state of a progress bar."""

    text: str
    replaced_by: str | None = None


class JupyterDisplay:
    """Draws the card with the last lines of the log; redraws at most a few times a second, and at the end.

    The card has buttons, if ipywidgets is installed and a press reaches the kernel. `instead_of` is a card of the
    same job, which this one replaces.
    """

    def __init__(
        self,
        *,
        job: CardJob | None = None,
        tail_lines: int = _TAIL_LINES,
        instead_of: JupyterDisplay | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.RLock()  # guards all fields below: `beat` is called from another thread
        self._clock = clock
        self._rows: deque[_Row] = deque(maxlen=_LOG_LINES)
        self._tail_lines = tail_lines
        self._is_log_expanded = False
        self._points = PointReader(job, clock)
        self._curves = MetricCurves()
        self._record: JobRecord | None = None
        self._output: CellOutput = instead_of._output if instead_of else CellOutput()
        self._buttons: JobButtons | None = instead_of._buttons if instead_of else None
        if self._buttons is not None:
            self._buttons.on_log = self.show_log
        elif job is not None:
            self._buttons = JobButtons(job.stop, self.show_log)
        self._drawn_at = float("-inf")
        self._has_changes = False

    def submitted(self, record: JobRecord) -> None:
        """Draws the card."""
        self._show(record)

    def changed(self, record: JobRecord) -> None:
        """Redraws the card with the new status."""
        self._show(record)

    def line(self, line: LogLine) -> None:
        """Adds a line; redraws if the last redraw is long enough ago."""
        with self._lock:
            self._add(line)
            self._has_changes = True
            if self._clock() - self._drawn_at >= _MIN_PAUSE_S:
                self._draw()

    def beat(self) -> None:
        """Redraws after changes, and from time to time for the elapsed time."""
        record = self._record
        if record is None or record.status.is_terminal:
            return
        points = self._points.read_new(record)  # before the lock is acquired: it makes a request
        with self._lock:
            # Again: the job may have finished during the request, and `ended` has drawn the last state.
            if self._record is None or self._record.status.is_terminal:
                return
            if points:
                self._curves.add(points)
                self._has_changes = True
            if self._buttons is not None:
                self._buttons.offer(self._clock())
            if self._has_changes or self._clock() - self._drawn_at >= _MAX_PAUSE_S:
                self._draw()

    def stop_beat(self) -> None:
        """Draws the last changes when the wait is over."""
        with self._lock:
            if self._has_changes:
                self._draw()

    def notice(self, text: str) -> None:
        """Adds a notice to the lines."""
        with self._lock:
            self._rows.append(_Row(f"! {text}"))
            self._draw()

    def detached(self, record: JobRecord) -> None:
        """Adds a notice that the job is still running."""
        self.notice("no longer updated; the job is still running")

    def ended(self, record: JobRecord) -> None:
        """Draws the card for the last time, with the complete curves of the metrics."""
        curves = self._points.read_all(record)  # before the lock is acquired: it makes a request
        with self._lock:
            self._curves = curves or self._curves
            self._record = record
            self._draw()
            if self._buttons is not None:
                self._buttons.ended()

    def show_log(self, is_expanded: bool) -> None:
        """Displays many lines of the log, or the last few."""
        with self._lock:
            self._is_log_expanded = is_expanded
            self._draw()

    def _show(self, record: JobRecord) -> None:
        points = self._points.read_new(record)  # before the lock is acquired: it makes a request
        with self._lock:
            self._curves.add(points)
            self._record = record
            self._draw()

    def _add(self, line: LogLine) -> None:
        has_several = self._record is not None and len(self._record.instances) > 1
        prefix = (
            f"{short_instance(self._record.training_job_id, line.instance)} | "
            if self._record and has_several
            else ""
        )
        row = _Row(prefix + visible_text(line.text), line.instance if line.text.endswith("\r") else None)
        # Only among the last rows: every instance has one state, and replaces it soon.
        latest = islice(reversed(self._rows), self._tail_lines)
        state = next((before for before in latest if before.replaced_by == line.instance), None)
        if state is None:
            self._rows.append(row)
        else:  # a line end alone makes the state a normal line
            state.text = row.text if visible_text(line.text) else state.text
            state.replaced_by = row.replaced_by

    def _draw(self) -> None:
        if self._record is None:
            return
        count = _LOG_LINES if self._is_log_expanded else self._tail_lines
        tail = [row.text for row in islice(reversed(self._rows), count)][::-1]
        self._output.show_html(card_html(self._record, tail=tail, curves=self._curves))
        self._drawn_at, self._has_changes = self._clock(), False
