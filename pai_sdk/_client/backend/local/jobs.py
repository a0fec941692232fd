"""Local jobs: one folder a job, from which any process can read its state.

    jobs.lock              of all jobs, for a moment: a new job, a change of `facts.json`
    <job>/submit.lock      while a process takes a step of the job: start, upload, save; see `LocalJob.step_lock`
    <job>/readers.lock     shared by the readers of the job; see `Readers`

A process that has the lock of a job may take `jobs.lock`. The reverse happens only for a job that is being
created, whose lock no other process has.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pai_sdk._client.backend.specs import LOCAL
from pai_sdk._core.files import is_locked, locked, replace_file
from pai_sdk._core.reasons import REASON_OUTPUTS_NOT_SAVED
from pai_sdk._host.agent.sandbox import TRASH_PREFIX, Sandbox
from pai_sdk._host.execution.base import ExecutionState, JobFiles
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.final_state import interrupted
from pai_sdk._host.lifecycle import JobLife, outcome, waiting_state
from pai_sdk._wire.pai.job_retries import JobRetries
from pai_sdk._wire.pai.record import InstanceRecord, JobRecord, RecordSource, StatusTransition
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.spec import Label
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk.errors import NotFoundError

_REQUEST = "request.json"
_METADATA = "facts.json"
_STEP_LOCK = "submit.lock"
_SYNC_LOCK = "sync.lock"  # of uploaders that an earlier release has started, while they send
_POLL_INTERVAL_S = 0.05
_MAX_CREATION_S = 60.0  # an incomplete folder of this age is left from a crash
_EXIT_FIELDS = ("started_at", "ended_at", "reason_code", "reason_message")

_Outcome: TypeAlias = tuple[JobStatus, str | None, str | None]


@dataclass(frozen=True)
class LocalJob:
    """A job in its folder, and its `JobStore`; the calls that move its files are those of the backend."""

    root: Path
    executor: DockerExecutor
    stage: Callable[[], None] = lambda: None
    launch: Callable[[], None] = lambda: None
    save_outputs: Callable[[], str] = lambda: ""

    @property
    def id(self) -> str:
        """Returns the id of the job."""
        return self.root.name

    @property
    def sandbox(self) -> Sandbox:
        """Returns the folder of the job."""
        return Sandbox(self.root)

    @property
    def files(self) -> JobFiles:
        """Returns the files of the job."""
        return self.executor.files(self.root)

    @property
    def life(self) -> JobLife:
        """Returns what takes the steps of the job."""
        return JobLife(self.executor, self)

    def must_exist(self) -> None:
        """Raises `NotFoundError` if the job was deleted, or never existed."""
        if not (self.root / _REQUEST).exists():
            raise _not_found(self.id, self.root.parent)

    # ---- what is recorded

    @property
    def request(self) -> TrainingJobRequest:
        """Returns the request of the job."""
        return TrainingJobRequest.model_validate_json((self.root / _REQUEST).read_bytes())

    @property
    def oss_outputs(self) -> dict[str, str]:
        """Returns output channels in OSS: name to URI."""
        uris = {channel.name: channel.output_uri or "" for channel in self.request.output_channels}
        return {name: uri for name, uri in uris.items() if uri.startswith("oss://")}

    @property
    def oss_mounts(self) -> dict[int, str]:
        """Returns the mounts in OSS that the job may change: position to URI."""
        mounts = enumerate(self.request.mounts or ())
        return {
            number: mount.uri for number, mount in mounts if mount.access == "RW" and mount.uri[:6] == "oss://"
        }

    @property
    def has_uploads(self) -> bool:
        """Returns whether files of the job are saved in OSS."""
        return bool(self.oss_outputs or self.oss_mounts)

    @property
    def are_outputs_saved(self) -> bool:
        """Returns whether all outputs are saved; False if there was nothing to save."""
        return bool(self.metadata.get("synced"))

    @property
    def metadata(self) -> dict[str, Any]:
        """Returns the metadata of the job besides its request."""
        try:
            metadata: dict[str, Any] = json.loads((self.root / _METADATA).read_bytes())
        except (OSError, ValueError):
            return {}
        return metadata

    @contextmanager
    def update_metadata(self) -> Iterator[dict[str, Any]]:
        """Locks and yields the metadata for changes; saves it at the end."""
        # Not the lock of the job: an upload may hold that one for minutes.
        with locked(self.root.parent.with_suffix(".lock")):
            metadata = self.metadata
            yield metadata
            # Only after the block has succeeded: an error in it leaves the file unchanged.
            _write(self.root / _METADATA, metadata)

    @property
    def retries(self) -> JobRetries:
        """Returns the retry policy of the job."""
        return JobRetries.of(self.request)

    @property
    def attempt(self) -> int:
        """Returns the number of the attempt after those whose exits are recorded."""
        return len(self.metadata.get("attempts", ())) + 1

    @property
    def stop_requested(self) -> bool:
        """Returns whether a stop was requested."""
        return self.metadata.get("stopped_at") is not None

    # ---- its steps

    @contextmanager
    def step_lock(self, *, waits: bool = True) -> Iterator[bool]:
        """Locks the job for its next step; yields False if another process takes one."""
        with ExitStack() as stack:
            has_lock = stack.enter_context(locked(self.root / _STEP_LOCK, waits=waits))
            if has_lock and (self.root / _SYNC_LOCK).exists():
                has_lock = stack.enter_context(locked(self.root / _SYNC_LOCK, waits=waits))
            yield has_lock

    def wait_until_started(self) -> bool:
        """Waits until another process has started the job; returns whether the job exists then."""
        # The starting process holds the lock, and deletes the folder if the start fails. A job that runs may be
        # locked too, by its uploader.
        starting = ("absent", "preparing")
        while is_locked(self.root / _STEP_LOCK) and self.executor.state(self.root).phase in starting:
            time.sleep(_POLL_INTERVAL_S)
        return (self.root / _REQUEST).exists()

    def state(self) -> ExecutionState:
        """Returns the state of the job by its instances; a job whose submitter was killed has ended."""
        self.must_exist()
        state = self.executor.state(self.root)
        if state.phase == "absent" and not is_locked(self.root / _STEP_LOCK):
            state = self.executor.state(self.root)  # it may have been started between the two checks
            if state.phase == "absent":
                exits = self.metadata.get("attempts")
                return self._waiting(_exit_of(exits[-1])) if exits else interrupted()
        if state.phase != "ended" or not self.retries.allow(self.sandbox.attempt, state.reason_code):
            return state
        return self._waiting(state)

    def _waiting(self, ended: ExecutionState) -> ExecutionState:
        """Returns the state of the job after an exit that another attempt follows."""
        return waiting_state(ended, stopped_at=self.metadata.get("stopped_at"))

    def record_exit(self, state: ExecutionState) -> bool:
        """Records the exit of an attempt before the next one starts; returns False if the job was stopped."""
        with self.update_metadata() as metadata:
            # Stopped while it waited: the state of the job is final.
            if metadata.get("stopped_at"):
                return False
            attempts = metadata.setdefault("attempts", [])
            # A process that was killed during a start may have recorded this exit already.
            if state.phase == "ended" and len(attempts) < self.sandbox.attempt:
                attempts.append({name: getattr(state, name) for name in _EXIT_FIELDS})
        return True

    def retry(self, state: ExecutionState, wait_s: float) -> bool:
        """Returns False: the process that starts the next attempt records the exit before it."""
        return False

    def report(self, state: ExecutionState, unsaved: str) -> None:
        """Records whether the outputs are saved, from which each process derives the outcome."""
        with self.update_metadata() as metadata:
            metadata["synced"] = not unsaved
            metadata["unsaved"] = unsaved

    def stop(self) -> None:
        """Requests that the job stops, also one that waits for another attempt."""
        # Other jobs have no next attempt that could start after this stop.
        if self.retries.num_retries:
            with self.update_metadata() as metadata:
                # Recorded first: a process that starts the next attempt now reads it, and stops that attempt.
                metadata.setdefault("stopped_at", time.time())
        self.life.stop()

    def is_log_open(self, instance: str) -> bool:
        """Returns whether lines of an instance may follow."""
        state = self.state()
        # The state of an ended job may lack this instance; another attempt appends to the same log.
        if state.phase == "ended" or self.retries.num_retries:
            return state.phase != "ended"
        return not any(each.name == instance and each.exit_code is not None for each in state.instances)

    # ---- its record

    def record(self, state: ExecutionState) -> JobRecord:
        """Returns the record of the job."""
        request, metadata = self.request, self.metadata
        status, code, message = outcome(state)
        if state.phase == "absent" and state.reason_code:
            status = JobStatus.SUBMITTED  # it waits for another attempt
        exited_at = state.ended_at if state.phase == "ended" else None
        if exited_at is not None and not metadata.get("synced") and self.has_uploads:
            outputs = self.sandbox.ml / "output"
            status, code, message = _outcome_of_unsaved(state, str(metadata.get("unsaved") or ""), outputs)
        history = _history(status, state, metadata)
        created = metadata.get("created_at")
        labels = [Label(key=key, value=value) for key, value in metadata.get("labels", {}).items()]
        record = JobRecord(
            **request.model_copy(update={"labels": labels}).to_wire(),
            training_job_id=self.id,
            status=status,
            reason_code=code,
            reason_message=message,
            gmt_create_time=wire_time(created),
            gmt_modified_time=wire_time(history[-1][1] if history else created),
            duration=max(0, round((exited_at or time.time()) - state.started_at)) if state.started_at else 0,
            instances=[
                InstanceRecord(name=instance.name, role=instance.role, status=instance.status)
                for instance in state.instances
            ],
            status_transitions=[
                StatusTransition(status=name, start_time=wire_time(at), end_time=wire_time(until))
                for (name, at), until in zip(history, [*(at for _, at in history[1:]), None], strict=True)
            ],
        )
        return record.from_source(RecordSource(lists_all=True))


def _exit_of(attempt: Mapping[str, Any]) -> ExecutionState:
    """Returns the state in which a recorded attempt has ended."""
    return ExecutionState("ended", **{name: attempt[name] for name in _EXIT_FIELDS if name != "started_at"})


def _history(status: JobStatus, state: ExecutionState, metadata: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Returns the statuses of a job, with their start times."""
    changes: list[tuple[JobStatus, float | None]] = [(JobStatus.INITIALIZING, metadata.get("created_at"))]
    for attempt in metadata.get("attempts", ()):
        changes += [(JobStatus.RUNNING, attempt["started_at"]), (JobStatus.SUBMITTED, attempt["ended_at"])]
    finished_at = state.ended_at if status.is_terminal or status == JobStatus.SUBMITTED else None
    if (status, finished_at) not in changes:
        changes += [(JobStatus.RUNNING, state.started_at), (status, finished_at)]
    return [(str(name), at) for name, at in changes if at is not None]


