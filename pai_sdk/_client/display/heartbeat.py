"""The heartbeat of a display: the elapsed time advances while a job prints nothing."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
