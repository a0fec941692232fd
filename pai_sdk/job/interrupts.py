"""Ctrl-C by a person: pressed three times in a hurry it means once, and the parting words are still said."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

__all__ = ["heed_again", "last_words", "one_interrupt"]

_AnyHandler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None

_HURRY_S = 1.0
_PARTING_S = 10.0  # whatever is still not said by then: nobody is locked in


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

    def heed_again(self) -> None:
        self._deaf_until = min(self._deaf_until, self._raised_at + _HURRY_S)


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Within it a Ctrl-C raises KeyboardInterrupt, and those that follow do nothing until it has been said why.

    A second interrupt would come while the first is still unwinding, and cut off what the first has to say. The
    next one counts after `heed_again()`, at the end of this context, and in any case after ten seconds.
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
    with _handled_by(_Handler()):
        yield


@contextmanager
def last_words() -> Iterator[None]:
    """Within it Ctrl-C does nothing, for ten seconds: a few lines are written, and then it is over anyway.

    Example:
        >>> with last_words():
        ...     signal.raise_signal(signal.SIGINT)
        ...     print("said")
        said
    """
    if not _in_main_thread():
        yield
        return
    with _handled_by(_Handler(deaf_s=_PARTING_S)):
        yield


def heed_again() -> None:
    """What the first Ctrl-C began goes on for a while: the next one, unless pressed in a hurry, may end it."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Handler):
        handler.heed_again()


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
    # Not over a handler that was set within: it may be there for good, as where a command is leaving.
    if signal.getsignal(signal.SIGINT) is handler:
        signal.signal(signal.SIGINT, before)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
