"""Hosts of the function of a `FunctionRun`: a thread, or a separate process.

Results are delivered one after the other, in the order of the reports. A result with a checkpoint is delivered
when the checkpoint is complete; the function does not wait for that.
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

from pai_sdk._data.run.functions.calling import call_training
from pai_sdk._data.run.report.checkpoints import Checkpoint, read_checkpoint
from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.report_session import Report, ReportSession, StopTraining
from pai_sdk.errors import FunctionError

logger = logging.getLogger(__name__)

AFTER_SAVE_S = 5.0
"""The maximum time between the last save of a function and its end."""


@dataclass(frozen=True)
class Task:
    """A function with its argument and options."""

    function: Callable[..., Any]
    config: Any  # the first argument
    folder: Path
    run_id: str
    ahead: int  # the maximum number of results that wait for the caller; 0 for lock-step
    restored: str | None  # the checkpoint to continue from; empty for none, None for the latest in the folder


@dataclass(frozen=True)
class Ended:
    """The last message of a function: its value or error, and a checkpoint after the last report."""

    value: Any = None
    error: BaseException | None = None
    checkpoint: Path | None = None


Message = Report | Ended


class Host(Protocol):
    """Runs one function once."""

    pid: int

    @property
    def has_ended(self) -> bool:
        """True if no thread or process of the function is left."""
        ...

    def request(self) -> None:
        """Lets a function in lock-step continue to its next report."""
        ...

    def take(self, timeout_s: float | None) -> Message | None:
        """Waits for the next message; returns None after the timeout."""
        ...

    def stop(self, grace_s: float, save_s: float) -> None:
        """Stops the function if it is running; raises FunctionError if it still runs, or lost a checkpoint."""
        # Waits up to `grace_s` for the next report, and then up to `save_s` for checkpoints that are being saved.
        ...


class Outbox:
    """Passes messages from the function to the caller. The function waits when it is too far ahead."""

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead  # the maximum number of results beyond the requested ones
        self._changed = threading.Condition()
        self._messages: deque[Message] = deque()
        self._put = 0
        self._requested = 0
        self._is_closed = False
        self._has_warned = False

    def put(self, report: Report) -> None:
        """Adds a report, and waits while the function is too far ahead; raises StopTraining when closed."""
        # Called in the thread of the function, `take` in the thread of the caller.
        with self._changed:
            self._messages.append(report)
            self._put += 1
            self._changed.notify_all()
            # In lock-step, the next request lets the function continue. Otherwise it may be `ahead` results ahead.
            while self._put + 1 - self._requested > max(self._ahead, 0) and not self._is_closed:
                if self._ahead and not self._has_warned:
                    self._has_warned = True
                    logger.warning(
                        "the training waits until the caller takes one of its last %s results", self._ahead
                    )
                self._changed.wait()
            if self._is_closed:
                raise StopTraining("the training was asked to stop")

    def end(self, message: Ended) -> None:
        """Adds the last message."""
        # Never waits for a request: the function has returned.
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def request(self) -> None:
        """Allows the function one more result."""
        with self._changed:
            self._requested += 1
            self._changed.notify_all()

    def take(self, timeout_s: float | None) -> Message | None:
        """Waits for the next message and its checkpoint; returns None after the timeout."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            if not self._changed.wait_for(lambda: self._messages, timeout_s):
                return None
            message = self._messages[
                0
            ]  # stays in the queue until its checkpoint is complete; only one thread takes
        if isinstance(message, Report) and message.saved is not None:
            remaining_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            # Outside the lock, or the function could not report while its checkpoint is being saved.
            if not message.saved.wait(remaining_s):
                return None
        with self._changed:
            return self._messages.popleft()

    def close(self) -> None:
        """Makes every waiting and later `put` raise `StopTraining`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class TrainingSession(ReportSession):
    """The session of a function: it starts from a checkpoint of another folder, or from none."""

    def __init__(self, task: Task, outbox: Outbox) -> None:
        super().__init__(
            task.folder, context=Context(job_id=task.run_id, folder=task.folder), on_report=self._forward
        )
        self._outbox = outbox
        self._restored = task.restored
        self._latest: Path | None = None
        with contextlib.suppress(OSError):  # the first metrics or the first checkpoint raise the error
            task.folder.mkdir(parents=True, exist_ok=True)

    def checkpoint(self) -> Checkpoint | None:
        """Returns the latest checkpoint of this run; the restored one before the first."""
        if self._restored is None:
            return super().checkpoint()
        checkpoint = None if self._latest is None else read_checkpoint(self._latest)
        if checkpoint is None and self._restored:
            checkpoint = Checkpoint.from_directory(self._restored)
        self._continue_from(checkpoint)
        return checkpoint

    def _forward(self, report: Report) -> None:
        if report.checkpoint is not None:
            self._latest = report.checkpoint
        self._outbox.put(report)


def run_task(task: Task, session: TrainingSession) -> Ended:
    """Calls the function, and waits for its checkpoints."""
    try:
        # Leaving the session saves the remaining checkpoints, so the last message is sent after them.
        with session, session.bound():
            value = call_training(task.function, task.config)
        return Ended(value, checkpoint=session.unreported_checkpoint)
    except StopTraining:
        return Ended(checkpoint=session.unreported_checkpoint)
    except BaseException as error:  # also SystemExit: it ends the function, not this process
        return Ended(error=error, checkpoint=session.unreported_checkpoint)


def log_wait(name: str, unfinished: tuple[int, str]) -> None:
    """Logs why `stop` waits longer than the grace period."""
    logger.warning("stop() of %s waits until the checkpoint of step %s is %s", name, *unfinished)


class ThreadHost:
    """Runs the function in a thread of this process."""

    def __init__(self, task: Task) -> None:
        self.pid = os.getpid()
        self._name = task.run_id
        self._outbox = Outbox(task.ahead)
        self._session = TrainingSession(task, self._outbox)
        # A daemon: a function that hangs cannot be stopped, and must not keep the interpreter from exiting.
        self._thread = threading.Thread(
            target=lambda: self._outbox.end(run_task(task, self._session)), name=task.run_id, daemon=True
        )
        self._thread.start()

    def request(self) -> None:
        """Lets a function in lock-step continue to its next report."""
        self._outbox.request()

    def take(self, timeout_s: float | None) -> Message | None:
        """Waits for the next message; returns None after the timeout."""
        message = self._outbox.take(timeout_s)
        # The thread is in its last statement; afterwards `has_ended` is True for the caller.
        if isinstance(message, Ended):
            self._thread.join()
        return message

    @property
    def has_ended(self) -> bool:
        """True if the thread has finished."""
        return not self._thread.is_alive()

    def stop(self, grace_s: float, save_s: float) -> None:
        """Makes the next report raise `StopTraining`, and waits for the thread and for its saves."""
        # The session first: afterwards, a report raises before it records anything.
        self._session.stop()
        self._outbox.close()
        self._thread.join(grace_s)
        # A function that hangs in its own code gets no more time; one that waits for its checkpoints does.
        unfinished = self._session.wait_until_saved(0) if self._thread.is_alive() else None
        if unfinished is not None:
            log_wait(self._name, unfinished)
            unfinished = self._session.wait_until_saved(save_s)
            if unfinished is not None:
                step, verb = unfinished
                raise FunctionError(
                    f"{self._name} is still running: the checkpoint of step {step} was not {verb} within "
                    f"{save_s:g} s; call stop() again to wait for it"
                )
            # The checkpoints are complete. The thread now only has to reach the end of its `with` block.
            self._thread.join(AFTER_SAVE_S)
        # A thread cannot be killed.
        if self._thread.is_alive():
            raise FunctionError(
                f"{self._name} is still running: it has not called report() for {grace_s:g} s, and a thread "
                "cannot be killed; use mode='process' for functions that may hang"
            )
