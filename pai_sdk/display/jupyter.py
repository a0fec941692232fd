"""A job in a notebook: one card that updates in place, instead of a growing pile of output."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pai_sdk.display.base import short_instance, visible_text
from pai_sdk.display.card import card_html
from pai_sdk.display.curves import Curve
from pai_sdk.schemas.record import JobRecord, LogLine

_SHORTEST_PAUSE_S = 0.2  # a browser need not redraw more often, however fast lines come
# Nor less often: the card shows the time. A redraw loses the text that a user has selected.
_LONGEST_PAUSE_S = 5.0


@dataclass
class _Row:
    """A line of the log's end. The next line of its instance takes the place of a progress bar's state."""

    text: str
    drawn_over_by: str | None = None


class JupyterDisplay:
    """Draws the card with the log's last lines; redraws at most a few times a second, and at the end.

    Args:
        tail_lines: how many of the log's last lines it shows.
        instead_of: a card of the same job, in whose place this one is drawn.
        clock: tells when it is time to redraw.
    """

    def __init__(
        self,
        *,
        tail_lines: int = 15,
        instead_of: JupyterDisplay | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.RLock()  # guards all that follows: `beat` comes from another thread
        self._clock = clock
        self._tail: deque[_Row] = deque(maxlen=tail_lines)
        self._curves: dict[str, Curve] = {}
        self._record: JobRecord | None = None
        # IPython's DisplayHandle, which has no types
        self._handle: Any = instead_of._handle if instead_of else None
        self._drawn_at = float("-inf")
        self._has_news = False

    def submitted(self, record: JobRecord) -> None:
        """Draw the card."""
        self._show(record)

    def changed(self, record: JobRecord) -> None:
        """Redraw with the new status."""
        self._show(record)

    def line(self, line: LogLine) -> None:
        """Add a line; redraw if the last time is long enough ago."""
        with self._lock:
            self._add(line)
            self._has_news = True
            if self._clock() - self._drawn_at >= _SHORTEST_PAUSE_S:
                self._draw()

    def beat(self) -> None:
        """Draw what is not drawn yet, and from time to time the elapsed time."""
        with self._lock:
            if self._record is None or self._record.status.is_terminal:
                return
            if self._has_news or self._clock() - self._drawn_at >= _LONGEST_PAUSE_S:
                self._draw()

    def rest(self) -> None:
        """Draw what is not drawn yet; the wait has ended."""
        with self._lock:
            if self._has_news:
                self._draw()

    def notice(self, text: str) -> None:
        """Put a notice among the lines."""
        with self._lock:
            self._tail.append(_Row(f"! {text}"))
            self._draw()

    def detached(self, record: JobRecord) -> None:
        """Keep the card, and show that the job goes on."""
        self.notice("no longer watched; the job goes on")

    def ended(self, record: JobRecord) -> None:
        """Draw the card for the last time."""
        self._show(record)

    def _show(self, record: JobRecord) -> None:
        with self._lock:
            self._take(record)
            self._draw()

    def _add(self, line: LogLine) -> None:
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

    def _take(self, record: JobRecord) -> None:
        self._record = record
        for point in record.latest_metrics:
            if point.name:
                self._curves.setdefault(point.name, Curve()).add(point)

    def _draw(self) -> None:
        if self._record is None:
            return
        from IPython.display import HTML, display

        html = HTML(card_html(self._record, tail=[row.text for row in self._tail], curves=self._curves))  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display(html, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(html)
        self._drawn_at, self._has_news = self._clock(), False
