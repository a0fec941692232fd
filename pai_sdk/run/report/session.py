"""Reports from inside a training: metrics and checkpoints, wherever it runs.

`report({"loss": 0.1}, step=3)` is the same call in a job of any backend and in a function in a notebook. A
`ReportSession` takes it: in a job that of the job, which finds its folders by the variables of the job contract;
in a function the one that is bound to its thread. This module is shipped with jobs: standard library only, syntax
of Python 3.8.
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

from pai_sdk.errors import CheckpointError
from pai_sdk.run.events.writer import EventWriter, as_float64, check_scalars
from pai_sdk.run.report.checkpoints import (
    Checkpoint,
    CheckpointConfig,
    FolderState,
    add_metrics,
    begin,
    complete_checkpoints,
    give_up,
    latest_checkpoint,
    read_checkpoint,
    rotate,
    save,
)
from pai_sdk.run.report.launch import Launch
from pai_sdk.run.report.layout import RunLayout

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
_MOST_UNSAVED = 4  # checkpoints; at the end of a training, all of them are waited for
_TEMPORARY_NAME = re.compile("tmp[a-z0-9_]{8}")  # those of `tempfile.mkdtemp`
_EXIT_CODE = 1  # of a process whose last checkpoint could not be saved
_NO_SESSION = (
    "this code runs outside a job, so report() and the functions beside it have no effect; within "
    "`with ReportSession(folder).bound():` metrics and checkpoints are kept in a folder"
)


class StopTraining(BaseException):
    """Raised by `report` when the training is to end. No Exception, so that `except Exception` lets it pass."""


# Errors of `report` that are about the call: their tracebacks end in the line that calls it.
_OF_CALLER = (CheckpointError, OverflowError, StopTraining, TypeError)


@dataclass(frozen=True)
class Context:
    """The job, instance and folder of a training.

    Attributes:
        job_id: of the job; empty outside a job.
        instance: the name of the instance within the job.
        rank: the number of this process among all of the job, from 0.
        world_size: how many there are.
        local_rank: the number of this process on its instance.
        folder: the run's folder, with `checkpoints`, `tensorboard` and the other outputs.
        hyperparameters: name to value as text.
    """

    job_id: str = ""
    instance: str = ""
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    folder: Path | None = None
    hyperparameters: Mapping[str, str] = field(default_factory=dict)

    def get_world_rank(self) -> int:
        """The same as `rank`."""
        return self.rank

    def get_world_size(self) -> int:
        """The same as `world_size`."""
        return self.world_size

    def get_local_rank(self) -> int:
        """The same as `local_rank`."""
        return self.local_rank

    def get_trial_id(self) -> str:
        """The same as `job_id`."""
        return self.job_id

    def get_trial_name(self) -> str:
        """The same as `job_id`."""
        return self.job_id

    def get_trial_dir(self) -> Path | None:
        """The same as `folder`."""
        return self.folder

    def get_trial_logdir(self) -> Path | None:
        """The same as `folder`."""
        return self.folder

    @classmethod
    def of_environment(cls, variables: Mapping[str, str]) -> Context | None:
        """The context that the variables of the job contract describe; None outside a job."""
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
    """Rank, number of processes and local rank; launchers such as torchrun set them for each process."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    rank, size, local = (int(text) if (text := variables.get(name, "")).isdecimal() else None for name in names)
    if rank is None and "TF_CONFIG" in variables:
        rank, size = _tensorflow_rank(variables["TF_CONFIG"])
    return rank or 0, size or 1, local or 0


def _tensorflow_rank(text: str) -> tuple[int, int]:
    """The rank in TensorFlow's description of a cluster: chief first, then the others by role and number."""
    try:
        described = json.loads(text)
        cluster, task = described["cluster"], described["task"]
        roles = sorted(cluster, key=lambda role: (role not in ("chief", "master"), role))
        before = sum(len(cluster[role]) for role in roles[: roles.index(task["type"])])
        return before + int(task["index"]), sum(map(len, cluster.values()))
    except (ValueError, KeyError, TypeError):
        return 0, 1


def _hyperparameters(text: str) -> Mapping[str, str]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Report:
    """One call of `report`, as a scheduler sees it."""

    metrics: Mapping[str, Any]
    step: int
    time: float
    checkpoint: Path | None = None
    """Reported with it, or saved by `checkpoint_dir` since the report before."""
    saved: threading.Event | None = None
    """Set when the checkpoint is complete, or could not be saved."""


