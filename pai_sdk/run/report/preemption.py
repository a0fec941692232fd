"""The notice of a job that it is to end. Shipped with jobs: standard library only, syntax of Python 3.8."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from types import FrameType

from pai_sdk.run.report.session import Context

__all__ = ["PreemptionInfo", "get_preemption_info"]


@dataclass(frozen=True)
class PreemptionInfo:
    """The notice.

    Attributes:
        time: when it came, in seconds since 1970.
    """

    time: float


_noticed: PreemptionInfo | None = None
_watching_pid: int | None = None


def get_preemption_info() -> PreemptionInfo | None:
    """The notice that this job is to end, because its instance is taken away or it is stopped; None before it.

    The notice is SIGTERM. From the first call on, the first SIGTERM does not end this process, so that the
    training can save a checkpoint and return; without that, it is killed after the grace period. A second one ends
    it. The first call has to be in the main thread. Outside a job it is always None, and signals are left alone.

    Example:
        >>> get_preemption_info() is None
        True
    """
    global _watching_pid
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
    if before is None:  # not of Python, so it could not be put back
        return
    pid = os.getpid()

    def notice(number: int, frame: FrameType | None) -> None:
        global _noticed
        signal.signal(number, before)
        if os.getpid() != pid:  # a forked process, which has not asked
            os.kill(os.getpid(), number)
            return
        _noticed = PreemptionInfo(time.time())
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, notice)
