"""What a service says when it has no capacity, and what to send in place of a plan then."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable

from pai_sdk.backend.base import Plan
from pai_sdk.errors import ApiError, JobFailed
from pai_sdk.schemas.compute import ComputeResource
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.request import IDEMPOTENCY_LABEL

__all__ = ["create_with_fallback", "is_capacity_code", "plan_after"]

logger = logging.getLogger(__name__)

# `OperationDenied.NoStock`, `Zone.NotOnSale`, `InsufficientResource`, `ResourceNotEnough`, `CapacityUnavailable`
_CAPACITY = re.compile(
    r"no_?stock|out_?of_?stock|not_?on_?sale"
    r"|(?:insufficient|not_?enough|lack_?of)_?(?:\w*_)?(?:instance|capacity|resource|inventory|stock|gpu)"
    r"|(?:capacity|resource|inventory|stock)s?_?(?:is_)?(?:insufficient|not_?enough|shortage|exhausted|unavailable)",
    re.IGNORECASE,
)


def is_capacity_code(code: str | None) -> bool:
    """Whether a code of an error or of a failed job says that there are no such instances now.

    Example:
        >>> is_capacity_code("OperationDenied.NoStock"), is_capacity_code("QuotaExceeded"), is_capacity_code(None)
        (True, False, False)
    """
    return bool(code and _CAPACITY.search(code))


def create_with_fallback(plan: Plan, create: Callable[[Plan], str]) -> str:
    """Create the job of a plan; where the service refuses it for want of capacity, with the next resources.

    A refusal means that there is no job, so there are never two. A create without an answer is no refusal.

    Args:
        plan: the plan; its alternatives that were not tried are noted in it.
        create: makes the job; returns its id.

    Raises:
        ApiError: the service refuses it for another reason, or the last alternative.
    """
    left, doubts = [*plan.fallbacks], plan.doubt.creates
    tried = plan
    while True:
        try:
            job_id = create(tried)
        except ApiError as error:
            if not left or not is_capacity_code(error.code) or error.maybe_arrived or plan.doubt.creates > doubts:
                raise
            tried = plan.with_resources(left.pop(0))
            _say(plan, error.code, tried.request.compute_resource)
        else:
            plan.left_over[:] = left
            return job_id


def plan_after(failure: JobFailed, record: JobRecord, plan: Plan) -> Plan | None:
    """What to submit after a job that failed before it began because there was no capacity; None where not.

    Args:
        failure: of the job.
        record: the job, which has ended.
        plan: the job's.
    """
    began = any(passed.status == "Running" for passed in record.status_transitions)
    has_key = any(label.key == IDEMPOTENCY_LABEL for label in plan.request.labels)
    if began or has_key or not plan.left_over or not is_capacity_code(failure.reason_code):
        return None
    following = plan.with_resources(plan.left_over[0], submission=uuid.uuid4().hex)
    _say(plan, failure.reason_code or "", following.request.compute_resource)
    return following


def _say(plan: Plan, code: str, following: ComputeResource) -> None:
    kind = f"{following.ecs_spec}{' spot' if following.spot_spec else ''}"
    logger.warning("%s: no capacity (%s); trying %s", plan.request.training_job_name, code, kind)
