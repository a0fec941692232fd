"""Reports from inside a training: metrics and checkpoints, wherever it runs.

`report({"loss": 0.1}, step=3)` is the same call in a job of any backend and in a function in a notebook. A
`ReportSession` receives it: in a job the session of the job, which reads its folders from the variables of the job
contract; in a function the session that is bound to the thread. This module is shipped with jobs: standard library
only, syntax of Python 3.8.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import operator
import os
import queue
import re
import shutil
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pai_sdk._data.run.events.writer import EventWriter, as_float64, check_scalars
from pai_sdk._data.run.report.checkpoints import (
    Checkpoint,
    CheckpointConfig,
    FolderState,
    add_metrics,
    complete_checkpoints,
    discard_checkpoint,
    latest_checkpoint,
    read_checkpoint,
    rotate,
    save,
    start_checkpoint,
)
from pai_sdk._data.run.report.launch import Launch
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk.errors import CheckpointError

__all__ = [
    "Context",
    "Report",
    "ReportSession",
    "StopTraining",
    "checkpoint_dir",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "is_session_enabled",
    "report",
    "set_checkpoint_config",
]

logger = logging.getLogger(__name__)

MODES = ("SYNC", "ASYNC", "NO_UPLOAD")
CONSISTENCIES = ("COMMITTED", "VALIDATED")
_MAX_UNSAVED = 4  # checkpoints; the end of a training waits for all of them
_TEMPORARY_NAME = re.compile("tmp[a-z0-9_]{8}")  # as `tempfile.mkdtemp` names folders
_EXIT_CODE = 1  # of a job's process whose last checkpoint could not be saved
_NO_SESSION = (
    "this code runs outside a job, so report() and the functions beside it have no effect; within "
    "`with ReportSession(folder).bound():` metrics and checkpoints are kept in a folder"
)


class StopTraining(BaseException):
    """Raised by `report` when the training is to end. No Exception, so that `except Exception` lets it pass."""


# Errors that the caller of `report` causes: their tracebacks end in the line that calls it.
_OF_CALLER = (CheckpointError, OverflowError, StopTraining, TypeError)


@dataclass(frozen=True)
class Context:
    """The job, instance and folder of a training.

    Attributes:
        job_id: empty outside a job.
        instance: the name of the instance within the job.
        rank: the number of this process among all processes of the job, from 0.
        world_size: the number of processes of the job.
        local_rank: the number of this process on its instance.
        folder: the run's folder, with `checkpoints`, `tensorboard` and the other outputs.
        hyperparameters: name to value as a string.
    """

    job_id: str = ""
    instance: str = ""
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    folder: Path | None = None
    hyperparameters: Mapping[str, str] = field(default_factory=dict)

    def get_world_rank(self) -> int:
        """Returns `rank`."""
        return self.rank

    def get_world_size(self) -> int:
        """Returns `world_size`."""
        return self.world_size

    def get_local_rank(self) -> int:
        """Returns `local_rank`."""
        return self.local_rank

    def get_trial_id(self) -> str:
        """Returns `job_id`."""
        return self.job_id

    def get_trial_name(self) -> str:
        """Returns `job_id`."""
        return self.job_id

    def get_trial_dir(self) -> Path | None:
        """Returns `folder`."""
        return self.folder

    def get_trial_logdir(self) -> Path | None:
        """Returns `folder`."""
        return self.folder

    @classmethod
    def of_environment(cls, variables: Mapping[str, str]) -> Context | None:
        """Returns the context that the variables of the job contract describe; None outside a job."""
        outputs = variables.get("PAI_OUTPUT_TENSORBOARD") or variables.get("PAI_OUTPUT_CHECKPOINTS")
        working_dir = variables.get("PAI_WORKING_DIR")
        if outputs:
            folder = Path(outputs).parent
        elif working_dir:
            folder = Path(working_dir).parent / "output"
        else:
            return None
        return cls(
            variables.get("PAI_TRAINING_JOB_ID", ""),
            variables.get("PAI_INSTANCE_NAME", ""),
            *_ranks(variables),
            folder,
            _hyperparameters(variables.get("PAI_HPS", "")),
        )


def _ranks(variables: Mapping[str, str]) -> tuple[int, int, int]:
    """Returns rank, number of processes and local rank, which launchers such as torchrun set for each process."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    rank, size, local = (int(value) if (value := variables.get(name, "")).isdecimal() else None for name in names)
    if rank is None and "TF_CONFIG" in variables:
        rank, size = _tensorflow_rank(variables["TF_CONFIG"])
    return rank or 0, size or 1, local or 0


