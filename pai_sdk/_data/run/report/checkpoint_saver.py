"""Saves the checkpoints of a training in the background: copy, marker, validation, rotation.

This module is shipped with jobs: standard library only, syntax of Python 3.8.
"""

from __future__ import annotations

import logging
import queue
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pai_sdk._data.run.report.checkpoints import (
    Checkpoint,
    CheckpointConfig,
    FolderState,
    add_metrics,
    read_checkpoint,
    rotate,
    save,
)
from pai_sdk._data.run.report.launch import Launch
from pai_sdk._data.run.report.metrics import numbers_of
from pai_sdk.errors import CheckpointError

logger = logging.getLogger(__name__)

MODES = ("SYNC", "ASYNC", "NO_UPLOAD")
_MAX_UNSAVED = 4  # checkpoints; the end of a training waits for all of them


@dataclass(frozen=True)
class SaveOptions:
    """The options of a report that has a checkpoint."""

    mode: str = "ASYNC"
    delete_source: bool = False
    copy: Callable[[Checkpoint, str], Any] | None = None
    validation: Callable[[Checkpoint], Mapping[str, Any] | None] | None = None

    def check(self, source: Path, target: Path) -> None:
        """Checks that the options fit together and fit the folders."""
        if self.mode not in MODES:
            raise CheckpointError(f"unknown mode {self.mode!r}; available: {', '.join(MODES)}")
        if self.validation is not None and not callable(self.validation):
            raise CheckpointError(
                f"validation={self.validation!r} is not a function of the checkpoint that returns metrics"
            )
        is_same_folder = source.resolve() == target.resolve()
        if self.mode == "NO_UPLOAD" and not is_same_folder:
            raise CheckpointError(f"mode='NO_UPLOAD' requires the checkpoint to be in {target}, not in {source}")
        if self.copy is not None and is_same_folder:
            raise CheckpointError(
                f"checkpoint_upload_fn has nothing to copy: the checkpoint is already in {target}"
            )


@dataclass(frozen=True)
class SaveTask:
    """A checkpoint to save."""

    source: FolderState
    target: Path
    step: int
    metrics: Mapping[str, float]
    options: SaveOptions = field(default_factory=SaveOptions)
    done: threading.Event = field(default_factory=threading.Event)
    launch: Mapping[str, Any] | None = None


