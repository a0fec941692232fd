"""Runs the trials of a study as calls of a function in this process."""

from __future__ import annotations

import logging
import shutil
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pai_sdk._client.job.interrupts import rearm_interrupt
from pai_sdk._client.tune.objectives import UNNAMED, StepValue
from pai_sdk._client.tune.study import LiveTrial, Study
from pai_sdk._client.tune.template import is_suggestion, optuna_objective
from pai_sdk._client.tune.trials import SearchLimits
from pai_sdk._core.names.hints import type_name
from pai_sdk._core.short_traceback import error_text
from pai_sdk._core.threads import in_thread
from pai_sdk._data.run.events.writer import as_float64
from pai_sdk._data.run.functions.calling import call_training
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.run.report.report_session import Report, ReportSession, StopTraining
from pai_sdk._data.run.store.stored_checkpoints import copy_checkpoint, latest_checkpoint
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk.errors import CheckpointError, InvalidInputError, StorageError, TuningFailed

logger = logging.getLogger(__name__)


_LEAVE_S = 1.0  # calls that report within this time after Ctrl-C return by themselves
_TICK_S = 1.0  # the maximum wait: a wait without a timeout cannot be interrupted on Windows


@dataclass
class _Call:
    """A call in a thread."""

    live: LiveTrial
    deadline: float | None  # on the monotonic clock; None for no deadline