def _tensorflow_rank(content: str) -> tuple[int, int]:
    """Returns rank and number of processes from TF_CONFIG: chief first, then other roles by name and number."""
    try:
        described = json.loads(content)
        cluster, task = described["cluster"], described["task"]
        roles = sorted(cluster, key=lambda role: (role not in ("chief", "master"), role))
        before = sum(len(cluster[role]) for role in roles[: roles.index(task["type"])])
        return before + int(task["index"]), sum(map(len, cluster.values()))
    except (ValueError, KeyError, TypeError):
        return 0, 1


def _hyperparameters(content: str) -> Mapping[str, str]:
    try:
        values = json.loads(content or "{}")
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


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


@dataclass(frozen=True)
class _Options:
    """The options of a report that has a checkpoint."""

    mode: str = "ASYNC"
    delete_source: bool = False
    copy: Callable[[Checkpoint, str], Any] | None = None
    validation: Callable[[Checkpoint], Mapping[str, Any] | None] | None = None

    def check(self, source: Path, target: Path) -> None:
        """Checks that the options fit together and fit the folders."""
        if self.mode not in MODES:
            raise CheckpointError(f"the mode {self.mode!r} is not known; it is one of {', '.join(MODES)}")
        if self.validation is not None and not callable(self.validation):
            raise CheckpointError(
                f"validation={self.validation!r} is no function; give one that takes the checkpoint and returns "
                "metrics"
            )
        is_same_folder = source.resolve() == target.resolve()
        if self.mode == "NO_UPLOAD" and not is_same_folder:
            raise CheckpointError(
                f"mode='NO_UPLOAD' is for a checkpoint that is in its place, {target}; {source} is elsewhere"
            )
        if self.copy is not None and is_same_folder:
            raise CheckpointError(f"checkpoint_upload_fn has nothing to copy: {target} is the checkpoint's place")


@dataclass(frozen=True)
class _Task:
    """A checkpoint to save."""

    source: FolderState
    target: Path
    step: int
    metrics: Mapping[str, float]
    options: _Options = field(default_factory=_Options)
    done: threading.Event = field(default_factory=threading.Event)
    launch: Mapping[str, Any] | None = None