class CheckpointSaver:
    """Saves checkpoints into a folder one after the other, and validates them in a thread of its own.

    A failure is raised by `raise_failure` in the thread of the training. Each checkpoint may be removed by the
    rotation once it is saved, validated, and not needed by other ranks.

    Attributes:
        is_stopped: True after `stop`.
        has_saved: True once a checkpoint is complete.
        failures: what went wrong since the last `raise_failure`, with its error.
    """

    def __init__(
        self,
        folder: Path,
        *,
        config: Callable[[], CheckpointConfig],
        record: Callable[[Mapping[str, float], int], None],
        launch: Launch | None,
    ) -> None:
        self.is_stopped = False
        self.has_saved = False
        self._folder = folder
        self._config = config  # which checkpoints are kept
        self._record = record  # called with the metrics of a validation, and the step
        self._launch = launch
        self._has_warned_of_wait = False
        # The metrics of the last step, for its checkpoint; and the last checkpoint if it has no metrics yet.
        self._step_metrics: tuple[int | None, Mapping[str, Any]] = (None, {})
        self._bare: SaveTask | None = None
        self.renew()

    def renew(self) -> None:
        """Replaces workers and locks; also after a fork."""
        # Threads do not exist in the child, and a lock of the parent may be held for ever. The parent saves its
        # pending checkpoints and reports its failures itself.
        self._unsaved: deque[SaveTask] = deque()
        self._saved = threading.Condition()  # guards `_unsaved`
        # Appended to by both workers, emptied by reports. Methods of a deque are atomic, so no lock is needed.
        self.failures: deque[tuple[str, BaseException]] = deque()
        saving, validating = "a checkpoint could not be saved", "the validation of a checkpoint failed"
        self._saving = _Worker("checkpoint-saver", lambda error: self.failures.append((saving, error)))
        self._validating = _Worker("checkpoint-validator", lambda error: self.failures.append((validating, error)))
        # Held by the worker that changes checkpoints. A rotation must not remove a checkpoint while metrics are
        # added to it.
        self._changes = threading.Lock()
        self._to_validate: set[Path] = set()

    def save(self, task: SaveTask) -> None:
        """Saves a checkpoint in the background; under the lock of the session."""
        self._bare = None if task.metrics else task
        with self._saved:
            self._unsaved.append(task)
        self._saving.add(partial(self._save_now, task))

    def add_step_metrics(self, metrics: Mapping[str, Any], step: int) -> None:
        """Stores metrics for the checkpoint of this step, or with it if it has none; under the session's lock."""
        last_step, earlier = self._step_metrics
        self._step_metrics = (step, {**earlier, **metrics} if last_step == step else dict(metrics))
        bare = self._bare
        if bare is not None and bare.step == step:
            self._bare = None
            self._saving.add(partial(self._add_to_saved, bare, numbers_of(metrics)))

    def step_metrics(self, step: int) -> Mapping[str, float]:
        """Returns the metrics of the last step, if it is this one."""
        last_step, metrics = self._step_metrics
        return numbers_of(metrics) if last_step == step else {}

    def run(self, action: Callable[[], None]) -> None:
        """Runs an action in the background, after the checkpoints that were added before."""
        self._saving.add(action)

    def wait(self) -> None:
        """Waits until the checkpoints that were added are saved."""
        self._saving.wait()

    def wait_for_validations(self) -> None:
        """Waits until the checkpoints that were saved are validated."""
        self._validating.wait()

    def wait_for_room(self) -> None:
        """Waits while many checkpoints are not saved yet, unless the training was asked to stop."""
        with self._saved:
            if (
                len(self._unsaved) < _MAX_UNSAVED
                or self._saving.is_current_thread
                # A worker that waits for itself would never finish: a `validation` may report checkpoints.
                or self._validating.is_current_thread
            ):
                return
            if not self._has_warned_of_wait:
                self._has_warned_of_wait = True
                logger.warning(
                    "%s checkpoints are not saved yet, so the training waits: it reports them faster than they "
                    "can be copied to %s; save fewer of them",
                    len(self._unsaved), self._folder,
                )  # fmt: skip
            self._saved.wait_for(lambda: len(self._unsaved) < _MAX_UNSAVED or self.is_stopped)

    def wait_until_saved(self, timeout_s: float) -> tuple[int, str] | None:
        """Waits for all checkpoints; returns the step and the missing state of one that is not done."""
        with self._saved:
            # A checkpoint moves from `_unsaved` to `_to_validate` before it leaves `_unsaved`, so none is missed
            # in between.
            self._saved.wait_for(lambda: not self._unsaved and not self._to_validate, timeout_s)
            if self._unsaved:
                return self._unsaved[0].step, "saved"
            return next(((int(path.name), "validated") for path in list(self._to_validate)), None)

    def stop(self) -> None:
        """Ends `wait_for_room` in all threads."""
        self.is_stopped = True
        with self._saved:
            self._saved.notify_all()

    def close(self, deadline: float | None) -> None:
        """Saves and validates the rest until `deadline`, a monotonic time; raises the first failure."""
        self._saving.close(deadline)
        self._validating.close(deadline)  # second, because the first one adds validations
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises what went wrong in the background since the last call."""
        if not self.failures:
            return
        # Only one error can be raised; the other ones are logged, so that none is lost.
        message, error = self.failures.popleft()
        while self.failures:
            logger.error("%s: %s", *self.failures.popleft())
        raise CheckpointError(f"{message}: {error}") from error

    def _save_now(self, task: SaveTask) -> None:
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
                self.has_saved = True
                # Registered before the rotation, which must not remove a checkpoint that is about to be validated.
                if options.validation is not None:
                    self._to_validate.add(task.target)
                    self._validating.add(partial(self._validate, saved, task))
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

    def _validate(self, saved: Checkpoint, task: SaveTask) -> None:
        assert task.options.validation is not None  # noqa: S101 # for the type checker
        numbers: Mapping[str, float] = {}
        try:
            metrics = task.options.validation(saved)
            if metrics is not None and not isinstance(metrics, Mapping):
                raise TypeError(f"it returned {metrics!r}, not a mapping of metrics")
            numbers = numbers_of(metrics or {})
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

    def _add_to_saved(self, task: SaveTask, metrics: Mapping[str, float]) -> None:
        with self._changes:
            saved = read_checkpoint(task.target)
            if saved is not None:
                add_metrics(saved, metrics)
                self._rotate()

    def _rotate(self) -> None:
        retained = None if self._launch is None else self._launch.retained_folder
        rotate(self._folder, self._config(), held={*self._to_validate, *([retained] if retained else [])})


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
            raise CheckpointError(
                f"{count} or more checkpoints are not saved or validated yet: the deadline has passed"
            )

    def _run(self, actions: queue.Queue[Callable[[], None] | None]) -> None:
        while True:
            action = actions.get()
            if action is None:
                return
            try:
                action()
            except BaseException as error:  # of any kind: the thread must survive, and the next report raises it
                self._failed(error)
