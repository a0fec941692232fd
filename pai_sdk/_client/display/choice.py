"""Chooses the display of a job: in a notebook, a terminal or a file; its heartbeat while the job is silent."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pai_sdk._client.display.base import Display
from pai_sdk._client.display.jupyter import CardJob, JupyterDisplay
from pai_sdk._client.display.terminal import TerminalDisplay
from pai_sdk._core.kernel import in_notebook


def notebook_cell() -> int | None:
    """Returns the number of the running cell; None outside of a notebook."""
    return int(sys.modules["IPython"].get_ipython().execution_count) if in_notebook() else None


def choose_display(*, job: CardJob | None = None, instead_of: Display | None = None) -> Display:
    """Returns a card in a notebook, lines in a terminal, a script or a pipe."""
    if in_notebook():
        previous = instead_of if isinstance(instead_of, JupyterDisplay) else None
        return JupyterDisplay(job=job, instead_of=previous)
    return TerminalDisplay(job=job)


def prints_lines(display: Display) -> bool:
    """Returns True for a display that prints the log above the error of a failed job."""
    return isinstance(display, TerminalDisplay)


_BEAT_INTERVAL_S = 0.5
_JOIN_TIMEOUT_S = 1.0  # the last beat may be blocked by the terminal, which must not delay the end of the wait


@contextmanager
def heartbeat(display: object, *, beat_s: float = _BEAT_INTERVAL_S) -> Iterator[None]:
    """Calls `beat` of the display, if it has one, from a thread during its block, and at the end `stop_beat`."""
    beat, stop_beat = getattr(display, "beat", None), getattr(display, "stop_beat", None)
    if beat is None or stop_beat is None:
        yield
        return
    stopped = threading.Event()

    def live() -> None:
        while not stopped.wait(beat_s):
            try:
                beat()
            except (OSError, ValueError):  # the stream is closed; the next line of the log reports it
                return

    # In a copy of this context: the kernel finds the cell to update in it.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(live,), name="pai-display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()  # before `stop_beat`, or a late beat would draw again what it removes
        thread.join(_JOIN_TIMEOUT_S)
        stop_beat()
