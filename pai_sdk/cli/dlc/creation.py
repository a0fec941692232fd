"""Creates the job of a command once, also where a response is lost and a script repeats the command."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.dlc.backend import DlcBackend
from pai_sdk._client.backend.dlc.mapping import SUBMISSION
from pai_sdk._client.submission import SubmissionPolicy
from pai_sdk._client.submission.creation import Creation
from pai_sdk._client.submission.ledger import Submission
from pai_sdk._core.files import locked
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.jobs import JobReference, NewJob
from pai_sdk._wire.pai.compute import ComputeResource
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.cli.dlc.connection import DlcConnection
from pai_sdk.cli.tables import print_error
from pai_sdk.errors import PaiError

UNCONFIRMED_DIR = Path("~/.pai/dlc-submissions")
"""Keys of submissions whose create has no response; a file for each body."""

_RELEVANT_S = 3600.0  # a line that is repeated later is meant as another job


class SubmittingBackend(DlcBackend):
    """Keeps the response of CreateJob, whose request id is printed."""

    created = JobReference()

    def create(self, plan: Plan, *, progress: bool = True) -> str:
        """Calls CreateJob once."""
        self.created = self.send(plan)
        return self.created.job_id or ""


def create_job(connection: DlcConnection, body: Mapping[str, Any]) -> JobReference:
    """Creates a job, or returns the one that an earlier create of the same body without a response has created."""
    backend = SubmittingBackend(connection.to_backend, jobs=connection.jobs)
    try:
        return create_once(backend, body, UNCONFIRMED_DIR.expanduser())
    except PaiError as error:
        if error.maybe_arrived:
            name = received(NewJob, body).display_name
            print_error(f"the job may have been created; to see it: pai-sdk dlc get job --display_name {name}")
        raise


def create_once(
    backend: SubmittingBackend, body: Mapping[str, Any], folder: Path, policy: SubmissionPolicy | None = None
) -> JobReference:
    """Creates a job; `folder` has the keys of creates without a response."""
    text = json.dumps([backend.endpoint, body], sort_keys=True)
    file = folder / hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
    with _key_of(file) as (key, age_s):
        submission = Submission()
        if age_s is not None:
            now_s = backend.retry.clock()
            submission.add_unconfirmed(started_s=now_s - age_s, now_s=now_s - age_s)
        plan = _plan_of(body, key)
        creation = Creation(plan, backend, submission, policy or SubmissionPolicy(), progress=False)
        job_id = creation.run()
    if backend.created.job_id == job_id:
        return backend.created
    print_error(f"a create without a response has created job {job_id}; no second one is created")
    return JobReference(job_id=job_id)


def _plan_of(body: Mapping[str, Any], key: str) -> Plan:
    """Returns the plan of a body that is complete but for the key."""
    job = received(NewJob, body)
    keyed = {**body, **NewJob(envs={**job.envs, SUBMISSION: key}).to_wire()}
    request = TrainingJobRequest(
        training_job_name=job.display_name or "", workspace_id=job.workspace_id, compute_resource=ComputeResource()
    )
    return Plan(request.with_label(SUBMISSION_LABEL, key), api="dlc", render=lambda _: keyed)


@contextmanager
def _key_of(file: Path) -> Iterator[tuple[str, float | None]]:
    """Yields the key of a submission, and how old its create without a response is; None for a new key.

    The file has the key as long as it is unknown whether the job exists: also after a crash or an interrupt.
    """
    key = uuid4().hex
    with ExitStack() as stack:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_alone = stack.enter_context(locked(file, waits=False))
            earlier_key = file.read_text(encoding="utf-8").strip()
            age_s = max(0.0, time.time() - file.stat().st_mtime)
        except OSError:  # without a folder for it, only this process searches
            is_alone = False
        if not is_alone:  # or the same line runs at the same time: these are two jobs
            yield key, None
            return
        is_repeated = bool(earlier_key) and age_s < _RELEVANT_S
        if not is_repeated:
            file.write_text(key, encoding="utf-8")
        try:
            yield (earlier_key, age_s) if is_repeated else (key, None)
        except PaiError as error:
            if not error.maybe_arrived:
                _clear(file)
            raise
        _clear(file)


def _clear(file: Path) -> None:
    with suppress(OSError):
        file.write_text("", encoding="utf-8")
        file.unlink()  # not on Windows, where the lock has it open
