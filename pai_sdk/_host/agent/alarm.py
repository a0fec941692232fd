"""Wakes the supervisor: a child that has ended, a signal, a byte in its control pipe. Standard library only."""

from __future__ import annotations

import os
import select
import signal

__all__ = ["Alarm"]


class Alarm:
    """Handles the signals of this process; `wait` returns as soon as something has happened."""

    def __init__(self, control: int) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        # A signal handler writes to the pipe, and must never block; a full pipe wakes `select` as well as one
        # byte.
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        # Without a handler the default of SIGCHLD, to ignore it, writes no wake-up byte.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._wakeups = [reader, control]
        # SIGTERM or SIGINT.
        self.got_signal = False

    def wait(self, timeout_s: float) -> None:
        """Sleeps until something happens, at most `timeout_s` seconds."""
        for ready in select.select(self._wakeups, [], [], max(0.0, timeout_s))[0]:
            os.read(ready, 4096)

    def _on_signal(self, *_: object) -> None:
        self.got_signal = True
