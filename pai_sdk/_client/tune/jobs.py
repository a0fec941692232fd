"""Runs the trials of a study as jobs, a limited number at a time, on any backend.

The next trial starts when any job is finished; no trial waits for a specific one. One watch follows all jobs.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pai_sdk._client.job.failure.explain import brief_failure, job_failure
from pai_sdk._client.job.follow.poller import Update
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.watch import JobWatch, same_job
from pai_sdk._client.job.gather import Gathering
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.tune.objectives import UNNAMED, StepValue, step_values
from pai_sdk._client.tune.study import LiveTrial, Study
from pai_sdk._client.tune.template import PRUNED_LABEL
from pai_sdk._client.tune.trials import SearchLimits
from pai_sdk._wire.pai.job_retries import INTERRUPTIONS
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import InvalidInputError, NotFoundError, PaiError, TuningFailed

logger = logging.getLogger(__name__)

_MAX_ATTEMPTS = 4  # of a trial whose job is interrupted by the platform
_SUBMITS_AT_ONCE = 8
_POLL_INTERVAL_S = 10.0  # for metrics of a job whose record does not show their changes
_TICK_S = 2.0
_MAX_EXPLAINED_FAILURES = 5  # failed jobs whose log is read for the reason


class JobTrials:
    """Runs the trials of a study as jobs."""

    def __init__(
        self,
        study: Study,
        submit: Callable[[LiveTrial], TrainingJob],
        find: Callable[[str], TrainingJob],
        limits: SearchLimits,
        *,
        gathering: Gathering,
        policy: FollowPolicy,
    ) -> None:
        self.is_timed_out = False  # the timeout was reached before all trials had finished
        self._study = study
        self._submit = submit  # returns the job of a trial that was submitted before
        self._find = find
        self._limits = limits
        self._gathering = gathering  # displays the jobs, and handles Ctrl-C
        self._policy = policy
        self._waiting: deque[LiveTrial] = deque()
        self._live: dict[str, LiveTrial] = {}
        self._jobs: dict[str, TrainingJob] = {}
        self._last_read: dict[str, tuple[object, float]] = {}  # last read metrics, and time
        self._failed: dict[int, str] = {}

    def run(self, *, stops_on_interrupt: bool = False) -> None:
        """Runs all missing trials; those of an earlier process are resumed.

        With `stops_on_interrupt`, Ctrl-C stops the jobs; their trials are submitted again when the study is
        continued. The message of the KeyboardInterrupt has the state of the jobs.
        """
        with (
            ThreadPoolExecutor(_SUBMITS_AT_ONCE, thread_name_prefix="pai-tune") as self._pool,
            self._gathering.watching() as watch,
        ):
            try:
                self._resume_trials(watch)
                self._loop(watch)
                if self.is_timed_out:
                    self._release_trials()
                    self._gathering.stop(watch)
            except KeyboardInterrupt:
                if stops_on_interrupt:
                    self._release_trials()
                raise
            except TuningFailed:
                self._release_trials()
                self._gathering.stop(watch)
                raise

    def _resume_trials(self, watch: JobWatch[TrainingJob]) -> None:
        """Resumes the unfinished trials of an earlier process."""
        for live in self._study.unfinished():
            if not live.job_id:
                self._waiting.append(live)
                continue
            try:
                self._follow(watch, live, self._find(live.job_id))
            except NotFoundError:  # the job was deleted
                self._study.lost(live)
                self._waiting.append(live)

    def _loop(self, watch: JobWatch[TrainingJob]) -> None:
        now = self._policy.schedule.now
        search_deadline = math.inf if self._limits.timeout_s is None else now() + self._limits.timeout_s
        self._fill(watch)
        while watch.unfinished or self._waiting:
            for job, update in watch.updates(deadline=min(now() + _TICK_S, search_deadline)):
                self._on_update(watch, job, update)
                if now() < search_deadline:
                    self._fill(watch)
                self._gathering.show()
            self._poll_all()
            if now() >= search_deadline:
                self.is_timed_out = (
                    bool(watch.unfinished or self._waiting) or self._study.num_started < self._limits.trials
                )
                return
            self._fill(watch)

    # ---- submitting

    def _fill(self, watch: JobWatch[TrainingJob]) -> None:
        """Submits until `parallel` jobs are unfinished."""
        while self._submit_batch(watch):  # trials that failed at the submission leave room for others
            pass

    def _submit_batch(self, watch: JobWatch[TrainingJob]) -> bool:
        """Submits as many trials as there is room for; returns True if the submission of one has failed."""
        batch: list[LiveTrial] = []
        while len(watch.unfinished) + len(batch) < self._limits.parallel:
            if self._waiting:
                batch.append(self._waiting.popleft())
            elif live := self._study.next(self._limits.trials):
                batch.append(live)
            else:
                break
        if not batch:
            return False
        self._study.commit()  # before the jobs exist: after a kill, the same values are submitted again
        submitted = [self._pool.submit(self._submit, live) for live in batch]
        submit_error: PaiError | None = None
        has_failed = False
        for live, future in zip(batch, submitted, strict=True):
            try:
                job = future.result()
            except InvalidInputError as error:
                has_failed = True
                self._fail(live, str(error))
            except PaiError as error:  # the trial is submitted when the study is continued
                submit_error = submit_error or error
            else:
                self._study.submitted(live, job.id)
                self._follow(watch, live, job)
        self._study.commit()
        if submit_error is not None:
            raise submit_error
        return has_failed

    def _follow(self, watch: JobWatch[TrainingJob], live: LiveTrial, job: TrainingJob) -> None:
        self._live[job.id], self._jobs[job.id] = live, job
        self._last_read[job.id] = (None, time.monotonic())
        self._gathering.add(watch, job)

    def _release_trials(self) -> None:
        """Makes unfinished trials be submitted again when the study is continued."""
        for live in self._live.values():
            if live.pruned_at is None:
                self._study.lost(live)
        self._live.clear()

    # ---- following

    def _on_update(self, watch: JobWatch[TrainingJob], job: TrainingJob, update: Update) -> None:
        live = self._live.get(job.id)
        if live is None:  # the trial is finished: it was pruned
            return
        if not isinstance(update, JobRecord):
            del self._live[job.id]
            self._fail(live, f"the status of its job {job.id} is unknown: {update}")
        elif same_job(job) in watch.finished:
            del self._live[job.id]
            self._on_end(live, job, update)
        elif update.latest_metrics != self._last_read[job.id][0]:
            self._poll(live, job)

    def _poll_all(self) -> None:
        """Reads the metrics of jobs after the poll interval; stops pruned jobs that are not stopped."""
        now = time.monotonic()
        for job_id, live in [*self._live.items()]:
            if live.pruned_at is not None or now - self._last_read[job_id][1] >= _POLL_INTERVAL_S:
                self._poll(live, self._jobs[job_id])

    def _poll(self, live: LiveTrial, job: TrainingJob) -> None:
        """Reads the metrics of a running job, and stops it if it is pruned."""
        if not self._study.prunes:
            return
        latest = job.last_record.latest_metrics if job.last_record is not None else None
        self._last_read[job.id] = (latest, time.monotonic())
        try:
            points = live.pruned_at is None and self._points(job)
            if self._study.report(live, points or ()):
                _label_pruned(live, job)
                job.stop()
                self._study.prune(live)
                del self._live[job.id]
        except PaiError as error:
            if not error.may_pass:
                raise
            logger.info("the metrics of %s could not be read, or it was not stopped: %s", job.id, error)

    def _on_end(self, live: LiveTrial, job: TrainingJob, record: JobRecord) -> None:
        if live.pruned_at is not None:
            self._study.prune(live)
        elif record.status.is_success:
            self._on_success(live, job)
        elif record.reason_code in INTERRUPTIONS and live.attempt + 1 < _MAX_ATTEMPTS:
            self._study.lost(live)
            self._waiting.append(live)
        elif record.status.is_stopped:
            self._fail(live, f"its job {job.id} was stopped", counts=False)
        else:
            has_room = len(self._failed) < _MAX_EXPLAINED_FAILURES
            error = job_failure(job.backend, record) if has_room else brief_failure(record)
            self._fail(live, str(error))

    def _on_success(self, live: LiveTrial, job: TrainingJob) -> None:
        first, *other_metrics = [objective.metric for objective in self._study.objectives]
        deadline = time.monotonic() + self._policy.quiet_s  # metrics may arrive a little later than the status
        while not (points := self._points(job)) and time.monotonic() < deadline:
            time.sleep(self._policy.quiet_s / 5)
        if self._study.report(live, points):
            _label_pruned(live, job)
            self._study.prune(live)
            return
        if not points:  # for the message, which lists the reported metrics
            for point in job.metrics():
                live.points.setdefault(point.name or "", []).append(StepValue(0, point.value or 0.0))
            live.points.pop(first, None)
        else:
            live.points[first] = points
        for metric in other_metrics:
            live.points[metric] = step_values(job.metrics(metric))
        if self._study.end(live) == "failed":
            self._record_failure(live)

    def _points(self, job: TrainingJob) -> list[StepValue]:
        """Returns the values of the first objective; a function may return a number, which has no name."""
        values = job.metrics(self._study.objectives[0].metric)
        return step_values(values or (job.metrics(UNNAMED) if len(self._study.objectives) == 1 else ()))

    # ---- failures

    def _fail(self, live: LiveTrial, reason: str, *, counts: bool = True) -> None:
        self._study.fail(live, reason, counts=counts)
        self._record_failure(live)

    def _record_failure(self, live: LiveTrial) -> None:
        failures = self._study.failures()
        if live.number in failures:
            self._failed[live.number] = failures[live.number]
        if len(self._failed) > self._limits.max_failures:
            raise TuningFailed(self._failed, study=self._study.uri, trials=self._study.num_started)


def _label_pruned(live: LiveTrial, job: TrainingJob) -> None:
    """Marks the job of a pruned trial for the page; a failure does not matter to the search."""
    try:
        job.backend.update_labels(job.id, {PRUNED_LABEL: str(live.pruned_at)})
    except PaiError as error:
        logger.info("%s is not labelled as pruned: %s", job.id, error)