@dataclass(frozen=True)
class _Options:
    """The actions on the folder of a report."""

    mode: str = "ASYNC"
    delete_source: bool = False
    copy: Callable[[Checkpoint, str], Any] | None = None
    validation: Callable[[Checkpoint], Mapping[str, Any] | None] | None = None

    def check(self, source: Path, target: Path) -> None:
        """See that they go together."""
        if self.mode not in MODES:
            raise CheckpointError(f"the mode {self.mode!r} is not known; it is one of {', '.join(MODES)}")
        if self.validation is not None and not callable(self.validation):
            raise CheckpointError(
                f"validation={self.validation!r} is no function; give one that takes the checkpoint and returns "
                "metrics"
            )
        is_in_place = source.resolve() == target.resolve()
        if self.mode == "NO_UPLOAD" and not is_in_place:
            raise CheckpointError(
                f"mode='NO_UPLOAD' is for a checkpoint that is in its place, {target}; {source} is elsewhere"
            )
        if self.copy is not None and is_in_place:
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
    """Does one action after the other, in a thread that is started with the first one."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._name = name
        self._failed = failed
        self._lock = threading.Lock()
        self._actions: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    def add(self, action: Callable[[], None]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._actions.put(action)

    @property
    def is_here(self) -> bool:
        """True if an action of this worker asks."""
        return self._thread is threading.current_thread()

    def wait(self) -> None:
        """Wait for all that was added, unless an action of this worker asks for it."""
        if self._thread is not None and not self.is_here:
            done = threading.Event()
            self.add(done.set)
            done.wait()

    def close(self, deadline: float | None) -> None:
        """Do the rest; `deadline` is a monotonic time.

        Raises:
            CheckpointError: there is not enough time.
        """
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return
        self._actions.put(None)
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            count = self._actions.qsize()
            raise CheckpointError(f"{count} or more checkpoints are not saved or validated yet: no time is left")

    def _run(self) -> None:
        while True:
            action = self._actions.get()
            if action is None:
                return
            try:
                action()
            except BaseException as error:  # raised by the next report, whatever it is
                self._failed(error)


_DEFAULT_OPTIONS = _Options()
_sessions: weakref.WeakSet[ReportSession] = weakref.WeakSet()


class ReportSession:
    """Takes the reports of one training. Sessions share nothing; each is safe to use from several threads.

    Args:
        folder: the run's folder. Events go to its `tensorboard`, checkpoints to its `checkpoints`.
        context: what `get_context` returns; by default, rank 0 of 1 in this folder.
        on_report: called with each report in the thread that reports, after it was recorded. A scheduler that runs
            in lock-step waits in it, or raises `StopTraining`.
        checkpoint_config: which checkpoints are kept; all by default.

    Attributes:
        checkpoint_config: the same; applied whenever a checkpoint is complete.

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
        # One process is the run as TensorBoard and `get_checkpoint` see it; the others are beside it.
        self._tensorboard = Path(layout.of_rank(layout.tensorboard, rank))
        self._checkpoints = Path(layout.of_rank(layout.checkpoints, rank))
        self._layout = layout
        self._events = EventWriter(self._tensorboard, source=self.context.instance)
        self._stops = self._is_entered = False
        self._has_warned = self._has_warned_of_wait = False
        self._unreported: _Task | None = None
        # The metrics of the last step, for its checkpoint; and the last checkpoint if it has none yet.
        self._of_step: tuple[int | None, Mapping[str, Any]] = (None, {})
        self._bare: _Task | None = None
        self._launch: Launch | None = None
        if self.context.world_size > 1:
            size = self.context.world_size
            self._launch = Launch(Path(layout.checkpoints), self.context.job_id, rank, size, os.environ)
        self._is_to_note = rank > 0 and self._launch is not None
        self._has_saved = False
        self._begin_workers()
        _sessions.add(self)

    def _begin_workers(self) -> None:
        # Of the step and what belongs to it, so that reports of several threads have one step each. A signal
        # handler may report while its own thread holds it.
        self._lock = threading.RLock()
        self._unsaved: deque[_Task] = deque()
        self._saved = threading.Condition()  # guards `_unsaved`
        self._failures: deque[tuple[str, BaseException]] = deque()
        saving, validating = "a checkpoint could not be saved", "the validation of a checkpoint failed"
        self._saver = _Worker("checkpoint-saver", lambda error: self._failures.append((saving, error)))
        self._validator = _Worker("checkpoint-validator", lambda error: self._failures.append((validating, error)))
        # Only one of the two changes checkpoints at a time.
        self._changes = threading.Lock()
        self._to_validate: set[Path] = set()

    def _begin_in_child(self) -> None:
        """After a fork: the threads that save checkpoints are the parent's, and so are their failures."""
        self._begin_workers()
        if self._launch is not None:
            self._launch.renew_lock()

    def __enter__(self) -> ReportSession:
        self._is_entered = True
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self._close(None, _end_status(error))
        except CheckpointError:
            if kind is None:  # an error of the training itself is the one to raise
                raise
            logger.exception("checkpoints of the failed training are missing")

    @contextlib.contextmanager
    def bound(self) -> Iterator[ReportSession]:
        """Within the block, and in this thread, `report` and the other functions use this session.

        Another thread of the same training enters a block of its own. If there is no `with` block of the session
        around it, the run has ended with the block, until the next report.
        """
        token = _bound.set(self)
        status = "Succeed"
        try:
            yield self
        except BaseException as error:
            status = _end_status(error)
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
            _end_at_caller(error)
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
            self._wait_for_room()
            if self._stops:
                raise StopTraining("the training is to end")
        with self._lock:
            if step is None:
                step = self._next_step()
            elif type(step) is not int:
                step = operator.index(step)
            # What is wrong with the checkpoint is found before anything is recorded.
            task = None if checkpoint is None else self._task(metrics, step, checkpoint, options)
            if metrics:
                self._record(metrics, step)
                if step == self._of_step[0] or self._bare is not None:
                    self._note(metrics, step)
                else:
                    self._of_step = (step, dict(metrics))
            self.last_step = step
            if task is not None:
                self._save(task)
            reported, before = task or self._unreported, self._unreported
            self._unreported = None
        if task is not None and task.options.mode == "SYNC":
            task.done.wait()
            if self._failures:
                self._unreported = before  # the next report hands it over
                self._raise_failure()
        if self._is_to_note:
            self._leave_note()
        if self.on_report is not None:
            target, saved = (None, None) if reported is None else (reported.target, reported.done)
            self.on_report(Report(dict(metrics), step, time.time(), target, saved))

    def _next_step(self) -> int:
        return (self.last_step or 0) + 1

    def _leave_note(self) -> None:
        """Let rank 0 know that this rank has begun; in the background, since files are looked at."""
        self._is_to_note = False
        if self._launch is not None:
            self._saver.add(self._launch.note)

    def _note(self, metrics: Mapping[str, Any], step: int) -> None:
        """Keep the metrics for the checkpoint of this step, or give them to it if it has none."""
        earlier_step, earlier = self._of_step
        self._of_step = (step, {**earlier, **metrics} if earlier_step == step else dict(metrics))
        bare = self._bare
        if bare is not None and bare.step == step:
            self._bare = None
            self._saver.add(partial(self._add_to_saved, bare, _numbers(metrics)))

    def _of_this_step(self, step: int) -> Mapping[str, float]:
        noted_step, noted = self._of_step
        return _numbers(noted) if noted_step == step else {}

    def stop(self) -> None:
        """Make the next report raise `StopTraining`."""
        self._stops = True
        with self._saved:
            self._saved.notify_all()

    def flush(self) -> None:
        """Append to the file all metrics reported so far."""
        self._events.flush()

    def checkpoint(self) -> Checkpoint | None:
        """The complete checkpoint of the latest step: of this rank, or else of rank 0. None without one.

        Waits until the checkpoints that this session has taken are saved, so that the latest one is seen. Of the
        checkpoints of rank 0, another rank sees those that were complete when the launch began, until all ranks
        have asked. Before this session has saved a checkpoint, its rank does not get a later step than rank 0.

        Raises:
            CheckpointError: the checkpoint that this launch began with was removed.
        """
        self._saver.wait()
        found = latest_checkpoint(self._checkpoints)
        if self._launch is not None:
            if self.context.rank == 0:
                self._launch.begin(found)
            elif found is None:
                found = self._launch.resume_point()
            else:
                found = self._not_after_rank_0(found, self._launch)
            self._is_to_note = False
        elif found is None and self.context.rank:
            found = latest_checkpoint(self._layout.checkpoints)
        self._go_on_from(found)
        return found

    def _not_after_rank_0(self, newest: Checkpoint, launch: Launch) -> Checkpoint | None:
        """The newest checkpoint of this rank with a step that rank 0 has reached, when a job begins again."""
        reached = launch.step_of_rank_0()
        if self._has_saved or reached is None or (newest.step or 0) <= reached:
            return newest
        usable = (found for found in complete_checkpoints(self._checkpoints) if (found.step or 0) <= reached)
        return next(usable, None) or launch.resume_point()

    def _go_on_from(self, found: Checkpoint | None) -> None:
        """Let the first report without a step be the one after a checkpoint."""
        with self._lock:
            if found is not None and self.last_step is None:
                self.last_step = found.step

    def checkpoints(self, consistency_mode: str | None = None) -> list[Checkpoint]:
        """All complete checkpoints, the earliest step first; arguments as for `get_all_reported_checkpoints`."""
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
        launch = self._stamp()
        if folder.exists():
            self._saver.wait()  # it may be a checkpoint of this step that is being saved
        place = begin(folder)
        try:
            yield place
        except BaseException:
            give_up(place)
            raise
        state = FolderState.of(place)
        with self._lock:
            task = _Task(state, folder, step, numbers or self._of_this_step(step), launch=launch)
            self._unreported = task
            self._save(task)

    def wait_until_saved(self, timeout_s: float) -> tuple[int, str] | None:
        """Wait until all checkpoints are saved and validated.

        Returns:
            The step of one that is not, and what it is not: `saved` or `validated`. None if there is no such one.
        """
        with self._saved:
            self._saved.wait_for(lambda: not self._unsaved and not self._to_validate, timeout_s)
            if self._unsaved:
                return self._unsaved[0].step, "saved"
            return next(((int(path.name), "validated") for path in list(self._to_validate)), None)

    def close(self, deadline_s: float | None = None) -> None:
        """Save the rest of the metrics and checkpoints. Reports raise `StopTraining` afterwards.

        The event file then says that the run has ended: as `Succeed`, or as `Failed` if a checkpoint could not be
        saved. A `with` block ends as `Failed` after an error, and as `Terminated` after Ctrl-C or `StopTraining`.
        The run of a job has the status of its job instead.

        Args:
            deadline_s: the longest wait for checkpoints, in seconds; as long as they take by default.

        Raises:
            CheckpointError: a checkpoint could not be saved, or not in time.
        """
        self._close(deadline_s, "Succeed")

    def _close(self, deadline_s: float | None, status: str) -> None:
        self.stop()
        deadline = None if deadline_s is None else time.monotonic() + deadline_s
        try:
            self._saver.close(deadline)
            self._validator.close(deadline)  # after what the saver has added to it
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
        if self is not _job_session:  # the exit code of a job's process is not known here
            self._events.end(status)

    def _record(self, metrics: Mapping[str, Any], step: int, *, is_flat: bool = False) -> None:
        try:
            self._events.scalars(metrics, step)
            return
        except TypeError:
            if is_flat:
                raise
        except OSError as error:
            # A full disk is no reason to end a training: what is pending is written when there is space again.
            if self._events.is_full:
                raise
            self._warn(error)
            return
        if flat := _flat(
            metrics
        ):  # not where the error is handled, or its traceback would be shown with the next one
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
            options = replace(options, mode="SYNC")
        of_step = _numbers(metrics) or self._of_this_step(step)
        return _Task(source, target, step, of_step, options, launch=self._stamp())

    def _stamp(self) -> Mapping[str, Any] | None:
        """The launch for the marker of a checkpoint; only rank 0 saves what other ranks read."""
        return None if self._launch is None or self.context.rank else self._launch.stamp()

    def _folder_of(self, step: int) -> Path:
        return self._checkpoints / Path(self._layout.checkpoint(step)).name

    def _save(self, task: _Task) -> None:
        self._bare = None if task.metrics else task
        with self._saved:
            self._unsaved.append(task)
        self._saver.add(partial(self._save_now, task))

    def _wait_for_room(self) -> None:
        """Wait while many checkpoints are not saved yet, unless the training is to end."""
        with self._saved:
            if len(self._unsaved) < _MOST_UNSAVED or self._saver.is_here or self._validator.is_here:
                return
            if not self._has_warned_of_wait:
                self._has_warned_of_wait = True
                logger.warning(
                    "%s checkpoints are not saved yet, so the training waits: it reports them faster than they "
                    "can be copied to %s; save fewer of them",
                    len(self._unsaved), self._checkpoints,
                )  # fmt: skip
            self._saved.wait_for(lambda: len(self._unsaved) < _MOST_UNSAVED or self._stops)

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
                if options.validation is not None:
                    self._to_validate.add(task.target)
                    self._validator.add(partial(self._validate, saved, task))
                self._rotate()
                if task.launch is not None and self._launch is not None:
                    self._launch.saved(task.launch)
            if options.delete_source and task.source.root.resolve() != task.target.resolve():
                shutil.rmtree(task.source.root)
        finally:
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
        held = None if self._launch is None else self._launch.held
        rotate(self._checkpoints, self.checkpoint_config, held={*self._to_validate, *([held] if held else [])})

    def _raise_failure(self) -> None:
        if not self._failures:
            return
        what, error = self._failures.popleft()
        while self._failures:
            logger.error("%s: %s", *self._failures.popleft())
        raise CheckpointError(f"{what}: {error}") from error


