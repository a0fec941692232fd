"""Many jobs while a program waits for them: one live table, or in a file a line for each end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from pai_sdk.base.kernel import in_notebook
from pai_sdk.display.base import duration_text, elapsed_s
from pai_sdk.display.card import DIM
from pai_sdk.display.curves import metrics_text
from pai_sdk.display.job_listing import job_table_html
from pai_sdk.display.lines import LiveRows
from pai_sdk.display.text_table import text_table
from pai_sdk.schemas.record import JobRecord

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "JobsDisplay",
    "NotebookJobs",
    "TableLayout",
    "TerminalJobs",
    "choose_jobs_display",
    "counts_text",
]

_COLUMNS = ("", "job", "name", "status", "time", "metrics")
_MARKS = {"success": "✔", "failure": "✘", "stopped": "■", "running": "●"}
_STYLES = {"success": "green", "failure": "red", "stopped": "yellow", "running": ""}
_PRIORITY = ("failure", "stopped", "running", "success")  # which to show where there is no room for all
_MAX_ROWS = 200  # in a notebook
_REDRAW_S = 0.25


@dataclass(frozen=True)
class TableLayout:
    """What the live table shows of its items: jobs, or the trials of a search.

    Attributes:
        columns: the titles; the first one is that of the mark.
        row: the cells of an item, without the mark.
        kind: `success`, `failure`, `stopped` or `running`; empty for an item of which nothing is known yet.
        key: the id of an item.
        counts: one line about all items.
        html: a table of items for a notebook.
    """

    columns: Sequence[str]
    row: Callable[[Any], list[object]]
    kind: Callable[[Any], str]
    key: Callable[[Any], str]
    counts: Callable[[Sequence[Any]], str]
    html: Callable[[Sequence[Any]], str]

    def marked_row(self, item: Any) -> list[object]:
        """The cells of an item, with its mark."""
        return [_MARKS.get(self.kind(item), " "), *self.row(item)]

    def style(self, item: Any) -> str:
        """The colour of an item in a terminal."""
        return _STYLES.get(self.kind(item), "")

    def is_finished(self, item: Any) -> bool:
        """Returns whether an item changes no more."""
        return self.kind(item) not in ("", "running")

    def select(self, items: Sequence[Any], most: int) -> list[Any]:
        """At most `most` items, in their order; failed ones go first, then stopped, running, succeeded ones."""
        if len(items) <= most:
            return [*items]
        by_kind = sorted(range(len(items)), key=lambda at: _PRIORITY.index(self.kind(items[at]) or "running"))
        return [items[at] for at in sorted(by_kind[: max(most, 0)])]


class JobsDisplay(Protocol):
    """Shows many jobs while a program waits for them."""

    def changed(self, records: Sequence[Any]) -> None:
        """The last snapshots of all jobs, in the order of the caller."""
        ...

    def notice(self, text: str) -> None:
        """A notice that does not end the wait."""
        ...

    def detached(self, count: int) -> None:
        """The wait has ended; this number of jobs is still running."""
        ...

    def ended(self) -> None:
        """The wait has ended."""
        ...


def choose_jobs_display(layout: TableLayout | None = None) -> JobsDisplay:
    """A table that is drawn again and again in a notebook and in a terminal, lines elsewhere.

    Args:
        layout: of its items; by default, they are jobs.
    """
    return NotebookJobs(layout=layout) if in_notebook() else TerminalJobs(layout=layout)


def counts_text(records: Sequence[JobRecord]) -> str:
    """The number of jobs in each status.

    Example:
        >>> done = JobRecord.model_validate({"TrainingJobId": "a", "Status": "Succeed"})
        >>> counts_text([done, done, JobRecord(training_job_id="b")])
        '3 jobs: 2 Succeed, 1 not seen yet'
    """
    counts = Counter(str(record.status) or "not seen yet" for record in records)
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
    """The table in a terminal. In a file, a line for each job that has ended.

    Args:
        stream: where to; stdout by default.
        clock: monotonic time in seconds.
        layout: of its items; by default, they are jobs.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        layout: TableLayout | None = None,
    ) -> None:
        self._layout = layout or _JOBS
        self._lock = threading.RLock()  # guards all that follows: `beat` comes from another thread
        self._clock = clock
        self._rows = LiveRows(stream)
        self._records: Sequence[Any] = ()
        self._reported: set[str] = set()
        self._drawn_at = float("-inf")
        self._is_finished = False

    def changed(self, records: Sequence[Any]) -> None:
        """Draw the table again, or write a line for each job that has ended since."""
        with self._lock:
            self._records = [*records]
            if not self._console.is_terminal:
                self._report_finished()
            elif self._clock() - self._drawn_at >= _REDRAW_S:
                self._draw()

    def beat(self) -> None:
        """Draw what is not drawn yet, and the time that passes."""
        with self._lock:
            if self._console.is_terminal and not self._is_finished:
                self._draw()

    def stop_beat(self) -> None:
        """Take the table away; the wait has ended."""
        with self._lock:
            self._is_finished = True
            self._rows.draw([])

    def notice(self, text: str) -> None:
        """Write a notice above the table."""
        self._print(f"! {text}", "yellow")

    def detached(self, count: int) -> None:
        """Show how many jobs are still running."""
        self.ended()
        self._print(f"● {_still_running(count)}", "yellow")

    def ended(self) -> None:
        """Leave the last state: the whole table if it fits on a screen, the counts in any case."""
        with self._lock:
            self._is_finished = True
            self._rows.draw([])
            if self._console.is_terminal:
                for line, style in self._table():
                    self._print(line, style)
            self._print(self._layout.counts(self._records), "bold")

    @property
    def _console(self) -> Console:
        return self._rows.console

    def _report_finished(self) -> None:
        layout = self._layout
        ended = [one for one in self._records if layout.is_finished(one) and layout.key(one) not in self._reported]
        for record in ended:
            self._reported.add(layout.key(record))
            mark, *cells = (str(cell) for cell in layout.marked_row(record))
            count = f"{len(self._reported)}/{len(self._records)}"
            self._print(" ".join([mark, count, *filter(None, cells)]), "")

    def _table(self) -> list[tuple[str, str]]:
        """The lines that fit on the screen, each with its style."""
        room = max(3, self._console.height - 4)
        layout = self._layout
        selected = layout.select(self._records, room)
        head, *lines = text_table(layout.columns, [layout.marked_row(record) for record in selected])
        rows = [(head, "dim")]
        rows += [(line, layout.style(record)) for line, record in zip(lines, selected, strict=True)]
        if len(selected) < len(self._records):
            rows.append((f"  … and {len(self._records) - len(selected)} more", "dim"))
        return rows

    def _draw(self) -> None:
        from rich.text import Text

        lines = [*self._table(), (self._layout.counts(self._records), "bold")]
        self._rows.draw([Text(line, style=style) for line, style in lines])
        self._drawn_at = self._clock()

    def _print(self, text: str, style: str) -> None:
        with self._lock:
            self._rows.print_text(text, style)


