"""One training that reports: its session, which records metrics and checkpoints of a run.

This module is shipped with jobs: standard library only, syntax of Python 3.8.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import re
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pai_sdk._data.run.report.checkpoint_saver import CheckpointSaver, SaveOptions, SaveTask
from pai_sdk._data.run.report.checkpoints import (
    Checkpoint,
    CheckpointConfig,
    FolderState,
    complete_checkpoints,
    discard_checkpoint,
    latest_checkpoint,
    start_checkpoint,
)
from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.launch import Launch
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.run.report.metrics import MetricsRecorder, numbers_of
from pai_sdk.errors import CheckpointError

logger = logging.getLogger(__name__)

CONSISTENCIES = ("COMMITTED", "VALIDATED")
_TEMPORARY_NAME = re.compile("tmp[a-z0-9_]{8}")  # as `tempfile.mkdtemp` names folders
_DEFAULT_OPTIONS = SaveOptions()


class StopTraining(BaseException):
    """Raised by `report` when the training is to stop. No Exception, so that `except Exception` lets it pass."""


# Errors that the caller of `report` causes: their tracebacks end in the line that calls it.
_OF_CALLER = (CheckpointError, OverflowError, StopTraining, TypeError)


@dataclass(frozen=True)
class Report:
    """One call of `report`, as a scheduler receives it."""

    metrics: Mapping[str, Any]
    step: int
    time: float
    checkpoint: Path | None = None
    """Reported by this call, or saved by `checkpoint_dir` since the previous report."""
    saved: threading.Event | None = None
    """Set when the checkpoint is complete, or when saving it has failed."""


# All sessions of this process, for the reset after a fork.
_sessions: weakref.WeakSet[ReportSession] = weakref.WeakSet()


class ReportSession:
    """Records the reports of one training. Sessions share nothing; each is safe to use from several threads.

    Args:
        folder: the run's folder. Events go to its `tensorboard`, checkpoints to its `checkpoints`.
        context: what `get_context` returns; by default, rank 0 of 1 in this folder.
        on_report: called with each report in the thread that reports, after it was recorded. A scheduler that runs
            in lock-step waits in it, or raises `StopTraining`.
        checkpoint_config: which checkpoints are kept; all by default.

    Attributes:
        checkpoint_config: which checkpoints are kept; applied whenever a checkpoint is complete.

    Example:
        >>> from pai_sdk import ReportSession, report
        >>> with tempfile.TemporaryDirectory() as folder, ReportSession(folder) as session:
        ...     with session.bound():
        ...         report({"loss": 0.5})
        ...     session.last_step
        1
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        context: Context | None = None,
        on_report: Callable[[Report], None] | None = None,
        checkpoint_config: CheckpointConfig | None = None,
    ) -> None:
        self.checkpoint_config = checkpoint_config or CheckpointConfig()
        self.context = context or Context(folder=Path(folder))
        self.on_report = on_report
        self.last_step: int | None = None
        layout, rank = RunLayout(str(folder)), self.context.rank
        # Rank 0 writes to the folders that TensorBoard and `get_checkpoint` read; other ranks write to folders in
        # them.
        self._recorder = MetricsRecorder(Path(layout.of_rank(layout.tensorboard, rank)), self.context.instance)
        self._checkpoints = Path(layout.of_rank(layout.checkpoints, rank))
        self._layout = layout
        self._is_entered = False
        self._unreported: SaveTask | None = None
        self._launch: Launch | None = None
        if self.context.world_size > 1:
            size = self.context.world_size
            self._launch = Launch(Path(layout.checkpoints), self.context.job_id, rank, size, os.environ)
        self._must_record_start = rank > 0 and self._launch is not None
        self._saver = CheckpointSaver(
            self._checkpoints,
            config=lambda: self.checkpoint_config,
            record=self._recorder.record,
            launch=self._launch,
        )
        # Guards the step and its metrics, so that reports of several threads have one step each. Reentrant,
        # because a signal handler may report while its own thread holds the lock.
        self._lock = threading.RLock()
        # Last, since a fork in another thread resets all sessions in the set.
        _sessions.add(self)

    def reset_after_fork(self) -> None:
        """Replaces workers and locks after a fork."""
        self._lock = threading.RLock()
        self._saver.renew()
        if self._launch is not None:
            self._launch.renew_lock()

    def __enter__(self) -> ReportSession:
        self._is_entered = True
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self._close(None, _final_status(error))
        except CheckpointError:
            if kind is None:  # otherwise the error of the training propagates
                raise
            logger.exception("checkpoints of the failed training are missing")

    @contextlib.contextmanager
    def bound(self) -> Iterator[ReportSession]:
        """Binds the session: in the block and in this thread, `report` and similar functions use it.

        Another thread of the training enters a block of its own. Without an enclosing `with` block of the session,
        the run has the status of a finished one after the block, until the next report.
        """
        token = bound_session.set(self)
        status = "Succeed"
        try:
            yield self
        except BaseException as error:
            status = _final_status(error)
            raise
        finally:
            bound_session.reset(token)
            if not self._is_entered:
                self._end(status)
                with contextlib.suppress(OSError):
                    self._recorder.flush()

    def report(
        self,
        metrics: Mapping[str, Any],
        step: int | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        *,
        options: SaveOptions = _DEFAULT_OPTIONS,
    ) -> None:
        """Record metrics and a checkpoint; arguments and errors as for the function `report`."""
        with truncated_traceback:
            if self._saver.is_stopped or self._saver.failures:
                self._check_not_stopped()
                self._saver.raise_failure()
            if checkpoint is not None and options.mode != "SYNC":
                # Outside the lock: the wait may take minutes, and other threads must be able to report metrics
                # meanwhile.
                self._saver.wait_for_room()
                self._check_not_stopped()
            with self._lock:
                if step is None:
                    step = self._next_step()
                elif type(step) is not int:
                    step = _step_index(metrics, step)
                # Checks the checkpoint first, so that a report that raises has recorded nothing.
                task = None if checkpoint is None else self._task(metrics, step, checkpoint, options)
                if metrics:
                    self._recorder.record(metrics, step)
                    self._saver.add_step_metrics(metrics, step)
                self.last_step = step
                if task is not None:
                    self._saver.save(task)
                reported, before = task or self._unreported, self._unreported
                self._unreported = None
            # Outside the lock, and before the scheduler hears of the report: it may copy the checkpoint at once.
            if task is not None and task.options.mode == "SYNC":
                self._wait_for(task, before)
            if self._must_record_start and self._launch is not None:
                self._must_record_start = False
                self._saver.run(self._launch.record_request)  # in the background, since it reads and writes files
            if self.on_report is not None:
                target, saved = (None, None) if reported is None else (reported.target, reported.done)
                self.on_report(Report(dict(metrics), step, time.time(), target, saved))

    def hparams(self, values: Mapping[str, Any]) -> None:
        """Write the hyperparameters of a run outside a job into its event file, for views that compare runs.

        Args:
            values: by name; lists and mappings are written as JSON.
        """
        self._recorder.hparams(values)

    def _check_not_stopped(self) -> None:
        if self._saver.is_stopped:
            raise StopTraining("the training was asked to stop")

    def _wait_for(self, task: SaveTask, before: SaveTask | None) -> None:
        """Waits until a checkpoint is saved; after a failure, the one before is unreported again."""
        task.done.wait()
        try:
            self._saver.raise_failure()
        except CheckpointError:
            self._unreported = before  # the next report passes it to the scheduler
            raise

    def _next_step(self) -> int:
        return (self.last_step or 0) + 1

    def stop(self) -> None:
        """Make the next report raise `StopTraining`."""
        self._saver.stop()  # a report that waits for room raises at once

    def flush(self) -> None:
        """Appends all metrics reported so far to the event file."""
        self._recorder.flush()

    def checkpoint(self) -> Checkpoint | None:
        """Returns the complete checkpoint of the latest step: of this rank, or else of rank 0. None without one.

        Waits until the checkpoints reported to this session are saved. Of the checkpoints of rank 0, another rank
        sees those that were complete when the launch started, until all ranks have requested one. Before this
        session has saved a checkpoint, its rank does not get a later step than rank 0.

        Raises:
            CheckpointError: the checkpoint that this launch started from was removed.
        """
        self._saver.wait()
        newest = latest_checkpoint(self._checkpoints)
        if self._launch is not None:
            newest = self._launch.resume_from(self._checkpoints, newest, has_saved=self._saver.has_saved)
            self._must_record_start = False
        elif newest is None and self.context.rank:
            newest = latest_checkpoint(self._layout.checkpoints)
        self._continue_from(newest)
        return newest

    def _continue_from(self, checkpoint: Checkpoint | None) -> None:
        """Makes the first report without a step the one after a checkpoint."""
        with self._lock:
            if checkpoint is not None and self.last_step is None:
                self.last_step = checkpoint.step

    def checkpoints(self, consistency_mode: str | None = None) -> list[Checkpoint]:
        """Returns all complete checkpoints, the earliest step first; see `get_all_reported_checkpoints`."""
        mode = getattr(consistency_mode, "name", consistency_mode)
        if mode is not None and mode not in CONSISTENCIES:
            raise CheckpointError(f"unknown consistency {mode!r}; available: {', '.join(CONSISTENCIES)}")
        if mode is not None:
            self._saver.wait()
        if mode == "VALIDATED":
            self._saver.wait_for_validations()
        return list(complete_checkpoints(self._checkpoints))[::-1]

    @property
    def unreported_checkpoint(self) -> Path | None:
        """The folder that `checkpoint_dir` has saved, or still saves, since the last report."""
        return None if self._unreported is None else self._unreported.target

    @contextlib.contextmanager
    def checkpoint_dir(self, step: int | None = None, metrics: Mapping[str, Any] | None = None) -> Iterator[Path]:
        """An empty folder that becomes the checkpoint of a step when the block ends; removed after an error.

        If the step has a complete checkpoint, the folder lies beside it, and replaces it when it is complete.
        """
        numbers = numbers_of(metrics or {})
        step = self._next_step() if step is None else step
        folder = self._folder_of(step)
        step = operator.index(step)
        self._saver.wait_for_room()
        # At the start, not at the end: the stamp states whether all ranks had requested a checkpoint before this
        # one.
        launch = self._stamp()
        if folder.exists():
            self._saver.wait()  # the folder may be a checkpoint of this step that is being saved
        destination = start_checkpoint(folder)
        try:
            yield destination
        except BaseException:
            discard_checkpoint(destination)
            raise
        state = FolderState.of(destination)
        with self._lock:
            task = SaveTask(state, folder, step, numbers or self._saver.step_metrics(step), launch=launch)
            self._unreported = task
            self._saver.save(task)

    def wait_until_saved(self, timeout_s: float) -> tuple[int, str] | None:
        """Wait until all checkpoints are saved and validated.

        Returns:
            The step of a checkpoint that is not, and its missing state: `saved` or `validated`. None if all are
            done.
        """
        return self._saver.wait_until_saved(timeout_s)

    def close(self, deadline_s: float | None = None) -> None:
        """Save the remaining metrics and checkpoints. Reports raise `StopTraining` afterwards.

        The event file then has the final status of the run: `Succeed`, or `Failed` if a checkpoint could not be
        saved. A `with` block ends as `Failed` after an error, and as `Terminated` after Ctrl-C or `StopTraining`.
        The run of a job has the status of its job instead.

        Args:
            deadline_s: the maximum wait for checkpoints, in seconds; unlimited by default.

        Raises:
            CheckpointError: a checkpoint could not be saved, or not in time.
        """
        self._close(deadline_s, "Succeed")

    def _close(self, deadline_s: float | None, status: str) -> None:
        self.stop()
        deadline = None if deadline_s is None else time.monotonic() + deadline_s
        try:
            self._saver.close(deadline)
        except CheckpointError:
            status = "Failed"
            raise
        finally:
            self._end(status)
            self._recorder.close()

    def _end(self, status: str) -> None:
        """Records the final status of the run."""
        self._recorder.end(status)

    def _task(self, metrics: Mapping[str, Any], step: int, checkpoint: Any, options: SaveOptions) -> SaveTask:
        folder = Path(_folder_of(checkpoint))
        source, target = FolderState.of(folder), self._folder_of(step)
        options.check(folder, target)
        if options.mode == "ASYNC" and _is_temporary(folder, but_for=target):
            # The caller removes the folder soon after the report, before a copy in the background is complete.
            options = replace(options, mode="SYNC")
        of_step = numbers_of(metrics) or self._saver.step_metrics(step)
        return SaveTask(source, target, step, of_step, options, launch=self._stamp())

    def _stamp(self) -> Mapping[str, Any] | None:
        """Returns the launch for the marker of a checkpoint of rank 0; None in other ranks."""
        # Checkpoints of other ranks are private.
        return None if self._launch is None or self.context.rank else self._launch.stamp()

    def _folder_of(self, step: int) -> Path:
        # The layout checks the step. The folder is that of this rank.
        return self._checkpoints / Path(self._layout.checkpoint(step)).name


