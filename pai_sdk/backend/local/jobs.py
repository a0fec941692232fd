"""The folder of local jobs: one folder a job, in which any process finds all there is to know of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pai_sdk.agent.reasons import REASON_STOPPED_BY_USER
from pai_sdk.agent.sandbox import TRASH_PREFIX, Sandbox
from pai_sdk.backend.places import LOCAL
from pai_sdk.base.files import is_locked, locked, replace_file
from pai_sdk.errors import NotFoundError
from pai_sdk.execution.base import ExecutionState, Executor, outcome
from pai_sdk.execution.docker.ending import interrupted
from pai_sdk.schemas.job_retries import JobRetries
from pai_sdk.schemas.record import InstanceRecord, JobRecord, StatusTransition
from pai_sdk.schemas.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.schemas.spec import Label
from pai_sdk.schemas.status import JobStatus
from pai_sdk.schemas.wire import wire_time

_REQUEST = "request.json"
_FACTS = "facts.json"
_SUBMIT_LOCK = "submit.lock"
_LONGEST_MAKING_S = 60.0  # a folder that is still no job then will not become one


class LocalJobs:
    """All local jobs of a user.

    Args:
        folder: where their folders are.

    Example:
        >>> LocalJobs(Path("/srv/none")).ids()
        []
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sandbox(self, job_id: str) -> Sandbox:
        """A job's folder.

        Raises:
            NotFoundError: there is no such job here.
        """
        root = self.folder / job_id
        if not job_id.startswith(LOCAL.job_prefix) or "/" in job_id or not (root / _REQUEST).exists():
            raise NotFoundError(
                f"there is no local job {job_id!r} in {self.folder}; `pai-sdk ps --local` lists them",
                code="TrainingJobNotFound",
                status_code=404,
            )
        return Sandbox(root)

    @contextmanager
    def submitting(self, request: TrainingJobRequest) -> Iterator[tuple[str, bool]]:
        """Make the folder of a new job; gives its id, and True.

        A request whose submission label belongs to a job that is there already is the same submission, made by
        another process: it gives that job's id and False, as soon as the other process has started the job. Where
        that start fails, this one makes the job.

        For as long as this lasts, other processes see that the job is being started.
        """
        submission = request.label(SUBMISSION_LABEL)
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            with ExitStack() as held:
                # One process at a time: it finds the job of its submission, or makes one that the others find.
                with locked(self.folder.with_suffix(".lock")):
                    earlier = submission and self.job_of(submission)
                    if not earlier:
                        job_id = f"{LOCAL.job_prefix}{os.urandom(6).hex()}"
                        root = self.folder / job_id
                        root.mkdir(mode=0o700)
                        held.enter_context(locked(root / _SUBMIT_LOCK))
                        facts = {"created_at": time.time(), "labels": _labels_of(request), "synced": False}
                        _write(root / _FACTS, facts)
                        _write(root / _REQUEST, request.to_wire())  # last: with it, the job is there
                if not earlier:
                    yield job_id, True
                    return
            if self._was_started(earlier):
                yield earlier, False
                return

    def job_of(self, submission: str) -> str | None:
        """The job with that submission label."""
        for job_id in self.ids():
            if self.facts(job_id).get("labels", {}).get(SUBMISSION_LABEL) == submission:
                return job_id
        return None

    def _was_started(self, job_id: str) -> bool:
        """Wait until another process has started a job; whether the job is there then."""
        with suppress(FileNotFoundError), locked(self.folder / job_id / _SUBMIT_LOCK):
            return (self.folder / job_id / _REQUEST).exists()
        return False

    def state(self, job_id: str, executor: Executor) -> ExecutionState:
        """The state of a job, by its instances; a job whose submitter was killed has ended.

        A job that waits for another attempt is absent, and has the reason for which the last one ended.
        """
        root = self.sandbox(job_id).root
        state = executor.state(root)
        if state.phase == "absent" and not is_locked(root / _SUBMIT_LOCK):
            state = executor.state(root)  # its submitter has just finished, or was killed at it
            if state.phase == "absent":
                return self._between_attempts(job_id) or interrupted()
        if state.phase != "ended" or not self.retries(job_id).allow(Sandbox(root).attempt, state.reason_code):
            return state
        return _stopped_or_waiting(state, self.facts(job_id))

    def _between_attempts(self, job_id: str) -> ExecutionState | None:
        """The state of a job whose last attempt is noted, and whose next one has not begun."""
        facts = self.facts(job_id)
        if not (noted := facts.get("attempts")):
            return None
        last = noted[-1]
        ended = ExecutionState(
            "ended",
            reason_code=last["reason_code"],
            reason_message=last["reason_message"],
            ended_at=last["ended_at"],
        )
        return _stopped_or_waiting(ended, facts)

    def retries(self, job_id: str) -> JobRetries:
        """After which endings the job is started again."""
        return JobRetries.of(self.request(job_id))

    def beginning_again(self, job_id: str) -> AbstractContextManager[bool]:
        """A block in which another attempt is begun; False where another process does that."""
        return locked(self.sandbox(job_id).root / _SUBMIT_LOCK, waits=False)

    def stop(self, job_id: str, executor: Executor) -> None:
        """Ask for an end, also of a job that waits for another attempt."""
        root = self.sandbox(job_id).root
        if self.retries(job_id).most:
            with self.changing(job_id) as facts:
                facts.setdefault("stopped_at", time.time())
        executor.stop(root, reason_code=REASON_STOPPED_BY_USER, reason_message="The job was stopped by its user.")

    @contextmanager
    def may_be_deleted(self, job_id: str) -> Iterator[Sandbox]:
        """Look into a job's folder, which another process may delete at any moment.

        Raises:
            NotFoundError: there is no such job here, or none any more.
        """
        sandbox = self.sandbox(job_id)
        try:
            yield sandbox
        except FileNotFoundError:
            self.sandbox(job_id)
            raise

    def ids(self) -> list[str]:
        """All jobs there are, the newest first."""
        if not self.folder.is_dir():
            return []
        found = [
            entry
            for entry in self.folder.iterdir()
            if entry.name.startswith(LOCAL.job_prefix) and (entry / _REQUEST).exists()
        ]
        found.sort(key=lambda entry: self.facts(entry.name).get("created_at", 0.0), reverse=True)
        return [entry.name for entry in found]

    def remnants(self) -> list[Path]:
        """Folders that are no jobs: of submissions and removals that were cut off."""
        if not self.folder.is_dir():
            return []
        return [entry for entry in self.folder.iterdir() if _is_remnant(entry)]

    def request(self, job_id: str) -> TrainingJobRequest:
        """The request of a job."""
        text = (self.sandbox(job_id).root / _REQUEST).read_bytes()
        return TrainingJobRequest.model_validate_json(text)

    def facts(self, job_id: str) -> dict[str, Any]:
        """The other facts that are written down of a job."""
        try:
            facts: dict[str, Any] = json.loads((self.folder / job_id / _FACTS).read_bytes())
        except (OSError, ValueError):
            return {}
        return facts

    @contextmanager
    def changing(self, job_id: str) -> Iterator[dict[str, Any]]:
        """The facts, to be changed; no other process changes them meanwhile."""
        root = self.sandbox(job_id).root
        with locked(root / "facts.lock"):
            facts = self.facts(job_id)
            yield facts
            _write(root / _FACTS, facts)

    def record(self, job_id: str, state: ExecutionState) -> JobRecord:
        """A job as TrainingJob knows it."""
        request, facts = self.request(job_id), self.facts(job_id)
        status, code, message = outcome(state)
        if state.phase == "absent" and state.reason_code:
            status = JobStatus.SUBMITTED  # it waits for another attempt
        ended = state.ended_at if state.phase == "ended" else None
        if ended is not None and not facts.get("synced") and oss_outputs(request):
            outputs = self.sandbox(job_id).ml / "output"
            status, code, message = _with_unsaved(status, code, message, str(facts.get("unsaved") or ""), outputs)
        created = facts.get("created_at")
        moments = [(JobStatus.INITIALIZING, created), *_of_earlier_attempts(facts)]
        told_end = state.ended_at if status.is_terminal or status == JobStatus.SUBMITTED else None
        if (status, told_end) not in moments:
            moments += [(JobStatus.RUNNING, state.started_at), (status, told_end)]
        passed = [(str(name), at) for name, at in moments if at is not None]
        labels = [Label(key=key, value=value) for key, value in facts.get("labels", {}).items()]
        record = JobRecord(
            **request.model_copy(update={"labels": labels}).to_wire(),
            training_job_id=job_id,
            status=status,
            reason_code=code,
            reason_message=message,
            gmt_create_time=wire_time(created),
            gmt_modified_time=wire_time(passed[-1][1] if passed else created),
            duration=max(0, round((ended or time.time()) - state.started_at)) if state.started_at else 0,
            instances=[
                InstanceRecord(name=instance.name, role=instance.role, status=instance.status)
                for instance in state.instances
            ],
            status_transitions=[
                StatusTransition(status=name, start_time=wire_time(at), end_time=wire_time(until))
                for (name, at), until in zip(passed, [*(at for _, at in passed[1:]), None], strict=True)
            ],
        )
        record._lists_all = True
        return record