def _outcome_of_unsaved(state: ExecutionState, unsaved: str, outputs: Path) -> _Outcome:
    """Returns the outcome of a job whose containers have exited, but whose outputs are not saved."""
    if not unsaved:
        text = (
            f"The containers have ended; the outputs in {outputs} are saved to OSS when the job is next queried."
        )
        return JobStatus.RUNNING, "SavingOutputs", text
    text = (
        f"the outputs are in {outputs}, but could not be saved: {unsaved}; the next query of the job tries again"
    )
    status, code, message = outcome(state, unsaved_message=text)
    return status, code, message if code == REASON_OUTPUTS_NOT_SAVED else f"{message} Besides, {text}"


class LocalJobs:
    """All local jobs of a user, in one folder."""

    def __init__(self, folder: Path, executor: DockerExecutor) -> None:
        self.folder = folder
        self._executor = executor

    def get(self, job_id: str) -> LocalJob:
        """Returns a job, or raises `NotFoundError`."""
        if not job_id.startswith(LOCAL.job_prefix) or "/" in job_id:
            raise _not_found(job_id, self.folder)
        job = self._job(job_id)
        job.must_exist()
        return job

    @contextmanager
    def may_be_deleted(self, job_id: str) -> Iterator[LocalJob]:
        """Accesses a job's folder, which another process may delete at any time (`NotFoundError`)."""
        job = self.get(job_id)
        try:
            yield job
        # Deleted during the block, or another file is missing.
        except FileNotFoundError:
            job.must_exist()
            raise

    @contextmanager
    def submitting(self, request: TrainingJobRequest, embedded: Path | None) -> Iterator[tuple[LocalJob, bool]]:
        """Creates the folder of a new job; yields it and True. Other processes see that it is being started.

        If a job has the submission label of the request, another process submits the same plan: then this waits
        until that process has started the job, and yields that job and False.
        """
        submission = request.label(SUBMISSION_LABEL)
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            with ExitStack() as stack:
                # Serializes the search and the creation: of concurrent processes with one label, one creates the
                # job, and the others find it.
                with locked(self.folder.with_suffix(".lock")):
                    earlier = self.job_of(submission) if submission else None
                    if earlier is None:
                        job = self._job(f"{LOCAL.job_prefix}{os.urandom(6).hex()}")
                        job.root.mkdir(mode=0o700)
                        # Before the request is written: no process can see the job without this lock.
                        stack.enter_context(job.step_lock())
                        labels = {label.key: label.value or "" for label in request.labels or ()}
                        metadata = {"created_at": time.time(), "labels": labels, "synced": False}
                        if embedded is not None:
                            # Another session may query the job: it must use the storage of the service with which
                            # it was submitted.
                            metadata["embedded"] = str(embedded)
                        _write(job.root / _METADATA, metadata)
                        _write(job.root / _REQUEST, request.to_wire())  # last: a folder with a request is a job
                if earlier is None:
                    yield job, True
                    return
            # If that start has failed, this process creates the job.
            if earlier.wait_until_started():
                yield earlier, False
                return

    def job_of(self, submission: str) -> LocalJob | None:
        """Returns the job with this submission label."""
        labels = ((job, job.metadata.get("labels", {})) for job in map(self._job, self.ids()))
        return next((job for job, each in labels if each.get(SUBMISSION_LABEL) == submission), None)

    def ids(self) -> list[str]:
        """Returns the ids of all jobs, the newest first."""
        jobs = [self._job(entry.name) for entry in self._entries() if (entry / _REQUEST).exists()]
        # Not by the time of the folder, which changes with its files.
        jobs.sort(key=lambda job: job.metadata.get("created_at", 0.0), reverse=True)
        return [job.id for job in jobs]

    def remnants(self) -> list[Path]:
        """Returns folders that are no jobs: of interrupted submissions and deletions."""
        trash = self.folder.glob(f"{TRASH_PREFIX}*")
        return [*trash, *(entry for entry in self._entries() if _is_remnant(entry))]

    def _job(self, job_id: str) -> LocalJob:
        return LocalJob(self.folder / job_id, self._executor)

    def _entries(self) -> Iterator[Path]:
        """Yields the folders of jobs, also of incomplete ones."""
        return self.folder.glob(f"{LOCAL.job_prefix}*")


def _not_found(job_id: str, folder: Path) -> NotFoundError:
    return NotFoundError(
        f"there is no local job {job_id!r} in {folder}; `pai-sdk ps --local` lists them",
        code="TrainingJobNotFound",
        status_code=404,
    )


def _is_remnant(folder: Path) -> bool:
    if (folder / _REQUEST).exists():
        return False
    with suppress(FileNotFoundError):
        return time.time() - folder.stat().st_mtime > _MAX_CREATION_S
    return False


def _write(path: Path, value: object) -> None:
    """Replaces a file with mode 0600, since it may hold secrets of the job's variables."""
    replace_file(path, json.dumps(value, ensure_ascii=False))