class NotebookJobs:
    """The table in a notebook, which is drawn again in its place.

    Args:
        clock: monotonic time in seconds.
        layout: of its items; by default, they are jobs.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, layout: TableLayout | None = None) -> None:
        self._layout = layout or _JOBS
        self._lock = threading.RLock()  # guards all that follows: `beat` comes from another thread
        self._clock = clock
        self._records: Sequence[Any] = ()
        self._notices: list[str] = []
        self._handle: Any = None  # IPython's DisplayHandle, which has no types
        self._drawn_at = float("-inf")

    def changed(self, records: Sequence[Any]) -> None:
        """Draw the table again, if the last time is long enough ago."""
        with self._lock:
            self._records = [*records]
            if self._clock() - self._drawn_at >= _REDRAW_S:
                self._draw()

    def beat(self) -> None:
        """Draw what is not drawn yet."""
        with self._lock:
            if self._records:
                self._draw()

    def stop_beat(self) -> None:
        """Draw the last state; the wait has ended."""
        self.beat()

    def notice(self, text: str) -> None:
        """Put a notice below the table, in place of an earlier one with the same words before its colon."""
        about = text.partition(":")[0]
        with self._lock:
            self._notices = [*(one for one in self._notices if one.partition(":")[0] != about), text]
            self._draw()

    def detached(self, count: int) -> None:
        """Keep the table, and show how many jobs are still running."""
        self.notice(f"no longer watched; {_still_running(count)}")

    def ended(self) -> None:
        """Draw the last state."""
        self.beat()

    def html(self) -> str:
        """The table as HTML."""
        selected = self._layout.select(self._records, _MAX_ROWS)
        more = [f"{len(self._records) - len(selected)} not shown"] if len(selected) < len(self._records) else []
        below = escape(" · ".join([self._layout.counts(self._records), *more, *self._notices]))
        table = self._layout.html(selected)
        below = f'<div style="{DIM};font-size:13px">{below}</div>'
        return f'<div style="max-height:30em;overflow:auto">{table}</div>{below}'

    def _draw(self) -> None:
        from IPython.display import HTML, display

        html = HTML(self.html())  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display(html, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(html)
        self._drawn_at = self._clock()
