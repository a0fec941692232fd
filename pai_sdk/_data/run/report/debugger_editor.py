"""Debugging by an editor, through debugpy. Shipped with jobs: standard library only, syntax of Python 3.8."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

HOST = "127.0.0.1"


class Editor:
    """The debugpy of this process, which listens on a port of this machine's loopback.

    Args:
        on_wait: called when the process begins to wait for an editor, with the deadline by `time.time()`.
        on_join: called when an editor has joined.
    """

    def __init__(self, on_wait: Callable[[float], None], on_join: Callable[[], None]) -> None:
        # Else it warns about the frozen modules of Python 3.11 in the job's log.
        os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        hook = sys.breakpointhook
        import debugpy  # not installed everywhere

        self._debugpy: Any = debugpy
        self._on_wait = on_wait
        self._on_join = on_join
        self._waiting = threading.Lock()
        self.port: int = debugpy.listen((HOST, 0))[1]
        # debugpy's own, in place since then, ignores PYTHONBREAKPOINT, and does not wait.
        sys.breakpointhook = hook

    def stop_at(self, frame: FrameType, timeout_s: float) -> None:
        """Waits for an editor until the deadline, and suspends the calling thread in a frame of the program."""
        debugpy = self._debugpy
        deadline = time.monotonic() + timeout_s
        # One wait at a time: only the newest can be cancelled.
        with self._waiting:
            if not debugpy.is_client_connected():
                self._wait(max(0.0, deadline - time.monotonic()))
        if debugpy.is_client_connected():
            self._on_join()
            # As `debugpy.breakpoint`, which would stop in this function.
            import pydevd  # type: ignore[import-not-found] # of debugpy

            pydevd.settrace(
                suspend=True,
                trace_only_current_thread=True,
                patch_multiprocessing=False,
                stop_at_frame=frame,
                notify_stdin=False,
            )

    def _wait(self, timeout_s: float) -> None:
        """Returns when an editor has joined, or after the timeout."""
        wait_for_client = self._debugpy.wait_for_client
        ended = threading.Event()

        def cancel() -> None:
            # The attribute is replaced when the wait begins, which may be after a short timeout.
            pause_s = timeout_s
            while not ended.wait(pause_s):
                with suppress(RuntimeError):
                    wait_for_client.cancel()
                pause_s = 0.05

        self._on_wait(time.time() + timeout_s)
        threading.Thread(target=cancel, name="pai-debugger-deadline", daemon=True).start()
        try:
            wait_for_client()
        finally:
            ended.set()