class _Worker:
    """Runs actions one after the other, in a thread that is started for the first one."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._name = name
        self._failed = failed
        self._lock = threading.Lock()
        self._actions: queue.Queue[Callable[[], None] | None] = queue.Queue()  # of `_thread` only
        self._thread: threading.Thread | None = None

    def add(self, action: Callable[[], None]) -> None:
        # The lock orders `add` and `close`: an action is queued before the end marker, or starts another thread.
        with self._lock:
            if self._thread is None:
                # A new queue: the closed thread may still be busy, and its end marker must end no other thread.
                self._actions = queue.Queue()
                # A daemon: an interpreter that exits without `close` does not wait for an upload that hangs.
                self._thread = threading.Thread(
                    target=self._run, args=(self._actions,), name=self._name, daemon=True
                )
                self._thread.start()
            self._actions.put(action)

    @property
    def is_current_thread(self) -> bool:
        """True in an action of this worker."""
        return self._thread is threading.current_thread()

    def wait(self) -> None:
        """Waits for all actions added so far; returns at once in an action of this worker."""
        # An action that waits for its own worker would never return: a `validation` may call `get_checkpoint`.
        if self._thread is not None and not self.is_current_thread:
            done = threading.Event()
            self.add(done.set)
            done.wait()

    def close(self, deadline: float | None) -> None:
        """Runs the remaining actions until `deadline`, a monotonic time, and then raises CheckpointError."""
        with self._lock:
            thread, self._thread = self._thread, None
            actions = self._actions
        if thread is None:
            return
        actions.put(None)
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            count = actions.qsize()
            raise CheckpointError(f"{count} or more checkpoints are not saved or validated yet: no time is left")

    def _run(self, actions: queue.Queue[Callable[[], None] | None]) -> None:
        while True:
            action = actions.get()
            if action is None:
                return
            try:
                action()
            except BaseException as error:  # of any kind: the thread must survive, and the next report raises it
                self._failed(error)


_DEFAULT_OPTIONS = _Options()
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
        self._tensorboard = Path(layout.of_rank(layout.tensorboard, rank))
        self._checkpoints = Path(layout.of_rank(layout.checkpoints, rank))
        self._layout = layout
        self._events = EventWriter(self._tensorboard, source=self.context.instance)
        self._stops = self._is_entered = False
        self._has_warned = self._has_warned_of_wait = False
        self._unreported: _Task | None = None
        # The metrics of the last step, for its checkpoint; and the last checkpoint if it has no metrics yet.
        self._last_metrics: tuple[int | None, Mapping[str, Any]] = (None, {})
        self._bare: _Task | None = None
        self._launch: Launch | None = None
        if self.context.world_size > 1:
            size = self.context.world_size
            self._launch = Launch(Path(layout.checkpoints), self.context.job_id, rank, size, os.environ)
        self._must_record_start = rank > 0 and self._launch is not None
        self._has_saved = False
        self._create_workers()
        # Last, since a fork in another thread resets all sessions in the set.
        _sessions.add(self)

    def _create_workers(self) -> None:
        # Guards the step and its metrics, so that reports of several threads have one step each. Reentrant,
        # because a signal handler may report while its own thread holds the lock.
        self._lock = threading.RLock()
        self._unsaved: deque[_Task] = deque()
        self._saved = threading.Condition()  # guards `_unsaved`
        # Appended to by both workers, emptied by reports. Methods of a deque are atomic, so no lock is needed.
        self._failures: deque[tuple[str, BaseException]] = deque()
        saving, validating = "a checkpoint could not be saved", "the validation of a checkpoint failed"
        self._saver = _Worker("checkpoint-saver", lambda error: self._failures.append((saving, error)))
        self._validator = _Worker("checkpoint-validator", lambda error: self._failures.append((validating, error)))
        # Held by the worker that changes checkpoints. A rotation must not remove a checkpoint while metrics are
        # added to it.
        self._changes = threading.Lock()
        self._to_validate: set[Path] = set()

    def _reset_after_fork(self) -> None:
        """Replaces workers and locks after a fork."""
        # Threads do not exist in the child, and a lock of the parent may be held for ever. The parent saves its
        # pending checkpoints and reports its failures itself.
        self._create_workers()
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
        token = _bound.set(self)
        status = "Succeed"
        try:
            yield self
        except BaseException as error:
            status = _final_status(error)
            raise
        finally:
            _bound.reset(token)
            if not self._is_entered:
                self._end(status)
                with contextlib.suppress(OSError):
                    self._events.flush()

    def report(
        self,
        metrics: Mapping[str, Any],
        step: int | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        *,
        options: _Options = _DEFAULT_OPTIONS,
    ) -> None:
        """Record metrics and a checkpoint; arguments and errors as for the function `report`."""
        try:
            self._report(metrics, step, checkpoint, options)
        except _OF_CALLER as error:
            _truncate_traceback(error)
            raise

    def hparams(self, values: Mapping[str, Any]) -> None:
        """Write the hyperparameters of a run outside a job into its event file, for views that compare runs.

        Args:
            values: by name; lists and mappings are written as JSON.
        """
        plain = (bool, int, float, str, type(None))
        self._events.hparams(
            {k: v if isinstance(v, plain) else json.dumps(v, default=str) for k, v in values.items()}
        )

    def _report(
        self,
        metrics: Mapping[str, Any],
        step: int | None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None,
        options: _Options,
    ) -> None:
        if self._stops:
            raise StopTraining("the training is to end")
        if self._failures:
            self._raise_failure()
        if checkpoint is not None and options.mode != "SYNC":
            # Outside the lock: the wait may take minutes, and other threads must be able to report metrics
            # meanwhile.
            self._wait_for_room()
            if self._stops:
                raise StopTraining("the training is to end")
        with self._lock:
            if step is None:
                step = self._next_step()
            elif type(step) is not int:
                step = operator.index(step)
            # Checks the checkpoint first, so that a report that raises has recorded nothing.
            task = None if checkpoint is None else self._task(metrics, step, checkpoint, options)
            if metrics:
                self._record(metrics, step)
                if step == self._last_metrics[0] or self._bare is not None:
                    self._record_step_metrics(metrics, step)
                else:
                    self._last_metrics = (step, dict(metrics))
            self.last_step = step
            if task is not None:
                self._save(task)
            reported, before = task or self._unreported, self._unreported
            self._unreported = None
        # Outside the lock, and before the scheduler hears of the report: it may copy the checkpoint at once.
        if task is not None and task.options.mode == "SYNC":
            task.done.wait()
            if self._failures:
                self._unreported = before  # the next report passes it to the scheduler
                self._raise_failure()
        if self._must_record_start:
            self._record_start()
        if self.on_report is not None:
            target, saved = (None, None) if reported is None else (reported.target, reported.done)
            self.on_report(Report(dict(metrics), step, time.time(), target, saved))

    def _next_step(self) -> int:
        return (self.last_step or 0) + 1

    def _record_start(self) -> None:
        """Lets rank 0 know that this rank has started."""
        # In the background, since it reads and writes files.
        self._must_record_start = False
        if self._launch is not None:
            self._saver.add(self._launch.record_request)

    def _record_step_metrics(self, metrics: Mapping[str, Any], step: int) -> None:
        """Stores the metrics for the checkpoint of this step, or adds them to it if it has none."""
        earlier_step, earlier = self._last_metrics
        self._last_metrics = (step, {**earlier, **metrics} if earlier_step == step else dict(metrics))
        bare = self._bare
        if bare is not None and bare.step == step:
            self._bare = None
            self._saver.add(partial(self._add_to_saved, bare, _numbers(metrics)))

    def _metrics_of(self, step: int) -> Mapping[str, float]:
        last_step, metrics = self._last_metrics
        return _numbers(metrics) if last_step == step else {}

    def stop(self) -> None:
        """Make the next report raise `StopTraining`."""
        # Wakes `_wait_for_room`, so that a waiting report raises at once.
        self._stops = True
        with self._saved:
            self._saved.notify_all()

    def flush(self) -> None:
        """Appends all metrics reported so far to the event file."""
        self._events.flush()

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
            if self.context.rank == 0:
                self._launch.record_start(newest)
            elif newest is None:
                newest = self._launch.resume_point()
            else:
                newest = self._not_after_rank_0(newest, self._launch)
            self._must_record_start = False
        elif newest is None and self.context.rank:
            newest = latest_checkpoint(self._layout.checkpoints)
        self._continue_from(newest)
        return newest

    def _not_after_rank_0(self, newest: Checkpoint, launch: Launch) -> Checkpoint | None:
        """Returns the newest checkpoint of this rank with a step that rank 0 has reached, when a job restarts."""
        reached = launch.step_of_rank_0()
        if self._has_saved or reached is None or (newest.step or 0) <= reached:
            return newest
        usable = (
            checkpoint
            for checkpoint in complete_checkpoints(self._checkpoints)
            if (checkpoint.step or 0) <= reached
        )
        return next(usable, None) or launch.resume_point()

    def _continue_from(self, checkpoint: Checkpoint | None) -> None:
        """Makes the first report without a step the one after a checkpoint."""
        with self._lock:
            if checkpoint is not None and self.last_step is None:
                self.last_step = checkpoint.step

    def checkpoints(self, consistency_mode: str | None = None) -> list[Checkpoint]:
        """Returns all complete checkpoints, the earliest step first; see `get_all_reported_checkpoints`."""
        mode = getattr(consistency_mode, "name", consistency_mode)
        if mode is not None and mode not in CONSISTENCIES:
            raise CheckpointError(
                f"the consistency {mode!r} is not known; it is one of {', '.join(CONSISTENCIES)}"
            )
        if mode is not None:
            self._saver.wait()
        if mode == "VALIDATED":
            self._validator.wait()
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
        numbers = _numbers(metrics or {})
        step = self._next_step() if step is None else step
        folder = self._folder_of(step)
        step = operator.index(step)
        self._wait_for_room()
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
            task = _Task(state, folder, step, numbers or self._metrics_of(step), launch=launch)
            self._unreported = task
            self._save(task)

    def wait_until_saved(self, timeout_s: float) -> tuple[int, str] | None:
        """Wait until all checkpoints are saved and validated.

        Returns:
            The step of a checkpoint that is not, and its missing state: `saved` or `validated`. None if all are
            done.
        """
        with self._saved:
            # A checkpoint moves from `_unsaved` to `_to_validate` before it leaves `_unsaved`, so none is missed
            # in between.
            self._saved.wait_for(lambda: not self._unsaved and not self._to_validate, timeout_s)
            if self._unsaved:
                return self._unsaved[0].step, "saved"
            return next(((int(path.name), "validated") for path in list(self._to_validate)), None)

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
            self._validator.close(deadline)  # second, because the saver adds validations
            self._raise_failure()
        except CheckpointError:
            status = "Failed"
            raise
        finally:
            self._end(status)
            try:
                self._events.close()
            except OSError as error:
                self._warn(error)

    def _end(self, status: str) -> None:
        if self is not _job_session:  # the status of a job is known to its backend only
            self._events.end(status)

    def _record(self, metrics: Mapping[str, Any], step: int, *, is_flat: bool = False) -> None:
        try:
            self._events.scalars(metrics, step)
            return
        except TypeError:
            if is_flat:
                raise
        except OSError as error:
            # A full disk does not end the training: pending events are written when there is space again.
            if self._events.is_full:
                raise
            self._warn(error)
            return
        # Outside the `except` block, or the TypeError would be shown as the context of the next error.
        if flat := _flat(metrics):
            self._record(flat, step, is_flat=True)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("the metrics cannot be written to %s now: %s", self._tensorboard, error)

    def _task(self, metrics: Mapping[str, Any], step: int, checkpoint: Any, options: _Options) -> _Task:
        folder = Path(_folder_of(checkpoint))
        source, target = FolderState.of(folder), self._folder_of(step)
        options.check(folder, target)
        if options.mode == "ASYNC" and _is_temporary(folder, but_for=target):
            # The caller removes the folder soon after the report, before a copy in the background is complete.
            options = replace(options, mode="SYNC")
        of_step = _numbers(metrics) or self._metrics_of(step)
        return _Task(source, target, step, of_step, options, launch=self._stamp())

    def _stamp(self) -> Mapping[str, Any] | None:
        """Returns the launch for the marker of a checkpoint of rank 0; None in other ranks."""
        # Checkpoints of other ranks are private.
        return None if self._launch is None or self.context.rank else self._launch.stamp()

    def _folder_of(self, step: int) -> Path:
        # The layout checks the step. The folder is that of this rank.
        return self._checkpoints / Path(self._layout.checkpoint(step)).name

    def _save(self, task: _Task) -> None:
        self._bare = None if task.metrics else task
        with self._saved:
            self._unsaved.append(task)
        self._saver.add(partial(self._save_now, task))

    def _wait_for_room(self) -> None:
        """Waits while many checkpoints are not saved yet, unless the training is to end."""
        with self._saved:
            if (
                len(self._unsaved) < _MAX_UNSAVED
                or self._saver.is_current_thread
                # A worker that waits for itself would never finish: a `validation` may report checkpoints.
                or self._validator.is_current_thread
            ):
                return
            if not self._has_warned_of_wait:
                self._has_warned_of_wait = True
                logger.warning(
                    "%s checkpoints are not saved yet, so the training waits: it reports them faster than they "
                    "can be copied to %s; save fewer of them",
                    len(self._unsaved), self._checkpoints,
                )  # fmt: skip
            self._saved.wait_for(lambda: len(self._unsaved) < _MAX_UNSAVED or self._stops)

    def _save_now(self, task: _Task) -> None:
        options = task.options
        try:
            with self._changes:
                saved = save(
                    task.source,
                    task.target,
                    step=task.step,
                    metrics=task.metrics,
                    copy=options.copy,
                    launch=task.launch,
                )
                self._has_saved = True
                # Registered before the rotation, which must not remove a checkpoint that is about to be validated.
                if options.validation is not None:
                    self._to_validate.add(task.target)
                    self._validator.add(partial(self._validate, saved, task))
                self._rotate()
                if task.launch is not None and self._launch is not None:
                    self._launch.saved(task.launch)
            if options.delete_source and task.source.root.resolve() != task.target.resolve():
                shutil.rmtree(task.source.root)
        finally:
            # After the rotation: when a waiter continues, the folder of checkpoints is in its final state.
            with self._saved:
                self._unsaved.remove(task)
                self._saved.notify_all()
            task.done.set()

    def _validate(self, saved: Checkpoint, task: _Task) -> None:
        assert task.options.validation is not None  # noqa: S101 # for the type checker
        numbers: Mapping[str, float] = {}
        try:
            metrics = task.options.validation(saved)
            if metrics is not None and not isinstance(metrics, Mapping):
                raise TypeError(f"it returned {metrics!r}, not a mapping of metrics")
            numbers = _numbers(metrics or {})
            if numbers:
                self._record(numbers, task.step)
        finally:
            with self._changes:
                self._to_validate.discard(task.target)
                # Removed from `_to_validate` first, so that the rotation below can remove a checkpoint with bad
                # metrics.
                add_metrics(saved, numbers)
                self._rotate()
            with self._saved:
                self._saved.notify_all()

    def _add_to_saved(self, task: _Task, metrics: Mapping[str, float]) -> None:
        with self._changes:
            saved = read_checkpoint(task.target)
            if saved is not None:
                add_metrics(saved, metrics)
                self._rotate()

    def _rotate(self) -> None:
        retained = None if self._launch is None else self._launch.retained_folder
        rotate(
            self._checkpoints, self.checkpoint_config, held={*self._to_validate, *([retained] if retained else [])}
        )

    def _raise_failure(self) -> None:
        if not self._failures:
            return
        # Only one error can be raised; the other ones are logged, so that none is lost.
        message, error = self._failures.popleft()
        while self._failures:
            logger.error("%s: %s", *self._failures.popleft())
        raise CheckpointError(f"{message}: {error}") from error


def _final_status(error: object) -> str:
    """Returns the status of a run from the error that has ended its block."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "Succeed"
    return "Terminated" if isinstance(error, (StopTraining, KeyboardInterrupt, GeneratorExit)) else "Failed"


