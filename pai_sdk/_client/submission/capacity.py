"""Fallbacks: the next resources of a plan, where a service has no capacity for the first ones."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace

from pai_sdk._client.backend.base import Plan, SubmissionId
from pai_sdk._client.job.notifications import notify_all
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submission.ledger import has_key, untried_fallbacks
from pai_sdk._wire.pai.compute import ComputeResource
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk.errors import JobFailed, JobStopped

logger = logging.getLogger(__name__)

# `OperationDenied.NoStock`, `Zone.NotOnSale`, `InsufficientResource`, `ResourceNotEnough`, `CapacityUnavailable`
_CAPACITY = re.compile(
    r"no_?stock|out_?of_?stock|not_?on_?sale"
    r"|(?:insufficient|not_?enough|lack_?of)_?(?:\w*_)?(?:instance|capacity|resource|inventory|stock|gpu)"
    r"|(?:capacity|resource|inventory|stock)s?_?(?:is_)?(?:insufficient|not_?enough|shortage|exhausted|unavailable)",
    re.IGNORECASE,
)


def is_capacity_code(code: str | None) -> bool:
    """Returns True if the code of an error, or of a failed job, means that there are no such instances now."""
    return bool(code and _CAPACITY.search(code))


def with_resources(plan: Plan, resources: ComputeResource, code: str | None) -> Plan:
    """Returns the plan for other resources, in the same submission; logs a warning with the reason."""
    kind = f"{resources.ecs_spec}{' spot' if resources.spot_spec else ''}"
    logger.warning("%s: no capacity (%s); trying %s", plan.request.training_job_name, code or "", kind)
    return replace(plan, request=plan.request.model_copy(update={"compute_resource": resources}))


def wait_with_fallback(
    job: TrainingJob,
    wait_for: Callable[[TrainingJob], object],
    plan_of: Callable[[TrainingJob], Plan | None],
    submit: Callable[[Plan], TrainingJob],
) -> TrainingJob:
    """Waits for a job; without capacity, submits its next resources. Returns the job that has succeeded."""
    while True:
        # Removed while it waits: a failure that another submission follows causes no notification.
        notifications, job.notifications = job.notifications, ()
        try:
            wait_for(job)
        except JobFailed as failure:
            # None if another process has submitted the job.
            plan = plan_of(job)
            following = _following(failure, job, plan) if plan is not None else None
            if following is None:
                notify_all(notifications, job.record, failure)
                raise
        except JobStopped as stop:
            notify_all(notifications, job.record, stop)
            raise
        except BaseException:
            job.notifications = notifications  # the job continues; a later wait reports its outcome
            raise
        else:
            notify_all(notifications, job.record, None)
            return job
        job = submit(following)


def _following(failure: JobFailed, job: TrainingJob, plan: Plan) -> Plan | None:
    """Returns the plan to submit after a job without capacity, as a new submission; None if there is none."""
    # Only a job that has failed and never ran is submitted again, so that two jobs never run at once.
    has_run = any(passed.status == "Running" for passed in job.record.status_transitions)
    untried = untried_fallbacks(plan)
    if has_run or has_key(plan.request) or not untried or not is_capacity_code(failure.reason_code):
        return None
    submission = SubmissionId()
    request = plan.request.with_label(SUBMISSION_LABEL, str(submission))
    fresh = replace(plan, request=request, submission=submission, fallbacks=untried[1:])
    return with_resources(fresh, untried[0], failure.reason_code)
