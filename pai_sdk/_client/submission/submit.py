"""Submits a plan: it becomes at most one job, in any number of sessions, threads and processes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pai_sdk._client.backend.base import Backend, Plan
from pai_sdk._client.submission.capacity import is_capacity_code, with_resources
from pai_sdk._client.submission.creation import Creation, SubmissionPolicy
from pai_sdk._client.submission.ledger import Submission, has_key, submission_of
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk._wire.pai.secret_values import with_secrets
from pai_sdk.errors import ApiError, InvalidInputError, Problem

logger = logging.getLogger(__name__)


def submit(
    plan: Plan,
    backend: Backend,
    *,
    prepare: Callable[[], object] = lambda: None,
    policy: SubmissionPolicy | None = None,
    progress: bool = True,
) -> str:
    """Uploads the files of a plan and creates its job; returns the id of the job.

    After an error, the plan can be submitted again; the job of an unconfirmed create is found then. `prepare` is
    called before the upload, unless the job exists already.
    """
    # Locked to the end: a second thread with this plan waits, and then finds the job of the first one.
    with submission_of(plan) as submission:
        if submission.job_id is not None:
            if not has_key(plan.request):
                # A second job would have the same name, and write into the same folders.
                raise _already_submitted(submission.job_id)
            return submission.job_id
        if earlier := _job_of_another(plan, backend, submission):
            submission.job_id = earlier
            return earlier
        # The label must be in the request before the first create: a search for a lost response needs it.
        plan = plan.labelled()
        with_secrets(plan.request.environments)  # a missing one is reported before anything is uploaded
        prepare()
        backend.upload(plan, progress=progress)
        # An error for lack of capacity means that no job was created, so the next resources cannot cause a second.
        before, untried = submission.unconfirmed, list(plan.fallbacks)
        while True:
            creation = Creation(plan, backend, submission, policy or SubmissionPolicy(), progress=progress)
            try:
                submission.job_id = creation.run()
            except ApiError as error:
                is_unconfirmed = error.maybe_arrived or submission.unconfirmed is not before
                if not untried or is_unconfirmed or not is_capacity_code(error.code):
                    raise
                plan = with_resources(plan, untried.pop(0), error.code)
            else:
                submission.untried_fallbacks = tuple(untried)
                return submission.job_id


def _job_of_another(plan: Plan, backend: Backend, submission: Submission) -> str | None:
    """Returns the existing job of another plan with the same idempotency key."""
    is_keyed = has_key(plan.request)
    is_copy = plan.loaded_from is not None and not submission.unconfirmed
    if not (is_keyed or is_copy) or plan.request.label(SUBMISSION_LABEL) is None:
        return None
    first = next(iter(backend.find(plan.request, of_any_age=True)), None)
    if first is not None and not is_keyed:
        # The plan comes from a file, and was submitted from there before.
        raise _already_submitted(first)
    if first is not None:
        logger.warning("job %s has the same idempotency key; no second one is created", first)
    return first


def _already_submitted(job_id: str) -> InvalidInputError:
    hint = "plan again for another job: it gets a name and output folders of its own"
    return InvalidInputError([Problem("plan", f"was submitted already, as job {job_id}", hint)])
