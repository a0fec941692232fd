"""A job in a notebook: one card that updates in place, instead of a growing pile of output."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from pai_sdk.display.base import short_instance, visible_text
from pai_sdk.display.card import card_html
from pai_sdk.display.curves import MetricCurve, curves_of
from pai_sdk.errors import PaiError
from pai_sdk.schemas.record import JobRecord, LogLine, MetricPoint

__all__ = ["JobButtons", "job_buttons"]

_SHORTEST_PAUSE_S = 0.2  # a browser need not redraw more often, however fast lines come
# Nor less often: the card shows the time. A redraw loses the text that a user has selected.
_LONGEST_PAUSE_S = 5.0
_TAIL_LINES = 15
_LOG_LINES = 1000  # with the button pressed


class ShownJob(Protocol):
    """The job that a card shows, as far as the card uses it; a `TrainingJob` is one."""

    def stop(self) -> None:
        """Request its end."""
        ...

    def metrics(self) -> Iterable[MetricPoint]:
        """All values of its metrics, oldest first."""
        ...


@dataclass
class _Row:
    """A line of the log's end. The next line of its instance takes the place of a progress bar's state."""

    text: str
    drawn_over_by: str | None = None


class JupyterDisplay:
    """Draws the card with the log's last lines; redraws at most a few times a second, and at the end.

    Below the card are buttons, where ipywidgets is installed and the kernel supports them.

    Args:
        job: gives the whole course of the metrics, and is stopped by the button.
        is_waited_for: the kernel is busy until the job ends.
        tail_lines: how many of the log's last lines it shows.
        instead_of: a card of the same job, in whose place this one is drawn.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        *,
        job: ShownJob | None = None,
        is_waited_for: bool = True,
        tail_lines: int = _TAIL_LINES,
        instead_of: JupyterDisplay | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.RLock()  # guards all that follows: `beat` comes from another thread
        self._clock = clock
        self._job = job
        self._is_waited_for = is_waited_for
        self._rows: deque[_Row] = deque(maxlen=_LOG_LINES)
        self._tail_lines = tail_lines
        self._shows_log = False
        self._curves: dict[str, MetricCurve] = {}
        self._record: JobRecord | None = None
        # IPython's DisplayHandle, which has no types
        self._handle: Any = instead_of._handle if instead_of else None
        self._buttons: JobButtons | None = instead_of._buttons if instead_of else None
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
            self._rows.append(_Row(f"! {text}"))
            self._draw()

    def detached(self, record: JobRecord) -> None:
        """Keep the card, and show that the job is still running."""
        self.notice("no longer watched; the job is still running")

    def ended(self, record: JobRecord) -> None:
        """Draw the card for the last time, with the whole course of the metrics."""
        curves = self._whole_curves(record)  # before the lock: it asks the service
        with self._lock:
            self._curves |= curves
            self._show(record)
            if self._buttons is not None:
                self._buttons.ended()

    def show_log(self, is_wanted: bool) -> None:
        """Show many lines of the log, or the last few."""
        with self._lock:
            self._shows_log = is_wanted
            self._draw()

    def _show(self, record: JobRecord) -> None:
        # A job that has run for a while was first seen now: what it has reported before is asked for.
        is_late = self._record is None and record.latest_metrics and not record.status.is_terminal
        curves = self._whole_curves(record) if is_late else {}
        with self._lock:
            self._curves = {**curves, **self._curves}
            self._take(record)
            self._draw()

    def _whole_curves(self, record: JobRecord) -> dict[str, MetricCurve]:
        if self._job is None or not record.latest_metrics:
            return {}
        with suppress(PaiError):  # the card is worth more than its curves
            return curves_of(self._job.metrics())
        return {}

    def _add(self, line: LogLine) -> None:
        many = self._record is not None and len(self._record.instances) > 1
        prefix = (
            f"{short_instance(self._record.training_job_id, line.instance)} | " if self._record and many else ""
        )
        row = _Row(prefix + visible_text(line.text), line.instance if line.text.endswith("\r") else None)
        # Only among the last ones: every instance has one state, and draws it over soon.
        latest = islice(reversed(self._rows), self._tail_lines)
        state = next((before for before in latest if before.drawn_over_by == line.instance), None)
        if state is None:
            self._rows.append(row)
        else:  # in its place; a line end alone makes the state stay
            state.text = row.text if visible_text(line.text) else state.text
            state.drawn_over_by = row.drawn_over_by

    def _take(self, record: JobRecord) -> None:
        self._record = record
        for point in record.latest_metrics:
            if point.name:
                self._curves.setdefault(point.name, MetricCurve()).add(point)

    def _draw(self) -> None:
        if self._record is None:
            return
        from IPython.display import HTML, display

        count = _LOG_LINES if self._shows_log else self._tail_lines
        tail = [row.text for row in islice(reversed(self._rows), count)][::-1]
        html = HTML(card_html(self._record, tail=tail, curves=self._curves))  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display(html, display_id=True)  # type: ignore[no-untyped-call]
            if self._job is not None and not self._record.status.is_terminal:
                self._buttons = job_buttons(self._job.stop, is_waited_for=self._is_waited_for)
        else:
            self._handle.update(html)
        if self._buttons is not None:
            self._buttons.on_log = self.show_log
        self._drawn_at, self._has_news = self._clock(), False


_FIRST_KERNEL = 7  # of ipykernel: from it on, a busy kernel notices clicks, in a thread of their own


class JobButtons:
    """The buttons of one card.

    Args:
        stop: requests the end of the job.

    Attributes:
        on_log: called with whether many lines of the log are wanted.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self.on_log: Callable[[bool], None] = lambda is_wanted: None
        self._stop_job = stop
        small = ipywidgets.Layout(width="auto", height="26px")
        self._stop: Any = ipywidgets.Button(description="Stop", tooltip="Request the end of the job", layout=small)
        self._log: Any = ipywidgets.ToggleButton(description="Log", tooltip="Show more of the log", layout=small)
        self._said: Any = ipywidgets.Label()
        self._stop.on_click(self._on_stop)
        self._log.observe(lambda change: self.on_log(bool(change["new"])), names="value")
        self.box: Any = ipywidgets.HBox([self._stop, self._log, self._said])

    def ended(self) -> None:
        """The job has ended: there is nothing to stop."""
        self._stop.layout.display = "none"
        self._said.value = ""

    def _on_stop(self, _: object) -> None:
        self._stop.disabled = True
        self._said.value = "stopping…"
        # In a thread: other cells can run until the service responds.
        threading.Thread(target=self._request_stop, name="pai-stop", daemon=True).start()

    def _request_stop(self) -> None:
        try:
            self._stop_job()
        except PaiError as error:
            self._said.value = str(error)
            self._stop.disabled = False


def job_buttons(stop: Callable[[], None], *, is_waited_for: bool) -> JobButtons | None:
    """Show buttons; None where ipywidgets is missing, or where the kernel would not notice a click.

    Args:
        stop: requests the end of the job.
        is_waited_for: the kernel is busy until the job ends.
    """
    if importlib.util.find_spec("ipywidgets") is None:
        return None
    from importlib.metadata import version

    from IPython.display import display

    if is_waited_for and int(version("ipykernel").partition(".")[0]) < _FIRST_KERNEL:
        return None
    buttons = JobButtons(stop)
    display(buttons.box)  # type: ignore[no-untyped-call]
    return buttons
