"""The card of a job in a cell of a notebook, which a thread updates in the background."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from pai_sdk._client.display.base import Display, short_instance
from pai_sdk._client.display.card import card_html
from pai_sdk._client.display.choice import choose_display, notebook_cell
from pai_sdk._client.display.curves import MetricCurves, curves_of
from pai_sdk._client.display.jupyter import CardJob
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.watch import JobHandle
from pai_sdk._client.job.waiting import Waiting
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.pai.record import JobRecord, LogLine
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)


class _ClosedError(Exception):
    """Raised when the card was closed: another display has replaced it."""


def _forward(name: str) -> Callable[[LiveCard, Any], None]:
    def show(card: LiveCard, argument: Any) -> None:
        card.show_on(name, argument)

    return show


class LiveCard:
    """Follows one job in a thread and displays it, until the job has finished or `close` is called.

        following -> finished: the job has finished, or cannot be followed
                  -> closed: `close` was called; the thread exits with the next update, and displays nothing more

    `_lock` is held while the display is called, so the display is not used any more after `close` has returned.
    The display acquires its own lock within it, never the other way round.
    """

    def __init__(self, job: JobHandle, display: Display, policy: FollowPolicy | None = None) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._display = display
        self._waiting = Waiting(job, self, policy or FollowPolicy())
        # In a copy of this context: the kernel finds the cell to update in it.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._follow,), name=f"pai-card-{job.id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops displaying, without waiting for the thread."""
        # Under the lock: a draw that is under way is finished before another display uses the same place.
        with self._lock:
            self._is_closed = True

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread; returns whether it has exited."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _follow(self) -> None:
        try:
            self.ended(self._waiting.wait(None, show_logs=True, stops=False))
        except _ClosedError:
            pass
        except PaiError as error:
            with suppress(_ClosedError):
                self.notice(f"no longer updated: {error}")
        except Exception:  # a failing display must not print a traceback into other cells
            logger.debug("a card is no longer updated", exc_info=True)

    def show_on(self, name: str, argument: Any) -> None:
        with self._lock:
            if self._is_closed:
                raise _ClosedError  # ends the wait in the thread of the card
            getattr(self._display, name)(argument)

    # ---- as the display of the wait: every call is forwarded, unless the card was closed

    submitted = _forward("submitted")
    changed = _forward("changed")
    line = _forward("line")
    notice = _forward("notice")
    detached = _forward("detached")
    ended = _forward("ended")

    def beat(self) -> None:
        """Forwards the call to a display that has a heartbeat."""
        self._beat("beat")

    def stop_beat(self) -> None:
        """Forwards the call to a display that has a heartbeat."""
        self._beat("stop_beat")

    def _beat(self, name: str) -> None:
        with self._lock:
            method = getattr(self._display, name, None)
            if method is not None and not self._is_closed:
                method()


_CARD_LINES = 15


class DisplayedJob(JobHandle, CardJob, Protocol):
    """The parts of a `TrainingJob` that its card uses."""

    @property
    def record(self) -> JobRecord: ...

    def refresh(self) -> JobRecord: ...

    def logs(self, *, tail: int | None = None) -> Iterable[LogLine]: ...


class NotebookCard:
    """The display of one job in the cell that runs, where one card is enough.

    Attributes:
        cell: the number of the cell that already displays the job; None outside of a notebook.
        live: what updates the card in the background.
    """

    def __init__(self) -> None:
        self.cell: int | None = None
        self.live: LiveCard | None = None
        self._display: Display | None = None

    @property
    def is_in_cell(self) -> bool:
        """Returns whether the running cell already displays the job."""
        return self.cell is not None and self.cell == notebook_cell()

    def render_in(self, display: Display) -> None:
        """Records the display of the job in this cell."""
        self.cell = notebook_cell()
        self._display = display if self.cell is not None else None

    def new_display(self, job: DisplayedJob) -> Display:
        """Returns a display for a wait, in place of a card that this cell has already."""
        previous = self._display if self.is_in_cell else None
        display = choose_display(job=job, instead_of=previous)
        if previous is not None:
            self._close_live()  # the new display draws in its place
        self.render_in(display)
        return display

    def keep_live(self, job: DisplayedJob) -> None:
        """Updates the card in this cell in the background; outside of a notebook nothing happens."""
        if self._display is not None and not (job.last_record and job.last_record.status.is_terminal):
            self._close_live()
            self.live = LiveCard(job, self._display)

    def display(self, job: DisplayedJob) -> None:
        """Displays a running job by a card that updates; NotImplementedError where IPython shows another form."""
        if notebook_cell() is None:
            raise NotImplementedError  # IPython takes the other representations
        if self.is_in_cell:
            return  # `estimator.fit()` as the last value of its cell
        record = job.refresh() if not job.record.status.is_terminal else job.record
        if record.status.is_terminal:
            raise NotImplementedError
        display = choose_display(job=job)
        self.render_in(display)
        display.submitted(record)
        self.keep_live(job)

    def html(self, job: DisplayedJob) -> str | None:
        """Returns the card as it is now; None if this cell already displays the job."""
        if self.is_in_cell:
            return None  # `estimator.fit()` as the last value of its cell
        curves = MetricCurves()
        with suppress(PaiError):  # the card is worth more than its curves
            # A list of jobs has no last values, so they are requested for the job that is displayed.
            if job.record.latest_metrics or job.refresh().latest_metrics:
                curves = curves_of(job.metrics())
        return card_html(job.record, tail=_last_lines(job), curves=curves)

    def _close_live(self) -> None:
        if self.live is not None:
            self.live.close()
            self.live = None


def _last_lines(job: DisplayedJob) -> Sequence[str]:
    """Returns the last lines of the log of a finished job."""
    if not job.record.status.is_terminal:
        return ()
    lines: deque[str] = deque(maxlen=_CARD_LINES)
    has_many = len(job.record.instances) > 1
    with suppress(PaiError):  # the card is worth more than its log
        for line in job.logs(tail=_CARD_LINES):
            prefix = f"{short_instance(job.id, line.instance)} | " if has_many else ""
            lines.append(prefix + visible_text(line.text))
    return lines