def _stopped_or_waiting(ended: ExecutionState, facts: Mapping[str, Any]) -> ExecutionState:
    """The state of a job after an end that another attempt follows."""
    if (stopped_at := facts.get("stopped_at")) is None:
        return replace(ended, phase="absent")
    return replace(
        ended,
        reason_code=REASON_STOPPED_BY_USER,
        reason_message="The job was stopped before it began again.",
        ended_at=max(stopped_at, ended.ended_at or 0.0),
    )


def _of_earlier_attempts(facts: Mapping[str, Any]) -> Iterator[tuple[JobStatus, float | None]]:
    for attempt in facts.get("attempts", ()):
        yield JobStatus.RUNNING, attempt["started_at"]
        yield JobStatus.SUBMITTED, attempt["ended_at"]


def _with_unsaved(
    status: JobStatus, code: str | None, message: str | None, unsaved: str, outputs: Path
) -> tuple[JobStatus, str | None, str | None]:
    """The outcome of a job whose containers have ended, but whose outputs are not where they are to be."""
    if not unsaved:
        text = (
            f"The containers have ended; the outputs in {outputs} are saved to OSS when the job is next queried."
        )
        return JobStatus.RUNNING, "SavingOutputs", text
    text = (
        f"the outputs are in {outputs}, but could not be saved: {unsaved}; the next query of the job tries again"
    )
    if status.is_success:
        return JobStatus.FAILED, "OutputsNotSaved", text
    return status, code, f"{message} Besides, {text}"


def oss_outputs(request: TrainingJobRequest) -> dict[str, str]:
    """Output channel to its URI, of those that go to OSS."""
    uris = {channel.name: channel.output_uri or "" for channel in request.output_channels}
    return {name: uri for name, uri in uris.items() if uri.startswith("oss://")}


def _labels_of(request: TrainingJobRequest) -> dict[str, str]:
    return {label.key: label.value or "" for label in request.labels or ()}


def _is_remnant(folder: Path) -> bool:
    if folder.name.startswith(TRASH_PREFIX):
        return True
    if not folder.name.startswith(LOCAL.job_prefix) or (folder / _REQUEST).exists():
        return False
    with suppress(FileNotFoundError):
        return time.time() - folder.stat().st_mtime > _LONGEST_MAKING_S
    return False


def _write(path: Path, value: object) -> None:
    """Write a file as a whole; it may hold what the job's variables hide, so it is for its owner only."""
    replace_file(path, json.dumps(value, ensure_ascii=False))
