"""Heartbeat of a display: while a job sends nothing, the elapsed time still advances."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_BEAT_INTERVAL_S = 0.5
_JOIN_TIMEOUT_S = 1.0  # a blocked terminal must not delay the end of the wait


@contextmanager
def heartbeat(display: object, *, beat_s: float = _BEAT_INTERVAL_S) -> Iterator[None]:
    """Within it, a display that has a `beat` has it called every now and then, from a thread; at the end `stop_beat`.

    Example:
        >>> from pai_sdk.display.base import Silent
        >>> with heartbeat(Silent()):  # has no heartbeat, and is not changed
        ...     pass
    """
    beat, stop_beat = getattr(display, "beat", None), getattr(display, "rest", None)
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

    # In a copy of this context: it tells a notebook which cell to update.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(live,), name="pai-display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(_JOIN_TIMEOUT_S)
        stop_beat()