def _step_index(metrics: Mapping[str, Any], step: Any) -> int:
    """Returns a step of another type, such as NumPy's, as int; raises TypeError, as outside of a job."""
    with contextlib.suppress(TypeError):
        return operator.index(step)
    numbers_of(metrics)  # in `report("loss", 0.1, 1)` they are the first mistake
    raise TypeError(f"the step is a whole number, not {step!r}")


def _final_status(error: object) -> str:
    """Returns the status of a run from the error that has ended its block."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "Succeed"
    return "Terminated" if isinstance(error, (StopTraining, KeyboardInterrupt, GeneratorExit)) else "Failed"


# A context variable: each thread, and each task of asyncio, can have its own session.
bound_session: ContextVar[ReportSession | None] = ContextVar("pai_sdk_report_session", default=None)


def _reset_after_fork() -> None:
    """Replaces the locks and workers of all sessions in a forked process."""
    for session in list(_sessions):
        session.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


class _TruncatedTraceback:
    """A block whose errors of the caller end in the line that calls `report` (from Python 3.11 on)."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, _OF_CALLER):
            logger.debug("the full traceback of the following error", exc_info=error)
            error.__traceback__ = None


truncated_traceback = _TruncatedTraceback()


def _folder_of(checkpoint: Any) -> str:
    path = checkpoint if isinstance(checkpoint, (str, os.PathLike)) else getattr(checkpoint, "path", None)
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"checkpoint: expected the path of a folder, got {type(checkpoint).__name__}; write state into files"
        )
    return os.fspath(path)