def _end_status(error: object) -> str:
    """The status of a run whose block has ended, with the error that has ended it."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "Succeed"
    return "Terminated" if isinstance(error, (StopTraining, KeyboardInterrupt, GeneratorExit)) else "Failed"


_bound: ContextVar[ReportSession | None] = ContextVar("pai_sdk_report_session", default=None)
_job_lock = threading.Lock()
_job_session: ReportSession | None = None
_has_warned = False


def _session() -> ReportSession | None:
    """The session that is bound here, or that of the job, or none."""
    return _bound.get() or _job_session or _begin_job()


def _begin_job() -> ReportSession | None:
    global _job_session
    with _job_lock:
        if _job_session is None:
            context = Context.of_environment(os.environ)
            if context is None or context.folder is None:
                _warn_once()
                return None
            _job_session = ReportSession(context.folder, context=context)
            atexit.register(_end_job)
        return _job_session


def _warn_once() -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        logger.warning(_NO_SESSION)


def _end_job() -> None:
    """At the end of a job's process: a checkpoint that cannot be saved makes the job fail."""
    if _job_session is None:
        return
    try:
        _job_session.close()
    except CheckpointError:
        logger.exception("the job fails, because its last checkpoints are missing")
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(_EXIT_CODE)


def _begin_in_child() -> None:
    """After a fork, the parent saves its checkpoints, and the child its own."""
    global _job_lock
    _job_lock = threading.Lock()
    for session in list(_sessions):
        session._begin_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)


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

    It does not wait, unless a scheduler asked for lock-step, or four checkpoints are not saved yet.

    Outside a job and a session, the first call logs a warning, and no call has an effect; metrics and step are
    checked as in a job.

    Args:
        metrics: name to number. Numbers of other libraries, and their arrays with one element, are numbers too. A
            mapping in it becomes names with `/`. NaN and infinities are recorded for TensorBoard only.
        step: of the training; by default one more than the last one, and 1 at first.
        checkpoint: a folder. In the background it is copied to the run's `checkpoints/<step>`, and complete there
            when its marker is written. It must not change before that. It keeps the metrics of this report, or
            else those of the other reports of the same step.
        checkpoint_upload_mode: `ASYNC`, or `SYNC` to wait for the copy, or `NO_UPLOAD` for a folder that is
            `checkpoints/<step>` already, which only gets its marker. For a folder of `tempfile`, `ASYNC` is the
            same as `SYNC`, since it is removed soon.
        delete_local_checkpoint_after_upload: remove the folder when it is copied.
        checkpoint_dir_name: letters and the step, such as `checkpoint_000012`; the folder is named by the step.
        checkpoint_upload_fn: called in the background instead of the copy, with the checkpoint and the path of the
            empty folder that it fills.
        validation: called in the background with the complete checkpoint. The metrics that it returns are recorded
            at the same step, and kept with the checkpoint, which is not removed before.
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
    session = _bound.get() or _job_session or _begin_job()
    if more:
        metrics = {**(metrics or {}), **more}
    try:
        if session is None:  # what would end a job is an error here, too
            check_scalars(_flat(metrics or {}), 1 if step is None else step)
            return
        if checkpoint is None and not validation:
            session.report(metrics or {}, step)
            return
        if checkpoint is None:
            raise CheckpointError("validation needs a checkpoint: give it in the same report")
        if checkpoint_dir_name is not None:
            step = _step_named(checkpoint_dir_name, step)
        options = _Options(
            getattr(checkpoint_upload_mode, "name", checkpoint_upload_mode),
            bool(delete_local_checkpoint_after_upload),
            checkpoint_upload_fn,
            validation or None,
        )
        session.report(metrics or {}, step, checkpoint, options=options)
    except _OF_CALLER as error:
        _end_at_caller(error)
        raise


