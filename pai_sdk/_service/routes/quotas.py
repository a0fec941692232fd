"""Quotas of users: get and set by administrators, and each user's own to read."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, field_validator
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.bodies import accepts, read_json
from pai_sdk._service.identity.quotas import Quota, quota_of
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.services.budgets import BudgetedRoute
from pai_sdk._service.services.context import ContextOf, PrincipalOf, ServiceContext
from pai_sdk._service.services.jobs.queueing.quota_checks import use_of
from pai_sdk._wire.users import QuotaAmounts, QuotaState

__all__ = ["router"]

router = APIRouter(prefix="/api/v1", route_class=BudgetedRoute)

_MAX_LIMIT = (1 << 31) - 1


class _Limits(QuotaAmounts):
    model_config = ConfigDict(extra="forbid")

    @field_validator("*")
    @classmethod
    def _in_range(cls, value: float | None) -> float | None:
        if value is not None and not 0 <= value <= _MAX_LIMIT:  # nor NaN
            raise ValueError(f"is not a number from 0 to {_MAX_LIMIT}")
        return value


@router.get("/quota", response_model=QuotaState)
def get_own_quota(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """GetOwnQuota: the quota of the user whose key signs, and how much of it is used."""
    return success(request, _state(context, principal.user))


@router.get("/users/{name}/quota", response_model=QuotaState)
def get_quota(request: Request, context: ContextOf, name: str) -> Response:
    """GetUserQuota: the quota of any user, and how much of it is used."""
    context.users.get(name)
    return success(request, _state(context, name))


@router.put("/users/{name}/quota", response_model=QuotaState)
@accepts(_Limits)
async def set_quota(request: Request, context: ContextOf, name: str) -> Response:
    """SetUserQuota: replaces all limits; one that is missing or null is none. Running jobs continue."""
    limits = await read_json(_Limits, request)
    quota = Quota(limits.cpus, limits.gpus, limits.running, limits.queued)
    await run_in_threadpool(context.quotas.set, name, quota)
    context.runner.wake()
    return success(request, await run_in_threadpool(_state, context, name))


def _state(context: ServiceContext, user: str) -> QuotaState:
    with context.jobs.database.read() as session:
        quota, use = quota_of(session, user), use_of(session, user)
    return QuotaState(
        quota=_amounts(quota.cpus, quota.gpus, quota.running, quota.queued),
        used=_amounts(use.cpus, use.gpus, use.running, use.queued),
    )


def _amounts(cpus: float | None, gpus: int | None, running: int | None, queued: int | None) -> QuotaAmounts:
    # Without a validation, which would write the whole number of CPUs 0 as 0.0.
    return QuotaAmounts.model_construct(cpus=cpus, gpus=gpus, running=running, queued=queued)