def check_checkpoint(checkpoint: Any, options: SaveOptions) -> None:
    """Checks the checkpoint of a report outside a job as in one, but for its place in the folder of a run."""
    if checkpoint is not None:
        folder = Path(_folder_of(checkpoint))
        FolderState.of(folder)
        options.check(folder, folder if options.mode == "NO_UPLOAD" else folder / "copy")


def _is_temporary(folder: Path, *, but_for: Path) -> bool:
    """Returns True if a folder is, or is in, one of `tempfile`, which is likely to be removed after `report`."""
    # Parents of the run's folder exist for the complete run.
    folders = {folder.resolve(), *folder.resolve().parents} - set(but_for.resolve().parents)
    # The registry of `weakref.finalize` (a private attribute of CPython) has the name of each live
    # TemporaryDirectory. Without the registry, only the usual names of `tempfile` are recognized.
    finalizers = list(getattr(weakref.finalize, "_registry", {}).values())
    created = [info.args[0] for info in finalizers if info.args and _is_of_temporary_directory(info.func)]
    if any(Path(os.fsdecode(name)).resolve() in folders for name in created):
        return True
    try:
        temporary = Path(tempfile.gettempdir()).resolve()
    except FileNotFoundError:  # an image without one
        return False
    return any(
        candidate.parent == temporary and _TEMPORARY_NAME.fullmatch(candidate.name) for candidate in folders
    )


def _is_of_temporary_directory(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    return isinstance(owner, type) and issubclass(owner, tempfile.TemporaryDirectory)