# A context variable: each thread, and each task of asyncio, can have its own session.
_bound: ContextVar[ReportSession | None] = ContextVar("pai_sdk_report_session", default=None)
_job_lock = threading.Lock()
_job_session: ReportSession | None = None
_has_warned = False


def _session() -> ReportSession | None:
    """Returns the session that is bound to this context, or the session of the job, or None."""
    # Without the lock: the job's session is set once, and never replaced.
    return _bound.get() or _job_session or _start_job_session()


def _start_job_session() -> ReportSession | None:
    global _job_session
    # Two threads may make the first report at the same time; only one of them creates the session.
    with _job_lock:
        if _job_session is None:
            context = Context.of_environment(os.environ)
            if context is None or context.folder is None:
                _warn_once()
                return None
            _job_session = ReportSession(context.folder, context=context)
            atexit.register(_close_job_session)
        return _job_session


def _warn_once() -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        logger.warning(_NO_SESSION)


def _close_job_session() -> None:
    """Saves the remaining checkpoints at exit; the job fails if one cannot be saved."""
    if _job_session is None:
        return
    try:
        _job_session.close()
    except CheckpointError:
        # An exception of an atexit handler does not change the exit code, so the process ends by `os._exit`, which
        # flushes nothing by itself.
        logger.exception("the job fails, because its last checkpoints are missing")
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(_EXIT_CODE)


