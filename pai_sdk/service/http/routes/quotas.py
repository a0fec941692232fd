"""Quotas of users: get and set by administrators, and each user's own to read."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from pai_sdk.service.budgets import BudgetedRoute
from pai_sdk.service.http.context import ContextOf, PrincipalOf, ServiceContext
from pai_sdk.service.http.routes.json_responses import success
from pai_sdk.service.identity.quotas import Quota, quota_of
from pai_sdk.service.jobs.queueing.quota_checks import use_of
from pai_sdk.service.jobs.reading import read_body, read_model

__all__ = ["router"]

router = APIRouter(prefix="/api/v1", route_class=BudgetedRoute)

_MOST = (1 << 31) - 1
_Count = Annotated[int | None, Field(ge=0, le=_MOST)]


class _Limits(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cpus: Annotated[float | None, Field(ge=0, le=_MOST, allow_inf_nan=False)] = Field(default=None, alias="CPUs")
    gpus: _Count = Field(default=None, alias="GPUs")
    running: _Count = Field(default=None, alias="RunningJobs")
    queued: _Count = Field(default=None, alias="QueuedJobs")


@router.get("/quota")
def get_own_quota(request: Request, context: ContextOf, principal: PrincipalOf) -> Response:
    """GetOwnQuota: the quota of the user whose key signs, and how much of it is used."""
    return success(request, _shown(context, principal.user))


@router.get("/users/{name}/quota")
def get_quota(request: Request, context: ContextOf, name: str) -> Response:
    """GetUserQuota: likewise, of any user."""
    context.users.get(name)
    return success(request, _shown(context, name))


@router.put("/users/{name}/quota")
async def set_quota(request: Request, context: ContextOf, name: str) -> Response:
    """SetUserQuota: replaces all limits; one that is missing or null is none. Jobs that have begun go on."""
    wanted = read_model(_Limits, read_body(await request.body()))
    quota = Quota(wanted.cpus, wanted.gpus, wanted.running, wanted.queued)
    await run_in_threadpool(context.quotas.set, name, quota)
    context.runner.wake()
    return success(request, await run_in_threadpool(_shown, context, name))


def _shown(context: ServiceContext, user: str) -> dict[str, Any]:
    with context.jobs.database.read() as session:
        quota, use = quota_of(session, user), use_of(session, user)
    return {
        "Quota": _named(quota.cpus, quota.gpus, quota.running, quota.queued),
        "Used": _named(use.cpus, use.gpus, use.running, use.queued),
    }


def _named(
    cpus: float | None, gpus: int | None, running: int | None, queued: int | None
) -> dict[str, float | int | None]:
    return {"CPUs": cpus, "GPUs": gpus, "RunningJobs": running, "QueuedJobs": queued}
