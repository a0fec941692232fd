"""Quotas of users, and the queue that they share: who holds what, who waits and why."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import ConfigDict, field_validator

from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.services import quotas
from pai_sdk._service.services.budgets import RUNS, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.jobs.queueing.queue_state import read_queue
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._wire.base import response_body
from pai_sdk._wire.resources.queue import QueueState
from pai_sdk._wire.users import QuotaAmounts, QuotaState

router = APIRouter(prefix="/api/v1", route_class=ActionRoute)
queue_router = APIRouter(prefix="/api/v1", route_class=BudgetedRoute)

_MAX_LIMIT = (1 << 31) - 1


class _Limits(QuotaAmounts):
    model_config = ConfigDict(extra="forbid")

    @field_validator("*")
    @classmethod
    def _in_range(cls, value: float | None) -> float | None:
        if value is not None and not 0 <= value <= _MAX_LIMIT:  # nor NaN
            raise ValueError(f"is not a number from 0 to {_MAX_LIMIT}")
        return value


@router.get("/quota")
def get_own_quota(context: ContextOf, principal: PrincipalOf) -> QuotaState:
    """GetOwnQuota: the quota of the user whose key signs, and how much of it is used."""
    return quotas.read_quota(context, principal.user)


@router.get("/users/{name}/quota")
def get_quota(context: ContextOf, name: str) -> QuotaState:
    """GetUserQuota: the quota of any user, and how much of it is used."""
    context.users.get(name)
    return quotas.read_quota(context, name)


@router.put("/users/{name}/quota")
def set_quota(context: ContextOf, name: str, limits: _Limits) -> QuotaState:
    """SetUserQuota: replaces all limits; one that is missing or null is none. Running jobs continue."""
    return quotas.set_quota(context, name, limits)


@queue_router.get("/queue", response_model=QueueState)
@within(RUNS)
def get_queue(context: ContextOf, principal: PrincipalOf, work: WorkOf) -> Response:
    """Read the queue: capacity, users with share and quota, and the jobs that run and wait, with the reason.

    Of other users, it has the jobs that the user can see; only administrators get the other users' shares.
    """
    return json_response(response_body(read_queue(context, principal, work)), LIVE, work)