def _reset_after_fork() -> None:
    """Replaces the locks and workers of all sessions in a forked process."""
    global _job_lock
    _job_lock = threading.Lock()
    for session in list(_sessions):
        session._reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def report(
    metrics: Mapping[str, Any] | None = None,
    step: int | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    *,
    checkpoint_upload_mode: str = "ASYNC",
    delete_local_checkpoint_after_upload: bool | None = False,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_fn: Callable[[Checkpoint, str], Any] | None = None,
    validation: Callable[[Checkpoint], Mapping[str, Any] | None] | None = None,
    **more: Any,
) -> None:
    """Record metrics, and a checkpoint.

    It does not wait, unless a scheduler has requested lock-step, or four checkpoints are not saved yet.

    Outside a job and a session, the first call logs a warning, and no call has an effect; metrics and step are
    checked as in a job.

    Args:
        metrics: name to number, also of NumPy or another library, or an array with one element. A
            nested mapping becomes names with `/`. NaN and infinities are recorded for TensorBoard only.
        step: of the training; by default one more than the last one, and 1 at first.
        checkpoint: a folder. In the background it is copied to the run's `checkpoints/<step>`, and complete there
            when its marker is written. It must not change before that. It stores the metrics of this report, or
            else those of other reports of the same step.
        checkpoint_upload_mode: `ASYNC`, or `SYNC` to wait for the copy, or `NO_UPLOAD` for a folder that is
            `checkpoints/<step>` already, which only gets its marker. For a folder of `tempfile`, `ASYNC` means
            `SYNC`, since it is removed soon.
        delete_local_checkpoint_after_upload: remove the folder when it is copied.
        checkpoint_dir_name: letters and the step, such as `checkpoint_000012`; the folder is named by the step.
        checkpoint_upload_fn: called in the background instead of the copy, with the checkpoint and the path of the
            empty folder that it fills.
        validation: called in the background with the complete checkpoint. The metrics that it returns are recorded
            at the same step and stored with the checkpoint, which is not removed before.
        more: metrics as keywords.

    Raises:
        TypeError: a metric is no number.
        OverflowError: a number is too large for a float64, or the step for an int64.
        CheckpointError: this checkpoint is no folder with files, or an earlier one could not be saved.
        StopTraining: the training is to end.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder, ReportSession(folder) as session, session.bound():
        ...     report({"loss": 0.5, "eval": {"accuracy": 0.9}}, step=1)
    """
    session = _bound.get() or _job_session or _start_job_session()
    if more:
        metrics = {**(metrics or {}), **more}
    try:
        if session is None:  # raises outside a job too, so that the error shows before the job is submitted
            check_scalars(_flat(metrics or {}), 1 if step is None else step)
            return
        if checkpoint is None and not validation:
            session.report(metrics or {}, step)
            return
        if checkpoint is None:
            raise CheckpointError("validation needs a checkpoint: give it in the same report")
        if checkpoint_dir_name is not None:
            step = _step_from_name(checkpoint_dir_name, step)
        options = _Options(
            getattr(checkpoint_upload_mode, "name", checkpoint_upload_mode),
            bool(delete_local_checkpoint_after_upload),
            checkpoint_upload_fn,
            validation or None,
        )
        session.report(metrics or {}, step, checkpoint, options=options)
    except _OF_CALLER as error:
        _truncate_traceback(error)
        raise


