"""Quotas of users: get and set by administrators, and each user's own to read."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, field_validator
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.http.bodies import accepts, read_json
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.services import quotas
from pai_sdk._service.services.budgets import BudgetedRoute
from pai_sdk._service.services.context import ContextOf, PrincipalOf
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
    return success(request, quotas.read_quota(context, principal.user))


@router.get("/users/{name}/quota", response_model=QuotaState)
def get_quota(request: Request, context: ContextOf, name: str) -> Response:
    """GetUserQuota: the quota of any user, and how much of it is used."""
    context.users.get(name)
    return success(request, quotas.read_quota(context, name))


@router.put("/users/{name}/quota", response_model=QuotaState)
@accepts(_Limits)
async def set_quota(request: Request, context: ContextOf, name: str) -> Response:
    """SetUserQuota: replaces all limits; one that is missing or null is none. Running jobs continue."""
    limits = await read_json(_Limits, request)
    return success(request, await run_in_threadpool(quotas.set_quota, context, name, limits))
