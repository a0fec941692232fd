"""Runs the steps of a pipeline, a few at a time, each as soon as the steps that it needs have finished.

The thread of the engine decides: it starts steps, follows jobs and records ends. Each step starts in a thread of
its own, which calls its function or submits its job. One watch follows all jobs.

    waiting -> running -> succeeded | failed (-> running, another attempt) | stopped
    waiting -> cached | skipped | blocked
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from typing import Any

from pai_sdk._client.job.failure.explain import job_failure
from pai_sdk._client.job.follow.poller import Update
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.watch import JobWatch, same_job
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.pipeline.execution import LiveStep, StepExecution, reason_of
from pai_sdk._client.pipeline.fingerprints import digest
from pai_sdk._client.pipeline.steps import EachWork, JobWork, PipelineStep
from pai_sdk._core.threads import in_thread
from pai_sdk._data.pipelines.records import FINISHED, PipelineRunRecord, RunRecords, StepRecord
from pai_sdk._data.storage.claims import FolderClaim
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)

_TICK_S = 0.1
_STOP_CHECK_INTERVAL_S = 1.0
# After Ctrl-C. A job that is submitted later is not lost: `resume` finds it by its idempotency key.
_SUBMISSION_S = 10.0
_DONE = ("succeeded", "cached")


class RunValues:
    """The current values of a run: its parameters, and the outputs and results of its steps."""

    def __init__(self, run: PipelineRunRecord, records: Mapping[str, StepRecord]) -> None:
        self.parameters = run.parameters
        self._records = records

    def output(self, step: str, channel: str) -> Any:
        """Returns the URI of an output, a list of them for `each`; raises LookupError without it."""
        record = self._records[step]
        if record.children or record.result == []:  # a job has no result: it is an `each`
            return [self.output(f"{step}[{number}]", channel) for number in range(record.children)]
        if channel not in record.outputs:
            raise LookupError(
                f"{step}: its job had no output {channel!r}; it had: {', '.join(record.outputs) or 'none'}"
            )
        return record.outputs[channel]

    def result(self, step: str) -> Any:
        """Returns the result of a function; a list of results for `each`."""
        return self._records[step].result

    def status(self) -> dict[str, Any]:
        """Returns the current status of the run."""
        failed = {name: record.error for name, record in self._records.items() if record.status == "failed"}
        is_stopped = any(record.status == "stopped" for record in self._records.values())
        return {"status": "stopped" if is_stopped else "failed" if failed else "succeeded", "failed": failed}


class PipelineEngine:
    """Runs the unfinished steps. In `steps`, each step follows those that it needs."""

    def __init__(
        self,
        steps: Sequence[PipelineStep],
        records: RunRecords,
        step_records: dict[str, StepRecord],
        execution: StepExecution,
        executions: dict[str, str],
        claim: FolderClaim,
        *,
        parallel: int,
        policy: FollowPolicy,
        on_change: Callable[[], None],
        can_stop: bool = True,
    ) -> None:
        self._can_stop = can_stop  # a stop request ends these steps; those of `on_exit` run in any case
        self._records = records
        self._step_records = step_records  # also from an earlier process
        self._execution = execution
        # By step, the execution that has written its outputs; filled here, and read by `execution`.
        self._executions = executions
        self._claim = claim  # the right to work on the run
        self._parallel = parallel
        self._policy = policy
        self._on_change = on_change
        self._live: dict[str, LiveStep] = {}
        self._dependents: dict[str, list[LiveStep]] = {}
        self._ready: deque[LiveStep] = deque()
        self._started: dict[Future[list[Any] | None], LiveStep] = {}
        self._with_job: dict[tuple[int, str], LiveStep] = {}
        self._next_stop_check_at = 0.0
        self.is_stopped = False
        for step in steps:
            self._add(step)

    # ---- the graph

    def _add(self, step: PipelineStep, parent: LiveStep | None = None) -> LiveStep:
        record = self._step_records.setdefault(step.name, StepRecord(step.name))
        attempts_before = record.attempt if record.status in ("failed", "stopped") else 0
        if record.status not in (*FINISHED, "running"):
            record.status = "waiting"
        live = self._live[step.name] = LiveStep(step, record, parent=parent, attempts_before=attempts_before)
        if record.status in FINISHED:
            live.is_recorded = True
            self._record_execution(live)
            return live
        needs = [
            self._live[needed.name] for needed in step.needs if needed.name in self._live
        ]  # the others ran before
        live.open_needs = sum(not needed.record.is_finished for needed in needs)
        for needed in needs:
            if not needed.record.is_finished:
                self._dependents.setdefault(needed.name, []).append(live)
        if not live.open_needs:
            self._ready.append(live)
        return live

    def _record_execution(self, live: LiveStep) -> None:
        if live.record.children:
            executions = [self._executions.get(f"{live.name}[{n}]", "") for n in range(live.record.children)]
            self._executions[live.name] = digest(executions)
        else:
            self._executions[live.name] = live.record.execution

    # ---- the loop

    def run(self) -> None:
        """Runs until all steps have finished, or a stop was requested. After Ctrl-C, jobs continue."""
        with JobWatch[TrainingJob]([], self._policy) as watch:
            while self._ready or self._started or self._with_job:
                self._fill()
                self._wait(watch)
                self._end_late_steps()
                self._check_stop_request()

    def _fill(self) -> None:
        while self._ready and len(self._started) + len(self._with_job) < self._parallel:
            live = self._ready.popleft()
            if self.is_stopped:
                self._end(live, "stopped")
            elif reason := _blocked_by(live.step, self._step_records):
                self._end(live, *reason)
            else:
                # Before each start: a process that has lost the claim must not start steps of the new owner.
                self._claim.check()
                self._started[in_thread(self._execution.start, live)] = live

    def _wait(self, watch: JobWatch[TrainingJob]) -> None:
        """Waits for the end of a call, or for an update of a job."""
        if self._started:
            # Calls and jobs are two sources of events, waited for in turn: with both, the waits are short.
            has_jobs = bool(self._with_job)
            late = min((step.deadline for step in self._started.values() if step.deadline), default=None)
            tick_s = _TICK_S if has_jobs or late is not None else _STOP_CHECK_INTERVAL_S
            done, _ = wait(self._started, timeout=tick_s, return_when=FIRST_COMPLETED)
            for future in done:
                self._on_started(watch, self._started.pop(future), future)
        if self._with_job and not (self._started and self._ready):
            pause_s = 0.0 if self._started else _STOP_CHECK_INTERVAL_S
            for job, update in watch.next_updates(deadline=self._policy.schedule.now() + pause_s):
                self._on_update(watch, job, update)

    def _on_started(self, watch: JobWatch[TrainingJob], live: LiveStep, future: Future[list[Any] | None]) -> None:
        if live.is_abandoned:
            return
        error = future.exception()
        if error is not None:
            if isinstance(error, KeyboardInterrupt):
                raise error
            # The job may exist although the response was lost. Another attempt would create a second one; a
            # resumed run repeats the request with the same key, and finds the first one.
            if isinstance(error, PaiError) and error.maybe_arrived:
                raise error
            logger.info("step %s failed", live.name, exc_info=error)
            self._on_failure(live, reason_of(error))
        elif live.job is not None and not live.record.is_finished:
            self._with_job[same_job(live.job)] = live
            watch.add(live.job)
            if self.is_stopped:  # the stop was requested during the submission, and did not reach this job
                _stop(live.job)
        elif isinstance(live.step.work, EachWork) and not live.record.is_finished:
            self._open_each(live, live.step.work, future.result() or [])
        else:
            self._after_end(live)

    def _open_each(self, live: LiveStep, work: EachWork, values: list[Any]) -> None:
        """Adds a step for each of the values."""
        for number, value in enumerate(values):
            child = replace(live.step, name=f"{live.name}[{number}]", work=work.of_value(value), when=None)
            live.children.append(self._add(child, live))
        self._close_each(live)

    def _close_each(self, live: LiveStep) -> None:
        """Finishes an `each` whose steps have finished."""
        if not all(child.is_recorded for child in live.children):
            return
        failed = [child for child in live.children if not child.record.is_success]
        if failed:
            status = "stopped" if self.is_stopped else "failed"
            self._end(live, status, error=f"{failed[0].name}: {failed[0].record.error or failed[0].record.status}")
            return
        live.record.result = [child.record.result for child in live.children]
        is_cached = live.children and all(child.record.status == "cached" for child in live.children)
        self._end(live, "cached" if is_cached else "succeeded")

    # ---- jobs

    def _on_update(self, watch: JobWatch[TrainingJob], job: TrainingJob, update: Update) -> None:
        key = same_job(job)
        if key not in watch.finished and key not in watch.lost:
            return
        live = self._with_job.pop(key, None)
        if live is None or live.job is None:
            return
        if not isinstance(update, JobRecord):
            self._on_failure(live, f"the status of its job {job.id} is unknown: {update}")
        elif update.status.is_success:
            self._execution.on_end_of_job(live, update)
            self._after_end(live)
        elif self.is_stopped:
            self._end(live, "stopped")
        else:
            self._on_failure(live, str(job_failure(job.backend, update)))

    def interrupt(self, *, stops: bool) -> None:
        """Handles Ctrl-C: results of threads are ignored; jobs continue, or are stopped."""
        submissions = []
        for future, live in self._started.items():
            is_submission = isinstance(live.step.work, JobWork)
            # The worker of an abandoned submission stops its job; a job that continues must be recorded instead.
            live.is_abandoned = stops or not is_submission
            if is_submission:
                submissions.append(future)
        wait(submissions, timeout=_SUBMISSION_S)
        # Of all steps, not only of `_with_job`: a submission that read `is_abandoned` before it was set above ends
        # with a job, and Ctrl-C may have come between `_started` and `_with_job`.
        for live in self._live.values():
            if stops and live.job is not None and not live.record.is_finished:
                _stop(live.job)

    # ---- ends

    def _on_failure(self, live: LiveStep, error: str) -> None:
        """Schedules another attempt, or finishes the step."""
        record = live.record
        live.job = live.deadline = None
        record.attempt = max(record.attempt, 1)  # an error before the first attempt, as of a condition, counts
        if record.attempt - live.attempts_before <= live.step.retries and not self.is_stopped:
            record.status, record.error = "waiting", error
            self._records.write_step(record)
            self._ready.append(live)
        else:
            self._end(live, "failed", error=error)

    def _end(self, live: LiveStep, status: Any, reason: str = "", *, error: str = "") -> None:
        self._execution.end(live, status, reason=reason, error=error)
        self._after_end(live)

    def _after_end(self, live: LiveStep) -> None:
        """Starts the steps that were waiting for this one."""
        live.is_recorded = True
        self._record_execution(live)
        if live.parent is not None:
            self._close_each(live.parent)
        for other in self._dependents.pop(live.name, ()):
            other.open_needs -= 1
            if not other.open_needs:
                self._ready.append(other)
        self._on_change()

    def _end_late_steps(self) -> None:
        """Ends the attempts whose timeout has passed."""
        now = time.monotonic()
        late = [step for step in self._running if step.deadline is not None and now > step.deadline]
        for live in late:
            text = f"it did not finish within {live.step.timeout_s:g} s"
            if live.job is not None:
                self._with_job.pop(same_job(live.job), None)
                _stop(live.job)
                self._on_failure(live, text)
            else:
                # Threads cannot be stopped. The abandoned one keeps its `LiveStep`, so that its late result is
                # ignored; the next attempt has a new one.
                live.is_abandoned = True
                again = replace(live, is_abandoned=False, job=None, deadline=None)
                self._live[live.name] = again
                if live.parent is not None:
                    live.parent.children = [again if step is live else step for step in live.parent.children]
                self._started = {future: step for future, step in self._started.items() if step is not live}
                self._on_failure(again, text)

    @property
    def _running(self) -> Iterable[LiveStep]:
        return [*self._started.values(), *self._with_job.values()]

    def _check_stop_request(self) -> None:
        """Stops the jobs after a stop request; raises if another process has claimed the run."""
        now = time.monotonic()
        if now < self._next_stop_check_at:
            return
        self._next_stop_check_at = now + _STOP_CHECK_INTERVAL_S
        self._claim.check()
        if self._can_stop and not self.is_stopped and self._records.is_stop_requested:
            self.is_stopped = True
            for live in self._with_job.values():
                if live.job is not None:
                    _stop(live.job)


def _stop(job: TrainingJob) -> None:
    try:
        job.stop()
    except PaiError as error:  # it may have finished in the meantime
        logger.warning("job %s was not stopped: %s", job.id, error)


def _blocked_by(step: PipelineStep, step_records: Mapping[str, StepRecord]) -> tuple[str, str] | None:
    """Returns the status of a step that cannot run, and the reason; None for one that can."""
    for needed in step.needs:
        if step.on_exit and not needed.on_exit:
            continue  # a step of `on_exit` runs after any outcome of the others
        status = step_records[needed.name].status
        if status in ("failed", "blocked", "stopped"):
            return "blocked", f"{needed.name} has {'failed' if status == 'failed' else 'not run'}"
    for needed in step.gives:
        if step_records[needed.name].status == "skipped":
            return "skipped", f"{needed.name} was skipped"
    return None
