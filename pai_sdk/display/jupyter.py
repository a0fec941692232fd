"""A job in a notebook: one card that updates in place, instead of a growing pile of output."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from pai_sdk.display.base import short_instance, visible_text
from pai_sdk.display.card import card_html
from pai_sdk.job.record import JobRecord, LogLine

__all__ = ["JupyterDisplay"]

_SHORTEST_PAUSE_S = 0.2  # a browser need not redraw more often, however fast lines come
_MOST_POINTS = 200


@dataclass
class _Row:
    """A line of the log's end. The next line of its instance takes the place of a progress bar's state."""

    text: str
    drawn_over_by: str | None = None


class JupyterDisplay:
    """Draws the card with the log's last lines; redraws at most a few times a second, and at the end."""

    def __init__(self, *, tail_lines: int = 15) -> None:
        self._tail: deque[_Row] = deque(maxlen=tail_lines)
        self._history: dict[str, list[float]] = {}
        self._record: JobRecord | None = None
        self._handle: Any = None  # IPython's DisplayHandle, which has no types
        self._drawn = 0.0

    def submitted(self, record: JobRecord) -> None:
        """Draw the card."""
        self._take(record)
        self._draw()

    def changed(self, record: JobRecord) -> None:
        """Redraw with the new status."""
        self._take(record)
        self._draw()

    def line(self, line: LogLine) -> None:
        """Add a line; redraw if the last time is long enough ago."""
        many = self._record is not None and len(self._record.instances) > 1
        prefix = (
            f"{short_instance(self._record.training_job_id, line.instance)} | " if self._record and many else ""
        )
        row = _Row(prefix + visible_text(line.text), line.instance if line.text.endswith("\r") else None)
        state = next((before for before in self._tail if before.drawn_over_by == line.instance), None)
        if state is None:
            self._tail.append(row)
        else:  # in its place; a line end alone makes the state stay
            state.text = row.text if visible_text(line.text) else state.text
            state.drawn_over_by = row.drawn_over_by
        if time.monotonic() - self._drawn >= _SHORTEST_PAUSE_S:
            self._draw()

    def notice(self, text: str) -> None:
        """Put a notice among the lines."""
        self._tail.append(_Row(f"! {text}"))
        self._draw()

    def detached(self, record: JobRecord) -> None:
        """Leave the card as it is, and say that the job goes on."""
        self.notice("no longer watched; the job goes on")

    def ended(self, record: JobRecord) -> None:
        """Draw the card for the last time."""
        self._take(record)
        self._draw()

    def _take(self, record: JobRecord) -> None:
        self._record = record
        for point in record.latest_metrics:
            if point.name and point.value is not None:
                values = self._history.setdefault(point.name, [])
                if not values or values[-1] != point.value:
                    values.append(point.value)
                    del values[:-_MOST_POINTS]

    def _draw(self) -> None:
        if self._record is None:
            return
        from IPython.display import HTML, display

        html = HTML(card_html(self._record, tail=[row.text for row in self._tail], history=self._history))  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display(html, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(html)
        self._drawn = time.monotonic()
