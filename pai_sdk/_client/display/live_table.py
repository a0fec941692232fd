"""Displays many jobs while a program waits for them: a live table, or in a file a line for each finished job."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from pai_sdk._client.display.base import CellOutput, duration_text, elapsed_s
from pai_sdk._client.display.card import DIM
from pai_sdk._client.display.curves import metrics_text
from pai_sdk._client.display.job_listing import job_table_html
from pai_sdk._client.display.lines import LiveRows
from pai_sdk._core.kernel import in_notebook
from pai_sdk._core.tables.table import Table, text_columns
from pai_sdk._core.tables.terminal import FittedTable
from pai_sdk._wire.pai.record import JobRecord

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_COLUMNS = ("", "job", "name", "status", "time", "metrics")
_MARKS = {"success": "✔", "failure": "✘", "stopped": "■", "running": "●"}
_STYLES = {"success": "green", "failure": "red", "stopped": "yellow", "running": ""}
_PRIORITY = ("failure", "stopped", "running", "success")  # of the rows, if the screen has no room for all
_MAX_ROWS = 200  # in a notebook
_REDRAW_S = 0.25


@dataclass(frozen=True)
class TableLayout:
    """The columns and cells of the live table, whose items are jobs or the trials of a search."""

    columns: Sequence[str]  # the titles; the first one is that of the mark
    row: Callable[[Any], list[object]]  # returns the cells of an item, without the mark
    kind: Callable[[Any], str]  # returns `success`, `failure`, `stopped` or `running`; empty without a status
    key: Callable[[Any], str]  # returns the id of an item
    counts: Callable[[Sequence[Any]], str]  # returns one line about all items
    html: Callable[[Sequence[Any]], str]  # renders a table for a notebook

    def marked_row(self, item: Any) -> list[object]:
        """Returns the cells of an item, with its mark."""
        return [_MARKS.get(self.kind(item), " "), *self.row(item)]

    def table(self, items: Sequence[Any]) -> Table:
        """Returns the table for a terminal."""
        rows, styles = [*map(self.marked_row, items)], [_STYLES.get(self.kind(item), "") for item in items]
        return Table(text_columns(self.columns), rows, row_styles=styles, title_style="dim")

    def is_finished(self, item: Any) -> bool:
        """Returns whether an item changes no more."""
        return self.kind(item) not in ("", "running")

    def select(self, items: Sequence[Any], limit: int) -> list[Any]:
        """Returns at most `limit` items in their order; failed ones are preferred, then stopped, running ones."""
        if len(items) <= limit:
            return [*items]
        by_kind = sorted(range(len(items)), key=lambda at: _PRIORITY.index(self.kind(items[at]) or "running"))
        return [items[at] for at in sorted(by_kind[: max(limit, 0)])]


class JobsDisplay(Protocol):
    """Displays many jobs while a program waits for them."""

    def changed(self, records: Sequence[Any]) -> None:
        """Called with the last snapshots of all jobs, in the order of the caller."""
        ...

    def notice(self, text: str) -> None:
        """Called with a notice that does not end the wait."""
        ...

    def detached(self, count: int) -> None:
        """Called when the wait is over; this number of jobs is still running."""
        ...

    def ended(self) -> None:
        """Called when the wait is over."""
        ...


def choose_jobs_display(layout: TableLayout | None = None) -> JobsDisplay:
    """Creates a table that is redrawn in a notebook or a terminal, and lines elsewhere; by default of jobs."""
    return NotebookJobs(layout=layout) if in_notebook() else TerminalJobs(layout=layout)


def counts_text(records: Sequence[JobRecord]) -> str:
    """Returns the number of jobs in each status."""
    counts = Counter(str(record.status) or "unknown" for record in records)
    summary = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    return f"{len(records)} {'job' if len(records) == 1 else 'jobs'}: {summary}"


def _still_running(count: int) -> str:
    return f"{count} {'job is' if count == 1 else 'jobs are'} still running"


def _row(record: JobRecord) -> list[object]:
    seconds = elapsed_s(record)
    return [
        record.training_job_id,
        record.training_job_name or "",
        str(record.status) or "…",
        duration_text(seconds) if seconds is not None else "",
        metrics_text(record.latest_metrics, {}, limit=3),
    ]


def _kind(record: JobRecord) -> str:
    return record.status.kind if record.status else ""


_JOBS = TableLayout(
    _COLUMNS, _row, _kind, lambda record: record.training_job_id, counts_text, lambda jobs: job_table_html(jobs)
)


class TerminalJobs:
    """The table in a terminal; in a file, a line for each finished job."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        layout: TableLayout | None = None,
    ) -> None:
        self._layout = layout or _JOBS
        # Guards all fields below: `beat` is called from another thread. Reentrant, because `ended` calls `_print`.
        self._lock = threading.RLock()
        self._clock = clock
        self._rows = LiveRows(stream)
        self._records: Sequence[Any] = ()
        self._reported: set[str] = set()
        self._drawn_at = float("-inf")
        self._is_finished = False

    def changed(self, records: Sequence[Any]) -> None:
        """Redraws the table, or writes a line for each job that has finished since the last call."""
        with self._lock:
            self._records = [*records]
            if not self._console.is_terminal:
                self._report_finished()
            elif self._clock() - self._drawn_at >= _REDRAW_S:
                self._draw()

    def beat(self) -> None:
        """Redraws the table with the elapsed times."""
        with self._lock:
            if self._console.is_terminal and not self._is_finished:
                self._draw()

    def stop_beat(self) -> None:
        """Removes the table when the wait is over."""
        with self._lock:
            self._is_finished = True
            self._rows.draw([])

    def notice(self, text: str) -> None:
        """Writes a notice above the table."""
        self._print(f"! {text}", "yellow")

    def detached(self, count: int) -> None:
        """Writes the number of jobs that are still running."""
        self.ended()
        self._print(f"● {_still_running(count)}", "yellow")

    def ended(self) -> None:
        """Writes the last state: the table if it fits on a screen, the counts in any case."""
        with self._lock:
            self._is_finished = True  # a late `beat` of the other thread must not draw the rows again
            self._rows.draw([])
            if self._console.is_terminal:
                for line in self._lines():
                    self._rows.print(line)
            self._print(self._layout.counts(self._records), "bold")

    @property
    def _console(self) -> Console:
        return self._rows.console

    def _report_finished(self) -> None:
        layout = self._layout
        newly_finished = [
            item for item in self._records if layout.is_finished(item) and layout.key(item) not in self._reported
        ]
        for record in newly_finished:
            self._reported.add(layout.key(record))
            mark, *cells = (str(cell) for cell in layout.marked_row(record))
            count = f"{len(self._reported)}/{len(self._records)}"
            self._print(" ".join([mark, count, *filter(None, cells)]), "")

    def _lines(self) -> list[Text]:
        """Returns the table with the rows that fit on the screen."""
        selected = self._layout.select(self._records, max(3, self._console.height - 4))
        table = self._layout.table(selected)
        if hidden := len(self._records) - len(selected):
            table = replace(table, notes={len(selected): f"  … and {hidden} more"})
        return [*FittedTable(table).lines()]

    def _draw(self) -> None:
        from rich.text import Text

        self._rows.draw([*self._lines(), Text(self._layout.counts(self._records), style="bold")])
        self._drawn_at = self._clock()

    def _print(self, text: str, style: str) -> None:
        with self._lock:
            self._rows.print_text(text, style)


