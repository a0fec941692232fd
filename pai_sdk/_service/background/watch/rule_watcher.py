"""Evaluates the rules of all running jobs periodically, and acts on their findings."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import select
from sqlalchemy.orm import lazyload

from pai_sdk._core.files import replace_file
from pai_sdk._core.reasons import REASON_RESTARTED_BY_RULE
from pai_sdk._data.rules.codec import WatchConfig
from pai_sdk._data.rules.evaluator import RuleEvaluator
from pai_sdk._data.rules.odd_rank import stack_rows
from pai_sdk._data.rules.rules import Rule
from pai_sdk._data.rules.signals import Finding
from pai_sdk._data.run.events.points import Part
from pai_sdk._data.run.report.debugger_marker import FOLDER, read_markers
from pai_sdk._data.stacks.processes import ProcessStack, parse_processes
from pai_sdk._host.agent.stacks.collecting import collect_stacks
from pai_sdk._host.execution.base import Executor
from pai_sdk._host.execution.contract import instances
from pai_sdk._service.background.metrics import MetricsCollector
from pai_sdk._service.background.usage import InstanceUse
from pai_sdk._service.background.watch.job_signals import JobSignals, JobTimes
from pai_sdk._service.periodic_task import PeriodicTask
from pai_sdk._service.services.jobs.findings import record_finding
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.progress_figures import OVERALL_PROGRESS, REMAINING_TIME, latest_progress_of
from pai_sdk._service.state.disk import is_disk_full
from pai_sdk._service.state.folder import DataFolder
from pai_sdk._service.state.models import Job, Progress
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus

logger = logging.getLogger(__name__)

_SAVE_EVERY_S = 30.0
_STACK_WINDOW_S = 1.0
_STACK_TIMEOUT_S = 20.0
_STACK_READERS = 4
_MAX_EARLY_PARTS = 100
_ENDED = ("Succeed", "Failed", "Terminated")  # of an instance
_STATE_FILE = "watch.json"
_SNAPSHOTS = "snapshots"

Notify = Callable[[str, str, str, Mapping[str, Any]], object]
"""Sends a notification: job id, code, message, evidence."""


class JobEnder(Protocol):
    """The scheduler, as far as rules use it."""

    def end_job(self, job_id: str, *, reason_code: str, reason_message: str) -> None:
        """Ends the current attempt of a job."""
        ...


@dataclass
class _WatchedJob:
    """One attempt of a job."""

    job_id: str
    attempt: int
    request: TrainingJobRequest
    rules: dict[str, Rule]
    evaluator: RuleEvaluator
    signals: JobSignals
    state_file: Path
    debug_folder: Path  # of the markers of processes that wait for a debugger
    saved_at_s: float = 0.0
    stacks: Future[list[ProcessStack]] | None = None
    unreported: list[Finding] = field(default_factory=list)  # on a full disk


class RuleWatcher:
    """Watches the running jobs in one thread; stacks are read by others.

    The state of a job is in its folder: a restarted service continues, and the time without it does not count. One
    attempt is one history: a job that starts again has another pace.
    """

    def __init__(
        self,
        jobs: Jobs,
        folder: DataFolder,
        executor: Executor,
        collector: MetricsCollector,
        scheduler: JobEnder,
        *,
        config: WatchConfig,
        interval_s: float,
        notify: Notify = lambda job_id, code, message, evidence: None,
        can_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._jobs, self._folder, self._executor = jobs, folder, executor
        self._collector, self._scheduler = collector, scheduler
        self._config, self._interval_s = config, interval_s
        self._notify = notify
        self._watched: dict[str, _WatchedJob] = {}
        self._early: dict[str, deque[Part]] = {}  # points before the first sample of a job
        # Half of a read is a pause: several, for jobs that hang at the same time, such as by a shared disk.
        self._stack_readers = ThreadPoolExecutor(_STACK_READERS, thread_name_prefix="stacks")
        self._task = PeriodicTask("rules", self._pause_s, self._run, retry_s=interval_s, can_act=can_act)
        # Before the collector starts: it calls them from its thread.
        collector.on_points, collector.on_watch = self._add_points, self._task.wake

    def start(self) -> None:
        """Starts the thread."""
        self._task.start()

    def close(self) -> None:
        """Stops the threads, and saves the state of all jobs."""
        self._task.close()
        self._stack_readers.shutdown(wait=True, cancel_futures=True)
        for watched in self._watched.values():
            self._save(watched)

    def _pause_s(self) -> float | None:
        return self._interval_s if self._collector.job_ids else None

    def _add_points(self, job_id: str, part: Part) -> None:
        # In the thread of the collector.
        watched = self._watched.get(job_id)
        if watched is not None:
            watched.signals.add(part)
        else:
            self._early.setdefault(job_id, deque(maxlen=_MAX_EARLY_PARTS)).append(part)

    def _run(self) -> None:
        rows, progress = self._running()
        for job_id in self._watched.keys() - {row.id for row in rows}:
            del self._watched[job_id]
        for job_id in [*self._early.keys() - {*self._collector.job_ids}]:
            self._early.pop(job_id, None)
        for row in rows:
            if self._task.closing.is_set():
                return
            try:
                self._observe(row, progress.get(row.id, []))
            except WireError:
                continue  # the job was deleted since
            except Exception:  # one job must not stop the rules of others
                logger.exception("the rules of job %s cannot be evaluated", row.id)

    def _running(self) -> tuple[list[Job], dict[str, list[Progress]]]:
        # By their status and not by their ids: databases limit the parameters of a statement (SQLite before 3.32:
        # 999). lazyload: each relationship with selectin loading would cost another query.
        watched, is_running = {*self._collector.job_ids}, Job.status == JobStatus.RUNNING
        with self._jobs.database.read() as session:
            jobs = session.scalars(select(Job).where(is_running).options(lazyload("*")))
            rows = [job for job in jobs if job.id in watched]
            return rows, latest_progress_of(session, select(Job.id).where(is_running))

    # ---- one job ------------------------------------------------------------------------------------------

    def _observe(self, row: Job, progress: Sequence[Progress]) -> None:
        watched = self._watched.get(row.id)
        if watched is None or watched.attempt != row.attempt:
            watched = self._watched[row.id] = self._new(row)
        for part in self._early.pop(row.id, ()):
            watched.signals.add(part)
        if row.stop_requested or not watched.rules:
            return
        uses = self._collector.usage.uses(row.id)
        ended = [each["name"] for each in row.instances if each.get("status") in _ENDED]
        debugged = [marker["instance"] for marker in read_markers(watched.debug_folder)]
        sample = watched.signals.sample(
            uses, ended, debugged, _times(row, watched.request, progress), _read(watched)
        )
        findings = watched.evaluator.observe(sample)
        if watched.evaluator.needs_stacks and watched.stacks is None and uses:
            watched.stacks = self._stack_readers.submit(_collect, uses)
        unreported, watched.unreported = watched.unreported, []
        for finding in unreported:
            self._try_to_report(watched, finding, uses, is_first=False)
        for finding in findings:
            self._try_to_report(watched, finding, uses, is_first=True)
            self._act(watched, finding)
        if findings or time.monotonic() - watched.saved_at_s >= _SAVE_EVERY_S:
            self._save(watched)

    def _new(self, row: Job) -> _WatchedJob:
        request = TrainingJobRequest.model_validate(row.request)
        rules = {rule.code: rule for rule in self._config.rules(row.workspace_id, request.environments)}
        root = self._folder.job_dir(row.id)
        files = self._executor.files(root)
        logs = {each.name: files.log(each.name).path for each in instances(row.id, request)}
        evaluator = RuleEvaluator(rules.values(), interval_s=self._interval_s)
        watched = _WatchedJob(
            row.id,
            row.attempt,
            request,
            rules,
            evaluator,
            JobSignals(root, logs),
            root / _STATE_FILE,
            files.sandbox.ml / FOLDER,
        )
        self._resume(watched)
        return watched

    def _resume(self, watched: _WatchedJob) -> None:
        try:
            state = json.loads(watched.state_file.read_text(encoding="utf-8"))
            if state["attempt"] == watched.attempt:
                watched.evaluator.resume(state["evaluator"])
            # Another attempt appends to the same logs.
            watched.signals.resume(state["signals"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("the state of the rules of job %s cannot be read: %s", watched.job_id, error)

    def _save(self, watched: _WatchedJob) -> None:
        state = {
            "attempt": watched.attempt,
            "evaluator": watched.evaluator.to_json(),
            "signals": watched.signals.to_json(),
        }
        watched.saved_at_s = time.monotonic()
        # A full disk, or a job that was deleted: the rules start anew then.
        with suppress(OSError):
            replace_file(watched.state_file, json.dumps(state))

    # ---- findings -----------------------------------------------------------------------------------------

    def _try_to_report(
        self, watched: _WatchedJob, finding: Finding, uses: Mapping[str, InstanceUse], *, is_first: bool
    ) -> None:
        """Reports a finding; on a full disk, it is reported when there is room again."""
        try:
            self._report(watched, finding, uses)
        except WireError:
            raise  # the job was deleted since
        except Exception as error:  # one that fails must not end others
            if not is_disk_full(error):
                logger.exception("%s of job %s cannot be reported", finding.code, watched.job_id)
                return
            watched.unreported.append(finding)
            if is_first:
                logger.error("%s of job %s is reported later: the disk is full", finding.code, watched.job_id)

    def _report(self, watched: _WatchedJob, finding: Finding, uses: Mapping[str, InstanceUse]) -> None:
        reason = next(((each.code, each.message) for each in watched.evaluator.conditions), None)
        self._jobs.add_finding(
            watched.job_id, finding.text, instance=finding.instance, attempt=watched.attempt, reason=reason
        )
        record_finding(watched.state_file.parent, finding, attempt=watched.attempt, now=time.time())
        if finding.status == "cleared" or finding.action == "observe":
            return
        if finding.action != "notify":
            evidence = {**finding.evidence}
            if "stacks" not in evidence and uses:
                evidence["stacks"] = stack_rows(_collect(uses))
            self._save_snapshot(watched, finding, evidence)
        self._notify(watched.job_id, finding.code, finding.message, _notified(finding))

    def _act(self, watched: _WatchedJob, finding: Finding) -> None:
        """Ends the attempt that a finding is about, if its rule says so."""
        if finding.status == "cleared" or finding.action not in ("stop", "restart"):
            return
        # To read stacks takes a while: by now another attempt may run.
        if self._jobs.get(watched.job_id).attempt != watched.attempt:
            return
        rule = watched.rules[finding.code]
        if finding.action == "restart" and watched.attempt <= rule.max_restarts:
            message = f"{finding.text}. The rule starts the job again."
            self._scheduler.end_job(watched.job_id, reason_code=REASON_RESTARTED_BY_RULE, reason_message=message)
        else:
            self._scheduler.end_job(watched.job_id, reason_code=finding.code, reason_message=finding.message)

    def _save_snapshot(self, watched: _WatchedJob, finding: Finding, evidence: Mapping[str, Any]) -> None:
        folder = watched.state_file.parent / _SNAPSHOTS
        content = {
            "code": finding.code,
            "message": finding.message,
            "instance": finding.instance,
            "time": time.time(),
            "attempt": watched.attempt,
            **evidence,
        }
        path = folder / f"{finding.code}-{watched.attempt}-{time.time_ns() // 1_000_000}.json"
        try:
            folder.mkdir(exist_ok=True)
            replace_file(path, json.dumps(content, indent=1))
        except OSError as error:
            text = f"The snapshot of {finding.code} cannot be saved: {error.strerror}."
        else:
            text = f"A snapshot of {finding.code} was saved: {_SNAPSHOTS}/{path.name}"
        self._jobs.add_event(watched.job_id, text, instance=finding.instance)


def _notified(finding: Finding) -> dict[str, Any]:
    """Returns the evidence for a notification, with the last lines of the instance that it is about."""
    evidence = {**finding.evidence}
    lines: Mapping[str, list[str]] = evidence.pop("last_lines", {})
    first = next(iter(lines), "")
    return {**evidence, "lines": lines.get(finding.instance or first, lines.get(first, []))}


def _collect(uses: Mapping[str, InstanceUse]) -> list[ProcessStack]:
    pids = [process.pid for use in uses.values() for process in use.processes]
    return parse_processes(collect_stacks(pids, window_s=_STACK_WINDOW_S, timeout_s=_STACK_TIMEOUT_S))


def _read(watched: _WatchedJob) -> list[ProcessStack] | None:
    """Returns the stacks that were requested, once they are there."""
    if watched.stacks is None or not watched.stacks.done():
        return None
    done, watched.stacks = watched.stacks, None
    if (error := done.exception()) is not None:
        logger.warning("the stacks of job %s cannot be read: %s", watched.job_id, error)
        return []
    return done.result()


def _times(row: Job, request: TrainingJobRequest, progress: Sequence[Progress]) -> JobTimes:
    figures = {figure.name: figure.value for figure in progress}
    limit = request.scheduler.max_running_time_in_seconds if request.scheduler else None
    fraction = figures.get(OVERALL_PROGRESS)
    if fraction is not None and fraction > 1:  # printed in percent
        fraction /= 100
    started_at = row.started_at
    elapsed_s = None if started_at is None else max(0.0, time.time() - started_at)
    return JobTimes(elapsed_s, limit or None, fraction, figures.get(REMAINING_TIME))
