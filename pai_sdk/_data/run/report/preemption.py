"""The notice that a job is about to be stopped. Shipped with jobs: standard library only, syntax of Python 3.8."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from types import FrameType

from pai_sdk._data.run.report.context import Context


@dataclass(frozen=True)
class PreemptionInfo:
    """The notice that the job is about to be stopped.

    Attributes:
        time: of its arrival, in seconds since 1970.
    """

    time: float


_noticed: PreemptionInfo | None = None
_watching_pid: int | None = None  # a forked child has another pid, and watches for itself


def get_preemption_info() -> PreemptionInfo | None:
    """Returns the notice that this job ends, because its instance is reclaimed or it is stopped; None before it.

    The notice is SIGTERM. From the first call on, the first SIGTERM does not end this process, so that the
    training can save a checkpoint and return; without that, it is killed after the grace period. A second one ends
    it. The first call has to be in the main thread. Outside a job it is always None, and signals are left alone.

    Example:
        >>> get_preemption_info() is None
        True
    """
    global _watching_pid
    # Python installs signal handlers in the main thread only.
    if (
        _watching_pid != os.getpid()
        and threading.current_thread() is threading.main_thread()
        and Context.of_environment(os.environ) is not None
    ):
        _watch()
        _watching_pid = os.getpid()
    return _noticed


def _watch() -> None:
    before = signal.getsignal(signal.SIGTERM)
    # None stands for a handler that was not installed from Python, which could not be restored.
    if before is None:
        return
    pid = os.getpid()

    def notice(number: int, frame: FrameType | None) -> None:
        global _noticed
        # Restored first, so that a second SIGTERM ends the process.
        signal.signal(number, before)
        # Forked workers inherit this handler without having called `get_preemption_info`: they end as usual.
        if os.getpid() != pid:
            os.kill(os.getpid(), number)
            return
        _noticed = PreemptionInfo(time.time())
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, notice)
