"""Runs the jobs of the queue: one thread decides, thread pools copy files."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from pai_sdk._core.reasons import REASON_DISK_FULL, REASON_STOPPED_BY_USER
from pai_sdk._host.agent.protocol import DISK_IS_FULL
from pai_sdk._host.execution.base import ExecutionState, Executor
from pai_sdk._host.execution.output_uploader import UploadCancelled
from pai_sdk._host.lifecycle import STOPPED_MESSAGE, JobLife
from pai_sdk._service.background.active_job import JobServices, LiveOutputs, ServiceJob
from pai_sdk._service.background.metrics import MetricsCollector
from pai_sdk._service.periodic_task import PeriodicTask
from pai_sdk._service.services.jobs.host_resources import Capacity, need_or_instances
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.queueing.fair_share import Allocation, allocated_at
from pai_sdk._service.services.jobs.queueing.queue import FairQueue
from pai_sdk._service.services.jobs.staging import StagingCancelled, StagingFailed
from pai_sdk._service.settings import ServiceSettings
from pai_sdk._service.state.disk import DiskWatch
from pai_sdk._service.state.folder import DataFolder
from pai_sdk._service.state.models import Job
from pai_sdk._service.state.trash import Trash
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import PaiError

if TYPE_CHECKING:
    from pai_sdk._service.odps.job_tables import JobTables
    from pai_sdk._service.oss.store import ObjectStore

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.05
# The poll interval grows with the number of running jobs, so that polling costs the same: 200 jobs/s.
_POLL_INTERVAL_PER_JOB_S = 0.005
_RENEW_RETRY_S = 0.2
_DISK_FULL = "The disk of the service is full. Free some space on it, then submit the job again."

_Step: TypeAlias = Literal["staging", "running", "finishing"]


@dataclass
class _ActiveJob:
    """A job that has left the queue and has not finished."""

    job: ServiceJob
    life: JobLife
    allocation: Allocation
    live_outputs: LiveOutputs
    step: _Step
    status: JobStatus
    is_stop_forwarded: bool = False
    last_state: ExecutionState = field(default_factory=lambda: ExecutionState("absent"))
    work: Future[None] | None = None
    not_before: float = 0.0


class Scheduler:
    """Runs jobs in the order of the `FairQueue`, as many as the capacity allows.

    No job overtakes the next one: a large job waits until it fits, and all later jobs wait too. So no job starves
    because it is large; a job of low priority can, as long as its owner submits jobs of higher priority. A running
    job is never preempted.

    It has no persistent state: the state is in the database and in the executor's folders, and a restart recovers
    from there.

    There is no lock. Only the thread `scheduler` changes `_active` and the jobs in it. The threads of the pools
    read one `_ActiveJob`, and respond by its future `work`, which the scheduler polls. Threads of requests call
    `wake` and `discard` only: these set an event, and put a folder into the queue of the trash.

    It decides when a step of a job is taken; `JobLife` takes it: staging -> running -> finishing, and from there
    back to the queue after an exit that another attempt follows. After an error a step is repeated with a pause. A
    restart resumes with the step "running", from which a job that has not started returns to "staging".
    """

    def __init__(
        self,
        jobs: Jobs,
        folder: DataFolder,
        store: ObjectStore,
        executor: Executor,
        collector: MetricsCollector,
        *,
        settings: ServiceSettings,
        capacity: Callable[[], Capacity],
        tables: JobTables | None = None,
        can_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._jobs = jobs
        self._folder = folder
        self._executor = executor
        self._collector = collector
        self._capacity = capacity
        self._pace = settings.pace
        self._queue = FairQueue(jobs)
        self._can_act = can_act
        self._has_recovered = False
        self._active: dict[str, _ActiveJob] = {}
        self._queue_is_empty = False
        self._next_attempt_at: float | None = None
        self._has_news = True  # of the queue, or of a stop
        self._read_again_at = 0.0  # on the monotonic clock
        self._trash = Trash(folder.jobs_dir)
        self._services = JobServices(
            jobs, store, executor, collector, tables, lambda: self.is_closing, self._trash.put, self._pace
        )
        self._disk = DiskWatch(folder.root)
        self._copiers = ThreadPoolExecutor(settings.copy_threads, thread_name_prefix="copy")
        # The host of a repository may hang for minutes; jobs without one must not wait for it.
        self._cloners = ThreadPoolExecutor(settings.copy_threads, thread_name_prefix="clone")
        # Separate pools: start and finish of a job must not wait for large files of another job.
        self._publishers = ThreadPoolExecutor(settings.copy_threads, thread_name_prefix="publish")
        self._finishers = ThreadPoolExecutor(settings.copy_threads, thread_name_prefix="finish")
        self._task = PeriodicTask(
            "scheduler",
            self._pause_s,
            self._run,
            retry_s=self._pace.retry_after_error_s,
            on_error=partial(self._disk.log_error, "the scheduler failed, and tries again"),
            can_act=can_act,
        )

    # ---- called by other threads -------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the thread, which first recovers the jobs of an earlier process."""
        self._disk.record_success()
        self._task.start()

    def close(self) -> None:
        """Stops the threads. Running jobs continue; the next service on this folder recovers them."""
        self._task.close()
        for pool in (self._copiers, self._cloners, self._publishers, self._finishers):
            pool.shutdown(wait=True, cancel_futures=True)
        self._trash.close()

    def wake(self) -> None:
        """Wakes the thread for a new job or a stop request."""
        # In this order: the thread reads the flag once it is awake.
        self._has_news = True
        self._task.wake()

    def end_job(self, job_id: str, *, reason_code: str, reason_message: str) -> None:
        """Ends the current attempt of a job for this reason; has no effect on one that has finished."""
        self._executor.stop(self._folder.job_dir(job_id), reason_code=reason_code, reason_message=reason_message)

    def discard(self, job_id: str) -> None:
        """Deletes the folder of a deleted job in the background."""
        self._trash.put(self._folder.job_dir(job_id))

    def request_of(self, job_id: str) -> TrainingJobRequest | None:
        """Returns the request of a job that is staged or runs; None for any other job."""
        active = self._active.get(job_id)
        return None if active is None or active.step == "finishing" else active.job.request

    @property
    def allocations(self) -> list[Allocation]:
        """Returns the resources of all started jobs. Thread-safe: it iterates over a copy."""
        return [active.allocation for active in [*self._active.values()]]

    @property
    def is_closing(self) -> bool:
        """Returns True if no more work is started: the service shuts down, or another one may hold the lease."""
        return self._task.closing.is_set() or not self._can_act()

    @property
    def is_working(self) -> bool:
        """Returns True while the scheduler's thread is alive."""
        return self._task.is_alive

    @property
    def is_idle(self) -> bool:
        """Returns True if no job runs or waits."""
        return self._queue_is_empty and not self._active and not self._task.is_pending

    # ---- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        if not self._has_recovered:
            self._recover()
            self._has_recovered = True
        # With jobs in the queue, wake-ups within 50 ms are collected: many submissions cause one read.
        if self._has_news:
            self._task.closing.wait(self._read_again_at - time.monotonic())
        if not self.is_closing:
            self._poll()

    def _pause_s(self) -> float | None:
        """Returns the time until the next poll of running jobs, or until the next retry; None without both."""
        if self._active:
            return max(_POLL_INTERVAL_S, _POLL_INTERVAL_PER_JOB_S * len(self._active))
        return None if self._next_attempt_at is None else max(0.0, self._next_attempt_at - time.monotonic())

    def _recover(self) -> None:
        """Recovers the jobs of an earlier process, and its unfinished deletions of folders."""
        job_ids = self._jobs.ids()
        for folder in self._folder.jobs_dir.iterdir():
            if folder.name not in job_ids:
                self._trash.put(folder)
        for job in self._jobs.active():
            if job.id not in self._active:
                logger.info("job %s is recovered", job.id)
                self._activate(job, "running", JobStatus(job.status), since=allocated_at(job))

    def _poll(self) -> None:
        if self._next_attempt_at is not None and time.monotonic() >= self._next_attempt_at:
            self._next_attempt_at = None
            self._has_news = True
        if self._has_news:
            self._has_news = False  # before the read: a wake during it causes another one
            try:
                for active in self._active.values():
                    job = active.job
                    job.stop_requested = job.stop_requested or self._jobs.is_stop_requested(job.id)
                self._admit()
            except Exception:
                self._has_news = True
                raise
        for active in list(self._active.values()):
            if time.monotonic() >= active.not_before:
                try:
                    self._advance(active)
                except Exception as error:
                    self._disk.log_error(f"job {active.job.id} cannot continue, and is tried again", error)
                    active.not_before = time.monotonic() + self._pace.retry_after_error_s

    def _admit(self) -> None:
        """Starts jobs of the queue until the next one has to wait."""
        # In each pass, not when the user is removed: an earlier request may create a job after that, and a failed
        # attempt returns a job to the queue.
        self._jobs.stop_queued_of_removed()
        read_at = time.time()
        while (job := self._queue.next_to_start(self._capacity, self.allocations)) is not None:
            # False if a stop request was faster: then the job has finished, and is not activated.
            if self._jobs.move(job.id, JobStatus.INITIALIZING, text="Preparing the job's code and inputs."):
                self._activate(job, "staging", JobStatus.INITIALIZING, since=time.time())
        self._queue_is_empty = self._queue.is_empty
        if not self._queue_is_empty:
            # The first job waits. Submissions of the next 50 ms share one read of the queue.
            self._read_again_at = time.monotonic() + _POLL_INTERVAL_S
        wait_s = None if self._queue_is_empty else self._jobs.next_attempt_in_s(read_at)
        # Monotonic: the system clock may be set back.
        self._next_attempt_at = None if wait_s is None else time.monotonic() + wait_s

    def _activate(self, row: Job, step: _Step, status: JobStatus, *, since: float) -> None:
        add_event = partial(self._add_event, row.id)
        job = ServiceJob(row, self._executor.files(self._folder.job_dir(row.id)), self._services, add_event)
        live_outputs = LiveOutputs(
            job.publisher,
            self._publishers,
            interval_s=self._pace.upload_interval_s,
            add_event=add_event,
            log_error=lambda message, error: self._disk.log_error(f"job {job.id}: {message}", error),
        )
        allocation = Allocation(row.owner, need_or_instances(job.request), since)
        life = JobLife(self._executor, job)
        self._active[job.id] = _ActiveJob(job, life, allocation, live_outputs, step, status)
        self._collector.watch(job.id, job.request, job.sandbox)

    def _advance(self, active: _ActiveJob) -> None:
        if active.step == "staging":
            self._advance_staging(active)
        if active.step == "running":
            self._advance_running(active)
        if active.step == "finishing":
            self._advance_finishing(active)

    # ---- staging ------------------------------------------------------------------------------------------

    def _advance_staging(self, active: _ActiveJob) -> None:
        if active.work is None:
            # The future is the only channel from the pool's thread to the scheduler; that thread changes nothing
            # of `active`.
            threads = self._cloners if active.job.clones_code else self._copiers
            active.work = threads.submit(self._start, active)
            # Clients wait for the instances of a job that has started.
            active.work.add_done_callback(lambda _: self._task.wake())
        if not active.work.done():
            if active.job.stop_requested:  # the executor may be starting it, for example pull its image
                active.life.stop()
            return
        work, active.work = active.work, None
        try:
            work.result()
        except StagingCancelled:
            if not self.is_closing:
                self._end(active, JobStatus.TERMINATED, REASON_STOPPED_BY_USER, STOPPED_MESSAGE)
        except Exception as error:
            self._end(active, JobStatus.INITIALIZE_FAILED, *_start_failure(active.job.id, error))
        else:
            active.step = "running"

    def _start(self, active: _ActiveJob) -> None:
        while not active.life.start():
            active.job.check_cancelled()
            time.sleep(_RENEW_RETRY_S)

    # ---- running ------------------------------------------------------------------------------------------

    def _advance_running(self, active: _ActiveJob) -> None:
        job, state = active.job, active.life.observe()
        if state.phase == "absent":  # an earlier service has exited before it started the job
            active.step = "staging"
            return
        if job.stop_requested and not active.is_stop_forwarded:
            active.life.stop()
            active.is_stop_forwarded = True
        if state.started_at is not None and active.status == JobStatus.INITIALIZING:
            self._jobs.move(
                job.id,
                JobStatus.RUNNING,
                text="The job is running.",
                instances=state.instances,
                started_at=state.started_at,
            )
            active.status = JobStatus.RUNNING
        elif state.instances != active.last_state.instances and state.phase != "ended":
            self._jobs.set_instances(job.id, state.instances)
        active.last_state = state
        if state.phase == "ended":
            active.step = "finishing"
        else:
            active.live_outputs.poll()

    # ---- the end ------------------------------------------------------------------------------------------

    def _advance_finishing(self, active: _ActiveJob) -> None:
        if active.work is None:
            active.work = self._finishers.submit(self._finish, active)
        if active.work.done():
            work, active.work = active.work, None
            # A cancelled upload leaves the step: the next service repeats it.
            if not isinstance(work.exception(), UploadCancelled):
                work.result()
                self._release(active)

    def _finish(self, active: _ActiveJob) -> None:
        if active.life.finish(active.last_state):
            self.wake()

    def _end(self, active: _ActiveJob, status: JobStatus, reason_code: str, reason_message: str) -> None:
        self._collector.finish(active.job.id)
        self._jobs.move(
            active.job.id, status, text=reason_message, reason_code=reason_code, reason_message=reason_message
        )
        self._release(active)

    def _add_event(self, job_id: str, text: str) -> None:
        """Adds an event; an error is only logged."""
        try:
            self._jobs.add_event(job_id, text)
        except Exception as error:
            self._disk.log_error(f"an event of job {job_id} cannot be saved", error)

    def _release(self, active: _ActiveJob) -> None:
        self._disk.record_success()
        del self._active[active.job.id]
        self.wake()


def _start_failure(job_id: str, error: Exception) -> tuple[str, str]:
    """Returns the reason why a job could not be started, as a code and a message."""
    if isinstance(error, StagingFailed):
        return error.reason_code, error.message
    if isinstance(error, PaiError):
        return "ExecutorFailed", str(error)
    logger.error("job %s cannot begin", job_id, exc_info=error)
    # The files of the job may have filled it.
    if isinstance(error, OSError) and error.errno in DISK_IS_FULL:
        return REASON_DISK_FULL, _DISK_FULL
    message = f"The service had an unexpected error ({type(error).__name__}); its log has the details."
    return "InternalError", message
