"""Wakes the supervisor: a child that has ended, a signal, a byte in its control pipe. Standard library only."""

from __future__ import annotations

import os
import select
import signal

__all__ = ["Alarm"]


class Alarm:
    """Takes over the signals of this process; `wait` returns as soon as something has happened.

    Attributes:
        got_signal: SIGTERM or SIGINT has come.

    Example:
        >>> Alarm(journal.open_control()).wait(1.0)  # doctest: +SKIP
    """

    def __init__(self, control: int) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._wakeups = [reader, control]
        self.got_signal = False

    def wait(self, longest_s: float) -> None:
        """Sleep until something happens, at most this many seconds."""
        for ready in select.select(self._wakeups, [], [], max(0.0, longest_s))[0]:
            os.read(ready, 4096)

    def _on_signal(self, *_: object) -> None:
        self.got_signal = True