def _truncate_traceback(error: BaseException) -> None:
    """Makes a traceback end in the line that calls `report` (from Python 3.11 on); logs the full one at DEBUG."""
    logger.debug("the whole traceback of the error that follows", exc_info=error)
    error.__traceback__ = None


def _step_from_name(name: str, step: int | None) -> int:
    match = re.fullmatch("[A-Za-z_-]*([0-9]+)", name, re.ASCII)
    if match is None or step not in (None, int(match[1])):
        raise CheckpointError(
            f"checkpoint_dir_name={name!r} does not name the step: folders of checkpoints are named by their "
            "steps; leave it out and give step=…, or name it like 'checkpoint_000012'"
        )
    return int(match[1])


def get_checkpoint() -> Checkpoint | None:
    """Returns the checkpoint to continue from: the complete one of the latest step; None at the start.

    Waits until the checkpoints reported by this process are saved. In a job of several processes, checkpoints that
    rank 0 has saved since the job started are visible to other ranks when all ranks have requested one.

    Example:
        >>> get_checkpoint() is None
        True
    """
    session = _session()
    return None if session is None else session.checkpoint()


def get_all_reported_checkpoints(consistency_mode: str | None = None) -> list[Checkpoint]:
    """Returns all complete checkpoints of the run, the earliest step first.

    Args:
        consistency_mode: `COMMITTED` waits until all reported checkpoints are complete, `VALIDATED` also until
            their validations have finished; by default, there is no wait.

    Raises:
        CheckpointError: the mode is not one of these.
    """
    session = _session()
    return [] if session is None else session.checkpoints(consistency_mode)


