"""Hosts of the function of a `FunctionRun`: a thread, or a process of its own.

The function hands over its results one after the other, in the order of its reports. A result with a checkpoint is
taken when the checkpoint is complete; the function does not wait for that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pai_sdk.errors import FunctionError
from pai_sdk.run.functions.calling import call_training
from pai_sdk.run.report.checkpoints import Checkpoint, read_checkpoint
from pai_sdk.run.report.session import Context, Report, ReportSession, StopTraining

logger = logging.getLogger(__name__)

AFTER_SAVE_S = 5.0
"""The longest time between the last save of a function and its end."""


@dataclass(frozen=True)
class Task:
    """A function with its arguments, and how to run it.

    Attributes:
        function: the training.
        config: its first argument.
        folder: the run's folder.
        run_id: the run's id.
        ahead: how many results it may be ahead of the one who takes them; 0 for lock-step.
        restored: the checkpoint to go on from; empty for none, None for the latest in the folder.
    """

    function: Callable[..., Any]
    config: Any
    folder: Path
    run_id: str
    ahead: int
    restored: str | None


@dataclass(frozen=True)
class Ended:
    """The last message of a function: its value, or what it raised, and a checkpoint after the last report."""

    value: Any = None
    error: BaseException | None = None
    checkpoint: Path | None = None


Message = Report | Ended


class Host(Protocol):
    """Runs one function once."""

    pid: int

    @property
    def has_ended(self) -> bool:
        """True if nothing of the function is left."""
        ...

    def request(self) -> None:
        """Let a function in lock-step go on to its next report."""
        ...

    def take(self, timeout_s: float | None) -> Message | None:
        """The next message; None when the time has passed."""
        ...

    def stop(self, grace_s: float, save_s: float) -> None:
        """End the function, if it has not ended.

        Args:
            grace_s: the longest wait for its next report.
            save_s: the longest wait for checkpoints that are being saved after that.

        Raises:
            FunctionError: it is still running, or was killed during a save.
        """
        ...


class Outbox:
    """Hands messages from the function to the one who takes them. The function waits when it is too far ahead.

    Args:
        ahead: how many results more than were requested it may put.
    """

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead
        self._changed = threading.Condition()
        self._messages: deque[Message] = deque()
        self._put = 0
        self._requested = 0
        self._is_closed = False
        self._has_warned = False

    def put(self, report: Report) -> None:
        """Hand over a report.

        Raises:
            StopTraining: the outbox is closed.
        """
        with self._changed:
            self._messages.append(report)
            self._put += 1
            self._changed.notify_all()
            # In lock-step, the next request lets the function go on. Otherwise it may be `ahead` results ahead.
            while self._put + 1 - self._requested > max(self._ahead, 0) and not self._is_closed:
                if self._ahead and not self._has_warned:
                    self._has_warned = True
                    logger.warning(
                        "the training waits until the caller takes one of its last %s results", self._ahead
                    )
                self._changed.wait()
            if self._is_closed:
                raise StopTraining("the training is to end")

    def end(self, message: Ended) -> None:
        """Hand over the last message."""
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def request(self) -> None:
        """Allow the function one more result."""
        with self._changed:
            self._requested += 1
            self._changed.notify_all()

    def take(self, timeout_s: float | None) -> Message | None:
        """The next message, when its checkpoint is complete; None when the time has passed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            if not self._changed.wait_for(lambda: self._messages, timeout_s):
                return None
            message = self._messages[0]  # only one thread takes messages
        if isinstance(message, Report) and message.saved is not None:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not message.saved.wait(left_s):
                return None
        with self._changed:
            return self._messages.popleft()

    def close(self) -> None:
        """Let every waiting and later `put` raise `StopTraining`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class TrainingSession(ReportSession):
    """The session of a function: its first checkpoint may lie elsewhere, or be left out."""

    def __init__(self, task: Task, outbox: Outbox) -> None:
        super().__init__(
            task.folder, context=Context(job_id=task.run_id, folder=task.folder), on_report=self._hand_over
        )
        self._outbox = outbox
        self._restored = task.restored
        self._latest: Path | None = None
        with contextlib.suppress(OSError):  # the first metrics or the first checkpoint say so
            task.folder.mkdir(parents=True, exist_ok=True)

    def checkpoint(self) -> Checkpoint | None:
        """The latest one of this run; at first the restored one."""
        if self._restored is None:
            return super().checkpoint()
        found = None if self._latest is None else read_checkpoint(self._latest)
        if found is None and self._restored:
            found = Checkpoint.from_directory(self._restored)
        self._continue_from(found)
        return found

    def _hand_over(self, report: Report) -> None:
        if report.checkpoint is not None:
            self._latest = report.checkpoint
        self._outbox.put(report)


def run_task(task: Task, session: TrainingSession) -> Ended:
    """Call the function, and wait for its checkpoints."""
    try:
        with session, session.bound():
            value = call_training(task.function, task.config)
        return Ended(value, checkpoint=session.unreported_checkpoint)
    except StopTraining:
        return Ended(checkpoint=session.unreported_checkpoint)
    except BaseException as error:  # SystemExit too: it is one of the function, not of this thread
        return Ended(error=error, checkpoint=session.unreported_checkpoint)


def note_wait(name: str, unfinished: tuple[int, str]) -> None:
    """Say why `stop` waits longer than the grace period."""
    logger.warning("stop() of %s waits until the checkpoint of step %s is %s", name, *unfinished)


class ThreadHost:
    """Runs the function in a thread of this process."""

    def __init__(self, task: Task) -> None:
        self.pid = os.getpid()
        self._name = task.run_id
        self._outbox = Outbox(task.ahead)
        self._session = TrainingSession(task, self._outbox)
        self._thread = threading.Thread(
            target=lambda: self._outbox.end(run_task(task, self._session)), name=task.run_id, daemon=True
        )
        self._thread.start()

    def request(self) -> None:
        """Let a function in lock-step go on to its next report."""
        self._outbox.request()

    def take(self, timeout_s: float | None) -> Message | None:
        """The next message; None when the time has passed."""
        message = self._outbox.take(timeout_s)
        if isinstance(message, Ended):
            self._thread.join()
        return message

    @property
    def has_ended(self) -> bool:
        """True if the thread has ended."""
        return not self._thread.is_alive()

    def stop(self, grace_s: float, save_s: float) -> None:
        """Raise `StopTraining` in the next report, and wait for the thread and for its saves.

        Raises:
            FunctionError: the thread has not ended in time; a thread cannot be killed.
        """
        self._session.stop()
        self._outbox.close()
        self._thread.join(grace_s)
        unfinished = self._session.wait_until_saved(0) if self._thread.is_alive() else None
        if unfinished is not None:
            note_wait(self._name, unfinished)
            unfinished = self._session.wait_until_saved(save_s)
            if unfinished is not None:
                step, verb = unfinished
                raise FunctionError(
                    f"{self._name} is still running: the checkpoint of step {step} was not {verb} within "
                    f"{save_s:g} s; call stop() again to wait for it"
                )
            self._thread.join(AFTER_SAVE_S)
        if self._thread.is_alive():
            raise FunctionError(
                f"{self._name} is still running: it has not called report() for {grace_s:g} s, and a thread "
                "cannot be killed; use mode='process' for functions that may hang"
            )
