"""Handles Ctrl-C: repeated presses count once, and the messages about the interrupt are still shown."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

_AnyHandler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None

_HURRY_S = 1.0
_PARTING_S = 10.0  # the longest time that Ctrl-C is ignored


class _Handler:
    """Raises KeyboardInterrupt, and does nothing for a while thereafter."""

    def __init__(self, *, deaf_s: float = 0.0) -> None:
        self._raised_at = time.monotonic()
        self._deaf_until = self._raised_at + deaf_s

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now >= self._deaf_until:
            self._raised_at, self._deaf_until = now, now + _PARTING_S
            raise KeyboardInterrupt

    def rearm_interrupt(self) -> None:
        self._deaf_until = min(self._deaf_until, self._raised_at + _HURRY_S)


@contextmanager
def single_interrupt() -> Iterator[None]:
    """Within it a Ctrl-C raises KeyboardInterrupt, and those that follow do nothing until it has been said why.

    A second interrupt would come while the first is still unwinding, and cut off what the first has to say. The
    next one counts after `rearm_interrupt()`, at the end of this context, and in any case after ten seconds.
    Where another handler for SIGINT is set, and outside the main thread, nothing is changed.

    Example:
        >>> with single_interrupt():
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
    with _handled_by(_Handler()):
        yield


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Within it Ctrl-C does nothing, for ten seconds: a few lines are written, and then it is over anyway.

    Example:
        >>> with ignore_interrupts():
        ...     signal.raise_signal(signal.SIGINT)
        ...     print("said")
        said
    """
    if not _in_main_thread():
        yield
        return
    with _handled_by(_Handler(deaf_s=_PARTING_S)):
        yield


def rearm_interrupt() -> None:
    """Let the next Ctrl-C raise again, unless it follows the first within a second."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Handler):
        handler.rearm_interrupt()


@contextmanager
def _handled_by(handler: _Handler) -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    try:
        try:
            signal.signal(signal.SIGINT, handler)
            yield
        finally:
            _take_back(handler, before)
    except KeyboardInterrupt:
        _take_back(handler, before)  # Ctrl-C may have come in the middle of that
        raise


def _take_back(handler: _Handler, before: _AnyHandler) -> None:
    # A handler that was set inside the context is kept: an exiting command sets one for the rest of its time.
    if signal.getsignal(signal.SIGINT) is handler:
        signal.signal(signal.SIGINT, before)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