def _end_at_caller(error: BaseException) -> None:
    """Have a traceback end in the line that calls `report` (from Python 3.11 on); all of it is logged at DEBUG."""
    logger.debug("the whole traceback of the error that follows", exc_info=error)
    error.__traceback__ = None


def _step_named(name: str, step: int | None) -> int:
    found = re.fullmatch("[A-Za-z_-]*([0-9]+)", name, re.ASCII)
    if found is None or step not in (None, int(found[1])):
        raise CheckpointError(
            f"checkpoint_dir_name={name!r} does not name the step: folders of checkpoints are named by their "
            "steps; leave it out and give step=…, or name it like 'checkpoint_000012'"
        )
    return int(found[1])


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to go on from: the complete one of the latest step. None at the start of a training.

    Waits until the checkpoints reported here are saved. In a job of several processes, the checkpoints that rank 0
    has saved since the job began are seen by the other ranks when all have asked.

    Example:
        >>> get_checkpoint() is None
        True
    """
    session = _session()
    return None if session is None else session.checkpoint()


def get_all_reported_checkpoints(consistency_mode: str | None = None) -> list[Checkpoint]:
    """All complete checkpoints of the run, the earliest step first.

    Args:
        consistency_mode: `COMMITTED` waits until all that were reported are complete, `VALIDATED` also until their
            validations have ended; without it, there is no wait.

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
        metrics: kept with the checkpoint. They are not reported.

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
    """Keep the best checkpoints and the latest one; the others are removed, from the job's output URI too.

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
    """True if `report` has an effect here: in a job, in a run of a function, in the block of a session.

    Example:
        >>> is_session_enabled()
        False
    """
    return context_here() is not None


def context_here() -> Context | None:
    """The context, without beginning the job's session; None outside a job, a run and a session."""
    session = _bound.get() or _job_session
    return Context.of_environment(os.environ) if session is None else session.context


