"""Runs the trials of a study as calls of a function in this process."""

from __future__ import annotations

import logging
import shutil
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pai_sdk.base.error_text import error_text
from pai_sdk.errors import CheckpointError, StorageError, TuningFailed
from pai_sdk.run.functions.calling import call_training
from pai_sdk.run.report.layout import RunLayout
from pai_sdk.run.report.session import Report, ReportSession, StopTraining
from pai_sdk.run.stored_checkpoints import copy_checkpoint, latest_checkpoint
from pai_sdk.storage.stores.local import LocalStore
from pai_sdk.tune.objectives import UNNAMED, StepValue
from pai_sdk.tune.study import LiveTrial, Study

__all__ = ["FunctionTrials"]

logger = logging.getLogger(__name__)


class FunctionTrials:
    """Calls a function for each trial. Each call is a run with a folder of its own.

    Args:
        study: the study.
        function: `f(config)`, `f(config, checkpoint_dir=None)` or `f(config, reporter)`, or a generator.
        folder: has the runs of the trials.
        trials: how many trials the study is to have.
        parallel: how many are called at once, in threads.
        max_failures: how many trials may fail.
        on_change: called after each end.
    """

    def __init__(
        self,
        study: Study,
        function: Callable[..., Any],
        folder: Path,
        *,
        trials: int,
        parallel: int,
        max_failures: int,
        on_change: Callable[[], None],
    ) -> None:
        self._study = study
        self._function = function
        self._folder = folder
        self._trials = trials
        self._parallel = parallel
        self._max_failures = max_failures
        self._on_change = on_change
        self._lock = threading.RLock()  # guards the study
        self._is_over = threading.Event()
        self._failed: dict[int, str] = {}
        self._first_error: BaseException | None = None

    def run(self) -> None:
        """Run all trials that are missing.

        Raises:
            TuningFailed: too many trials have failed.
        """
        waiting = deque(self._study.unfinished())
        if self._parallel == 1:
            while live := self._next(waiting):
                self._run_one(live)
                self._check_failures()
            return
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="pai-trial") as pool:
            running: set[Future[None]] = set()
            try:
                while True:
                    while len(running) < self._parallel and (live := self._next(waiting)):
                        running.add(pool.submit(self._run_one, live))
                    if not running:
                        return
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for each in done:
                        each.result()
                    self._check_failures()
            finally:
                self._is_over.set()  # those that are still running end with their next report

    def _next(self, waiting: deque[LiveTrial]) -> LiveTrial | None:
        with self._lock:
            if waiting:
                return waiting.popleft()
            return self._study.next(self._trials)

    def _run_one(self, live: LiveTrial) -> None:
        if live.pruned_at is not None:
            self._study.prune(live)
            return
        folder = self._folder / str(live.number)
        if self._study.population is not None:
            self._begin_run(folder, live)

        def on_report(report: Report) -> None:
            if not live.points:  # the first one; without a report there is no event file
                session.hparams(live.params)
            self._on_report(live, report)

        session = ReportSession(folder, on_report=on_report)

        def on_result(metrics: Mapping[str, Any]) -> None:
            if session.last_step is None:  # nothing but the result: no event file is made for it
                self._on_report(live, Report(dict(metrics), 1, 0.0, None, None))
            else:
                session.report(metrics)

        error: BaseException | None = None
        try:
            # Other trials go on from the checkpoints of a member: they are saved before it ends.
            with session if self._study.population is not None else nullcontext(), session.bound():
                value = call_training(self._function, dict(live.params), on_result)
            error = None if live.points else _without_metrics(value)
        except StopTraining:
            if live.pruned_at is None:  # the search has ended; the trial is run again when it is continued
                return
        except (Exception, SystemExit) as raised:  # what a script in a function calls must not end the search
            error = raised
        with self._lock:
            if session.last_step is not None:
                self._study.ran_in(live, str(folder))
            self._end(live, error)
        self._on_change()

    def _begin_run(self, folder: Path, live: LiveTrial) -> None:
        """Make the run of a member of a population, with the newest checkpoint of its parent.

        A trial that was interrupted begins again at that checkpoint, and not at one that it has saved since: how
        far it trains would depend on the interruption.

        Raises:
            CheckpointError: the parent has run on another machine, or its run was removed.
            StorageError: the folder cannot be made.
        """
        try:
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
        except OSError as error:
            raise StorageError(f"the run {folder} cannot be made: {error.strerror or error}") from error
        if live.parent is None:
            return
        parent = self._folder / str(live.parent)
        if not parent.is_dir():
            what = f"trial {live.number} goes on from trial {live.parent}, whose run is not in {parent}"
            raise CheckpointError(f"{what}; continue the study on the machine where it has run")
        found = latest_checkpoint(LocalStore(RunLayout(str(parent)).checkpoints))
        if found is not None:
            copy_checkpoint(found, LocalStore(RunLayout(str(folder)).checkpoints), f"{found.step}/")

    def _end(self, live: LiveTrial, error: BaseException | None) -> None:
        if live.pruned_at is not None:
            self._study.prune(live)
            return
        if error is not None:
            logger.info("trial %d failed", live.number, exc_info=error)
            self._first_error = self._first_error or error
            self._study.fail(live, _reason(error))
        elif self._study.end(live) != "failed":
            return
        failures = self._study.failures()
        if live.number in failures:
            self._failed[live.number] = failures[live.number]

    def _on_report(self, live: LiveTrial, report: Report) -> None:
        """Take the values of a report, in the thread of the function."""
        if self._is_over.is_set():
            raise StopTraining("the search has ended")
        objectives = self._study.objectives
        for name, value in _flat(report.metrics):
            metric = objectives[0].metric if name == UNNAMED and len(objectives) == 1 else name
            live.points.setdefault(metric, []).append(StepValue(report.step, float(value)))
        if not self._study.prunes:
            return
        with self._lock:
            if self._study.report(live, live.points.get(objectives[0].metric, ())[-1:]):
                raise StopTraining("the trial is pruned")

    def _check_failures(self) -> None:
        if len(self._failed) > self._max_failures:
            raise TuningFailed(
                self._failed, study=self._study.uri, trials=self._study.begun
            ) from self._first_error


def _without_metrics(value: object) -> TypeError:
    """The error of a function that has reported nothing, and has returned this value."""
    what = "None" if value is None else f"a value of type {type(value).__name__}"
    return TypeError(
        f"the function has returned {what}, and reported nothing: return a number or a dict of numbers"
    )


def _reason(error: BaseException) -> str:
    """An error of the function, with the line that has raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error_text(error)}{where}"


def _flat(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Metrics by name; a mapping in them becomes names with `/`, as in the event files."""
    found: list[tuple[str, Any]] = []
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}/")
        else:
            found.append((f"{prefix}{name}", value))
    return found