class NotebookJobs:
    """The table in a notebook, which is redrawn in place."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, layout: TableLayout | None = None) -> None:
        self._layout = layout or _JOBS
        self._lock = threading.RLock()  # guards all that follows: `beat` comes from another thread
        self._clock = clock
        self._records: Sequence[Any] = ()
        self._notices: list[str] = []
        self._output = CellOutput()
        self._drawn_at = float("-inf")

    def changed(self, records: Sequence[Any]) -> None:
        """Redraws the table, if the last redraw is long enough ago."""
        with self._lock:
            self._records = [*records]
            if self._clock() - self._drawn_at >= _REDRAW_S:
                self._draw()

    def beat(self) -> None:
        """Redraws the table."""
        with self._lock:
            if self._records:
                self._draw()

    def stop_beat(self) -> None:
        """Draws the last state; the wait has ended."""
        self.beat()

    def notice(self, text: str) -> None:
        """Adds a notice below the table; it replaces one with the same text before its colon."""
        about = text.partition(":")[0]
        with self._lock:
            self._notices = [*(notice for notice in self._notices if notice.partition(":")[0] != about), text]
            self._draw()

    def detached(self, count: int) -> None:
        """Adds a notice with the number of jobs that are still running."""
        self.notice(f"no longer updated; {_still_running(count)}")

    def ended(self) -> None:
        """Draws the last state."""
        self.beat()

    def html(self) -> str:
        """Returns the table as HTML."""
        selected = self._layout.select(self._records, _MAX_ROWS)
        more = [f"{len(self._records) - len(selected)} not shown"] if len(selected) < len(self._records) else []
        below = escape(" · ".join([self._layout.counts(self._records), *more, *self._notices]))
        table = self._layout.html(selected)
        below = f'<div style="{DIM};font-size:13px">{below}</div>'
        return f'<div style="max-height:30em;overflow:auto">{table}</div>{below}'

    def _draw(self) -> None:
        self._output.show_html(self.html())
        self._drawn_at = self._clock()