def _folder_of(checkpoint: Any) -> str:
    found = checkpoint if isinstance(checkpoint, (str, os.PathLike)) else getattr(checkpoint, "path", None)
    if not isinstance(found, (str, os.PathLike)):
        raise TypeError(
            f"a checkpoint is the path of a folder, not {type(checkpoint).__name__}; write the state into files"
        )
    return os.fspath(found)


def _is_temporary(folder: Path, *, but_for: Path) -> bool:
    """True if a folder is likely to be removed when `report` has returned: one of `tempfile`, or in one.

    Args:
        folder: absolute or not.
        but_for: what is around this one too is there for the whole run.
    """
    places = {folder.resolve(), *folder.resolve().parents} - set(but_for.resolve().parents)
    # The registry of finalizers has the name of each TemporaryDirectory that there is. Where a Python has no such
    # registry, their usual names are left to go by.
    finalizers = list(getattr(weakref.finalize, "_registry", {}).values())
    made = [info.args[0] for info in finalizers if info.args and _is_of_temporary_directory(info.func)]
    if any(Path(os.fsdecode(name)).resolve() in places for name in made):
        return True
    try:
        temporary = Path(tempfile.gettempdir()).resolve()
    except FileNotFoundError:  # an image without one
        return False
    return any(place.parent == temporary and _TEMPORARY_NAME.fullmatch(place.name) for place in places)


def _is_of_temporary_directory(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    return isinstance(owner, type) and issubclass(owner, tempfile.TemporaryDirectory)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: as_float64(name, value) for name, value in _flat(metrics).items()}


def _flat(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Mappings within metrics as names with `/`, and arrays with one element as numbers."""
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise TypeError(f"the metric {prefix}{name!r} has no text as its name")
        if isinstance(value, Mapping):
            inner = _flat(value, f"{prefix}{name}/")
        else:
            item = getattr(value, "item", None)
            inner = {prefix + name: item() if callable(item) and getattr(value, "size", 0) == 1 else value}
        clashing = found.keys() & inner.keys()
        if clashing:
            raise TypeError(f"two metrics have the name {', '.join(sorted(clashing))}")
        found.update(inner)
    return found
