"""Handles Ctrl-C: repeated presses count once, and the message of the interrupt says what happens to the job.

waiting ──Ctrl-C: KeyboardInterrupt──▶ unwinding, further presses do nothing ──▶ message shown ──▶ waiting
└─rearm_interrupt, a second later──▶ a press interrupts again
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

_AnyHandler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None

_REARM_DELAY_S = 1.0
_MAX_IGNORED_S = 10.0  # the longest time that Ctrl-C is ignored


class _Handler:
    """Raises KeyboardInterrupt, and does nothing for a while thereafter."""

    def __init__(self, *, deaf_s: float = 0.0) -> None:
        self._raised_at = time.monotonic()
        self._deaf_until = self._raised_at + deaf_s

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now >= self._deaf_until:
            self._raised_at, self._deaf_until = now, now + _MAX_IGNORED_S
            raise KeyboardInterrupt

    def rearm_interrupt(self) -> None:
        self._deaf_until = min(self._deaf_until, self._raised_at + _REARM_DELAY_S)


@contextmanager
def single_interrupt() -> Iterator[None]:
    """Within it a Ctrl-C raises KeyboardInterrupt, and those that follow do nothing until its message was shown.

    A second interrupt would come while the first is still unwinding, and cut off the message of the first. The
    next one counts after `rearm_interrupt()`, at the end of this context, and in any case after ten seconds.
    Where another handler for SIGINT is set, and outside the main thread, nothing is changed.

    Example:
        >>> with single_interrupt():
        ...     try:
        ...         signal.raise_signal(signal.SIGINT)
        ...     except KeyboardInterrupt:
        ...         signal.raise_signal(signal.SIGINT)
        ...         print("shown to the end")
        shown to the end
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
        ...     print("shown")
        shown
    """
    if not _in_main_thread():
        yield
        return
    with _handled_by(_Handler(deaf_s=_MAX_IGNORED_S)):
        yield


def rearm_interrupt() -> None:
    """Let the next Ctrl-C raise again, unless it follows the first within a second."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Handler):
        handler.rearm_interrupt()


def detached(job_id: str, commands: Sequence[str]) -> KeyboardInterrupt:
    """The interrupt of a wait whose job is still running; its text has the command to follow it.

    Example:
        >>> str(detached("train1", ["pai-sdk logs -f train1"]))
        'train1 is still running. To follow it: pai-sdk logs -f train1'
    """
    message = f"{job_id} is still running. To follow"
    return _interrupt(f"{message} it: {commands[0]}", f"{message} or stop it:", commands)


def all_detached(job_ids: Sequence[str], commands: Sequence[str]) -> KeyboardInterrupt:
    """The interrupt of a wait for many jobs, which are still running.

    Example:
        >>> str(all_detached(["train1", "train2"], ["pai-sdk ps"]))
        '2 jobs are still running. To list them: pai-sdk ps'
    """
    message = f"{len(job_ids)} jobs are still running. To list them:"
    return _interrupt(f"{message} {commands[0]}", message, commands)


def all_stopped(stopped_ids: Sequence[str], stopping_ids: Sequence[str]) -> KeyboardInterrupt:
    """The interrupt of a wait that stopped its jobs: those that have ended, and those that have not ended yet.

    Example:
        >>> str(all_stopped(["train1"], ["train2", "train3"]))
        '1 job has ended; 2 are being stopped'
    """
    ended = f"{len(stopped_ids)} {'job has' if len(stopped_ids) == 1 else 'jobs have'} ended"
    message = f"{ended}; {len(stopping_ids)} are being stopped" if stopping_ids else ended
    return _interrupt(message, f"{message}.")


def stopped(job_id: str) -> KeyboardInterrupt:
    """The interrupt of a wait that stopped its job.

    Example:
        >>> str(stopped("local-08655612a521"))
        'local-08655612a521 was stopped'
    """
    return _interrupt(f"{job_id} was stopped", f"{job_id} was stopped.")


def stopping(job_id: str, commands: Sequence[str]) -> KeyboardInterrupt:
    """The interrupt of a wait that asked for the end of its job, which has not ended yet.

    Example:
        >>> str(stopping("train1", ["pai-sdk logs -f train1", "pai-sdk status train1"]))
        'train1 is being stopped. To see its end: pai-sdk logs -f train1'
    """
    message = f"{job_id} is being stopped. To see its end:"
    return _interrupt(f"{message} {commands[0]}", message, commands[:2])


def search_interrupted(study: str) -> KeyboardInterrupt:
    """The interrupt of a search over a function, whose study can be continued.

    Example:
        >>> str(search_interrupted("file:///studies/digits/"))
        "the search has ended; the same search with study='file:///studies/digits/' continues it"
    """
    message = f"the search has ended; the same search with study={study!r} continues it"
    return _interrupt(message, f"{message}.")


def _interrupt(text: str, notebook_text: str, commands: Sequence[str] = ()) -> KeyboardInterrupt:
    # Not a subclass: only for KeyboardInterrupt itself Python exits with the status that shells know as Ctrl-C.
    interrupt = KeyboardInterrupt(text)
    # IPython shows this in place of the traceback of the wait.
    lines = [f"Interrupted. {notebook_text}", *(f"  {command}" for command in commands)]
    interrupt._render_traceback_ = lambda: ["\n".join(lines)]  # type: ignore[attr-defined]
    return interrupt


@contextmanager
def _handled_by(handler: _Handler) -> Iterator[None]:
    previous = signal.getsignal(signal.SIGINT)
    try:
        try:
            signal.signal(signal.SIGINT, handler)
            yield
        finally:
            _restore_handler(handler, previous)
    except KeyboardInterrupt:
        _restore_handler(handler, previous)  # Ctrl-C may have come in the middle of that
        raise


def _restore_handler(handler: _Handler, previous: _AnyHandler) -> None:
    # A handler that was set inside the context is kept: an exiting command sets one for the rest of its time.
    if signal.getsignal(signal.SIGINT) is handler:
        signal.signal(signal.SIGINT, previous)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