class FunctionTrials:
    """Calls a function for each trial. Each call is a run with its own folder.

    A thread cannot be stopped. An abandoned call ends at its next report; its later results are ignored.
    """

    def __init__(
        self,
        study: Study,
        function: Callable[..., Any],
        folder: Path,
        limits: SearchLimits,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self.is_timed_out = False  # the timeout was reached before all trials had finished
        self._study = study
        # `f(config)`, `f(config, checkpoint_dir=None)` or `f(config, reporter)`, or a generator.
        self._function = function
        self._folder = folder  # the parent of the runs of the trials
        self._limits = limits
        self._on_change = on_change
        self._lock = threading.RLock()  # guards the study, and the attributes below
        self._is_stopped = threading.Event()
        self._sessions: dict[int, ReportSession] = {}  # of the trials that run
        self._finished: set[int] = set()  # trials with a final state in the study; their calls may continue
        self._failed: dict[int, str] = {}
        self._first_error: BaseException | None = None

    def run(self) -> None:
        """Runs all missing trials, or until the timeout; raises if too many have failed."""
        waiting = deque(self._study.unfinished())
        if self._limits.parallel == 1 and self._limits.timeout_s is None and self._limits.trial_timeout_s is None:
            while live := self._next(waiting):
                self._run_trial(live)
                self._check_failures()
            return
        search_deadline = None if self._limits.timeout_s is None else time.monotonic() + self._limits.timeout_s
        calls: dict[Future[None], _Call] = {}
        try:
            while search_deadline is None or time.monotonic() < search_deadline:
                while len(calls) < self._limits.parallel and (live := self._next(waiting)):
                    limit_s = self._limits.trial_timeout_s
                    deadline = None if limit_s is None else time.monotonic() + limit_s
                    calls[in_thread(self._run_trial, live)] = _Call(live, deadline)
                if not calls:
                    return
                done, _ = wait(calls, _pause_s(calls.values(), search_deadline), return_when=FIRST_COMPLETED)
                for future in done:
                    del calls[future]
                    future.result()
                self._abandon_late(calls)
                self._check_failures()
            self.is_timed_out = True
        finally:
            self._stop_calls(calls)

    def _abandon_late(self, calls: dict[Future[None], _Call]) -> None:
        """Fails the trials that have exceeded their limit; their calls no longer count as running."""
        now = time.monotonic()
        for future, call in [*calls.items()]:
            if call.deadline is None or now < call.deadline or future.done():
                continue
            with self._lock:
                if call.live.number not in self._finished:
                    self._end(call.live, None, f"it did not finish within {self._limits.trial_timeout_s:g} s")
                    self._stop(call.live)
            del calls[future]
            self._on_change()

    def _stop(self, live: LiveTrial) -> None:
        """Makes the next report of a call raise, before it writes anything."""
        if (session := self._sessions.get(live.number)) is not None:
            session.stop()

    def _stop_calls(self, calls: Mapping[Future[None], _Call]) -> None:
        """Stops all calls, so that none writes to the study, which another process may claim next."""
        # A thread that writes to the study holds the lock; a write to a remote store may take long.
        is_locked = self._lock.acquire(timeout=_LEAVE_S)
        try:
            self._is_stopped.set()
        finally:
            if is_locked:
                self._lock.release()
        for call in calls.values():
            self._stop(call.live)
        with suppress(KeyboardInterrupt):  # the second one ends the wait
            rearm_interrupt()
            wait(calls, _LEAVE_S)

    def _next(self, waiting: deque[LiveTrial]) -> LiveTrial | None:
        with self._lock:
            if waiting:
                return waiting.popleft()
            return self._study.next(self._limits.trials)

    def _run_trial(self, live: LiveTrial) -> None:
        if live.pruned_at is not None:
            with self._lock:
                if not self._is_abandoned(live):
                    self._study.prune(live)
            return
        folder = self._folder / str(live.number)
        if self._study.population is not None:
            self._create_run(folder, live)

        session = self._sessions[live.number] = self._session(folder, live)
        error: BaseException | None = None
        try:
            if self._is_abandoned(live):  # `_stop_calls` ran before this session was registered
                return
            error = self._call(live, session)
        except StopTraining:
            if live.pruned_at is None:  # the call was abandoned
                return
        finally:
            self._sessions.pop(live.number, None)
        with self._lock:
            if self._is_abandoned(live):
                return
            if session.last_step is not None:
                self._study.ran_in(live, str(folder))
            self._end(live, error)
        self._on_change()

    def _session(self, folder: Path, live: LiveTrial) -> ReportSession:
        def on_report(report: Report) -> None:
            if not live.points:  # the first report; without a report there is no event file
                session.hparams(live.params)
            self._on_report(live, report)

        session = ReportSession(folder, on_report=on_report)
        return session

    def _call(self, live: LiveTrial, session: ReportSession) -> BaseException | None:
        """Calls the function; returns the error with which the trial fails."""

        def on_result(metrics: Mapping[str, Any]) -> None:
            if session.last_step is None:  # only a result: no event file is written for it
                self._on_report(live, Report(dict(metrics), 1, 0.0, None, None))
            else:
                session.report(metrics)

        try:
            # Other trials continue from the checkpoints of a member, so they are saved before the trial is
            # finished.
            with session if self._study.population is not None else nullcontext(), session.bound():
                value = call_training(self._function, dict(live.params), on_result)
            return None if live.points else _without_metrics(value)
        except (Exception, SystemExit) as error:  # a script that calls sys.exit must not end the search
            _check_objective(error)
            return error

    def _create_run(self, folder: Path, live: LiveTrial) -> None:
        """Creates the run of a member of a population, with the newest checkpoint of its parent."""
        # An interrupted trial restarts from the parent's checkpoint, not from one of its own: otherwise the number
        # of its steps would depend on the interruption.
        try:
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
        except OSError as error:
            raise StorageError(f"the run {folder} cannot be created: {error.strerror or error}") from error
        if live.parent is None:
            return
        parent = self._folder / str(live.parent)
        if not parent.is_dir():  # the parent has run on another machine, or its run was removed
            message = f"trial {live.number} continues trial {live.parent}, whose run is not in {parent}"
            raise CheckpointError(f"{message}; continue the study on the machine where it has run")
        checkpoint = latest_checkpoint(LocalStore(RunLayout(str(parent)).checkpoints))
        if checkpoint is not None:
            copy_checkpoint(checkpoint, LocalStore(RunLayout(str(folder)).checkpoints), f"{checkpoint.step}/")

    def _is_abandoned(self, live: LiveTrial) -> bool:
        """Returns True if the search or the trial is finished, so that later results of the call are ignored."""
        return self._is_stopped.is_set() or live.number in self._finished

    def _end(self, live: LiveTrial, error: BaseException | None, reason: str = "") -> None:
        self._finished.add(live.number)
        if live.pruned_at is not None:
            self._study.prune(live)
            return
        if error is not None:
            logger.info("trial %d failed", live.number, exc_info=error)
            self._first_error = self._first_error or error
            self._study.fail(live, _reason(error))
        elif reason:
            self._study.fail(live, reason)
        elif self._study.end(live) != "failed":
            return
        failures = self._study.failures()
        if live.number in failures:
            self._failed[live.number] = failures[live.number]

    def _on_report(self, live: LiveTrial, report: Report) -> None:
        """Records the values of a report, in the thread of the function."""
        if self._is_abandoned(live):
            raise StopTraining("the search or the trial has ended")
        objectives = self._study.objectives
        for name, value in _flat(report.metrics):
            metric = objectives[0].metric if name == UNNAMED and len(objectives) == 1 else name
            live.points.setdefault(metric, []).append(StepValue(report.step, as_float64(name, value)))
        if not self._study.prunes:
            return
        with self._lock:
            if self._is_abandoned(live) or self._study.report(
                live, live.points.get(objectives[0].metric, ())[-1:]
            ):
                raise StopTraining("the trial is pruned, or has ended")

    def _check_failures(self) -> None:
        if len(self._failed) > self._limits.max_failures:
            raise TuningFailed(
                self._failed, study=self._study.uri, trials=self._study.num_started
            ) from self._first_error


def _pause_s(calls: Iterable[_Call], search_deadline: float | None) -> float:
    """Returns the seconds until the next deadline."""
    deadlines = [
        deadline for deadline in (search_deadline, *(call.deadline for call in calls)) if deadline is not None
    ]
    return max(0.0, min([_TICK_S, *(deadline - time.monotonic() for deadline in deadlines)]))


def _check_objective(error: BaseException) -> None:
    """Raises for an objective of Optuna, which would fail in the same way in each trial."""
    name = getattr(error, "name", None)
    if isinstance(error, AttributeError) and isinstance(getattr(error, "obj", None), dict) and is_suggestion(name):
        raise InvalidInputError([optuna_objective(str(name))]) from error


def _without_metrics(value: object) -> TypeError:
    """Returns the error of a function that has reported nothing, and has returned this value."""
    description = type_name(value)
    if isinstance(value, Mapping) and value:
        description = f"a mapping in which {next(filter(None, map(_metric_problem, value, value.values())), '')}"
    return TypeError(
        f"the function has returned {description}, and reported nothing: return a number or a dict of numbers"
    )


def _metric_problem(name: object, value: object) -> str:
    """Returns why an entry of a dict is no metric; empty for a metric."""
    if not isinstance(name, str):
        return f"the key {name!r} is not a string"
    if isinstance(value, bool):
        return f"{name!r} is {value}"
    try:
        as_float64(name, value)
    except (TypeError, OverflowError) as error:
        return str(error)
    return ""


def _reason(error: BaseException) -> str:
    """Returns an error of the function as a string, with the line that has raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error_text(error)}{where}"


def _flat(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Returns metrics by name; nested mappings become names with `/`, as in the event files."""
    flat: list[tuple[str, Any]] = []
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{name}/")
        else:
            flat.append((f"{prefix}{name}", value))
    return flat
