"""Ctrl-C by a person: pressed three times in a hurry it means once, and the parting words are still said."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["last_words", "one_interrupt"]

_HURRY_S = 1.0


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Within it a Ctrl-C raises KeyboardInterrupt, and those within a second after it do nothing.

    A second interrupt would come while the first is still unwinding, and cut off what the first has to say.
    Where somebody else handles SIGINT, and outside the main thread, nothing is changed.

    Example:
        >>> with one_interrupt():
        ...     try:
        ...         signal.raise_signal(signal.SIGINT)
        ...     except KeyboardInterrupt:
        ...         signal.raise_signal(signal.SIGINT)
        ...         print("said to the end")
        said to the end
    """
    if not _in_main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    raised_at = float("-inf")

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal raised_at
        if time.monotonic() - raised_at >= _HURRY_S:
            raised_at = time.monotonic()
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        # Not over a handler that was set within: it may be there for good, as where a command is leaving.
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def last_words() -> Iterator[None]:
    """Within it Ctrl-C does nothing: a few lines are written, and then it is over anyway.

    Example:
        >>> with last_words():
        ...     signal.raise_signal(signal.SIGINT)
        ...     print("said")
        said
    """
    if not _in_main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