@contextlib.contextmanager
def checkpoint_dir(step: int | None = None, metrics: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """An empty folder that becomes the checkpoint of a step when the block ends, without a copy.

    After an error within the block it is removed. If the step has a complete checkpoint already, the folder lies
    beside it and replaces it at the end of the block. Outside a job and a session, it is a temporary folder.

    Args:
        step: of the training; by default the one that the next report has.
        metrics: stored with the checkpoint. They are not reported.

    Example:
        >>> with checkpoint_dir(step=3) as folder:
        ...     _ = (folder / "weights").write_text("1.0")
    """
    session = _session()
    if session is None:
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            yield Path(folder)
        return
    with session.checkpoint_dir(step, metrics) as path:
        yield path


def set_checkpoint_config(config: CheckpointConfig) -> None:
    """Keep the best checkpoints and the latest one; all others are removed, from the job's output URI too.

    It is applied to all checkpoints of the run, whenever one is complete. Outside a job and a session, it has no
    effect.

    Args:
        config: which are kept.

    Example:
        >>> set_checkpoint_config(CheckpointConfig(num_to_keep=3, score_attribute="loss", score_order="min"))
    """
    session = _session()
    if session is not None:
        session.checkpoint_config = config


def get_context() -> Context:
    """Returns the context of this code: job, instance, rank, folder, hyperparameters.

    Example:
        >>> get_context().world_size
        1
    """
    session = _session()
    return Context() if session is None else session.context


def is_session_enabled() -> bool:
    """Returns True if `report` has an effect: in a job, in a run of a function, in the block of a session.

    Example:
        >>> is_session_enabled()
        False
    """
    return current_context() is not None


def current_context() -> Context | None:
    """Returns the context without starting the job's session; None outside a job, a run and a session."""
    session = _bound.get() or _job_session
    return Context.of_environment(os.environ) if session is None else session.context


def _folder_of(checkpoint: Any) -> str:
    path = checkpoint if isinstance(checkpoint, (str, os.PathLike)) else getattr(checkpoint, "path", None)
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"a checkpoint is the path of a folder, not {type(checkpoint).__name__}; write the state into files"
        )
    return os.fspath(path)


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


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: as_float64(name, value) for name, value in _flat(metrics).items()}


def _flat(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the metrics with nested mappings as names with `/`, and arrays with one element as numbers."""
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of the metric {prefix}{name!r} is not a string")
        if isinstance(value, Mapping):
            inner = _flat(value, f"{prefix}{name}/")
        else:
            item = getattr(value, "item", None)
            inner = {prefix + name: item() if callable(item) and getattr(value, "size", 0) == 1 else value}
        clashing = flat.keys() & inner.keys()
        if clashing:
            raise TypeError(f"two metrics have the name {', '.join(sorted(clashing))}")
        flat.update(inner)
    return flat
