"""Handles Ctrl-C: repeated presses count once, and the message of the interrupt tells what happens to the job.

waiting ──Ctrl-C: KeyboardInterrupt──▶ unwinding, further presses do nothing ──▶ message printed ──▶ waiting
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

_REARM_DELAY_S = 1.0  # presses within this time of the first one are repeats of it
_MAX_IGNORED_S = 10.0  # the longest time that Ctrl-C is ignored


class _Handler:
    """Raises KeyboardInterrupt, and ignores further signals for a while."""

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
    """Raises KeyboardInterrupt once in its block; further presses do nothing until its message is printed.

    Ctrl-C interrupts again after `rearm_interrupt()`, at the end of the block, and in any case after ten seconds.
    If another handler of SIGINT is set, and outside the main thread, nothing is changed.
    """
    if not _in_main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    # Without it, a second interrupt would arrive while the first one unwinds, and cut off its message.
    with _handled_by(_Handler()):
        yield


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignores Ctrl-C in its block, which writes a few lines before the exit; for ten seconds at most."""
    if not _in_main_thread():
        yield
        return
    with _handled_by(_Handler(deaf_s=_MAX_IGNORED_S)):
        yield


def rearm_interrupt() -> None:
    """Lets the next Ctrl-C raise again, unless it follows the first one within a second."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Handler):
        handler.rearm_interrupt()


def detached(job_id: str, commands: Sequence[str]) -> KeyboardInterrupt:
    """Builds the interrupt of a wait whose job is still running; its text has the command to follow the job."""
    message = f"{job_id} is still running. To follow"
    # Only a notebook shows these lines: there the variable of an interrupted `job = estimator.fit()` is not set.
    code = f"job = TrainingJob.get({job_id!r}), then job.wait() or job.stop()"
    return _interrupt(f"{message} it: {commands[0]}", f"{message} or stop it:", [code, *commands])


def all_detached(job_ids: Sequence[str], commands: Sequence[str]) -> KeyboardInterrupt:
    """Builds the interrupt of a wait for many jobs, which are still running."""
    message = f"{len(job_ids)} jobs are still running. To list them:"
    return _interrupt(f"{message} {commands[0]}", message, commands)


def all_stopped(stopped_ids: Sequence[str], stopping_ids: Sequence[str]) -> KeyboardInterrupt:
    """Builds the interrupt of a wait that stopped its jobs, from the finished and the unfinished ones."""
    ended = f"{len(stopped_ids)} {'job has' if len(stopped_ids) == 1 else 'jobs have'} finished"
    message = f"{ended}; {len(stopping_ids)} are being stopped" if stopping_ids else ended
    return _interrupt(message, f"{message}.")


def stopped(job_id: str) -> KeyboardInterrupt:
    """Builds the interrupt of a wait that stopped its job."""
    return _interrupt(f"{job_id} was stopped", f"{job_id} was stopped.")


def stopping(job_id: str, commands: Sequence[str]) -> KeyboardInterrupt:
    """Builds the interrupt of a wait that requested the stop of its job, which has not finished yet."""
    message = f"{job_id} is being stopped. To follow it:"
    return _interrupt(f"{message} {commands[0]}", message, commands[:2])


def search_interrupted(study: str) -> KeyboardInterrupt:
    """Builds the interrupt of a search over a function, whose study can be continued."""
    message = f"the search was stopped; to resume it, run it again with study={study!r}"
    return _interrupt(message, f"{message}.")


def _interrupt(text: str, notebook_text: str, commands: Sequence[str] = ()) -> KeyboardInterrupt:
    # Not a subclass: only for KeyboardInterrupt itself Python exits with the status that shells treat as Ctrl-C.
    interrupt = KeyboardInterrupt(text)
    # IPython prints this in place of the traceback of the wait.
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
        _restore_handler(handler, previous)  # Ctrl-C may have interrupted the restoring itself
        raise


def _restore_handler(handler: _Handler, previous: _AnyHandler) -> None:
    # A handler that was set in the block stays: an exiting command sets one for its remaining time.
    if signal.getsignal(signal.SIGINT) is handler:
        signal.signal(signal.SIGINT, previous)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
