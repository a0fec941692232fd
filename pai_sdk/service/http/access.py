"""Decides for each request of the API whether its user may do that: by right, and by whose the job is.

This is asked for every route, and refuses what it does not know: a route that changes something needs the right
`submit`, one for users needs `admin`. A job or schedule that is not the user's is not there for them, and neither
are the models, experiments and algorithms of workspaces that they are no member of.
"""

from __future__ import annotations

from typing import Protocol

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from pai_sdk.service.http.context import ContextOf, PrincipalOf, ServiceContext
from pai_sdk.service.identity.principal import Principal, Right

__all__ = ["AccessChecked", "is_reading", "needed_right"]

_ADMIN = ("/api/v1/users", "/api/v1/audit")
_READING_POSTS = (
    "/api/v1/compare",
    "/api/v1/hparams/diff",
    "/api/v1/trainingjobs/changes",
    "/api/v1/pagelinks",
    "/api/v1/runs/{run_id:path}/downloads",
)
_JOB_NAMES = ("job_id", "run_id")


class _Registry(Protocol):
    def require_visible(self, found_id: str, principal: Principal, right: Right, /) -> None: ...


def needed_right(method: str, path: str) -> Right:
    """The right that a request needs, whatever it is about.

    Example:
        >>> needed_right("GET", "/api/v1/trainingjobs"), needed_right("DELETE", "/api/v1/trainingjobs/{job_id}")
        ('read', 'submit')
    """
    if path.startswith(_ADMIN):
        return "admin"
    return "read" if is_reading(method, path) else "submit"


def is_reading(method: str, path: str) -> bool:
    """Return whether a request changes nothing.

    Args:
        method: of HTTP.
        path: of its route, with the names of parameters in it: a user may have the name of an action.
    """
    return method in ("GET", "HEAD", "OPTIONS") or (method == "POST" and path in _READING_POSTS)


async def _checked(request: Request, context: ContextOf, principal: PrincipalOf) -> None:
    """Refuse a request that its user may not make.

    Raises:
        WireError: 403 for a lack of rights; 404 for a job of someone else, as if there were none.
    """
    path = request.scope["route"].path
    right = needed_right(request.method, path)
    principal.require(right)
    changes = right != "read" and not path.endswith("/rerun")  # that makes another job
    for name in _JOB_NAMES:
        if (job_id := request.path_params.get(name)) is not None:
            await run_in_threadpool(context.jobs.require_visible, job_id, principal, changes=changes)
    for name, registry in _registries(context).items():
        if (found_id := request.path_params.get(name)) is not None:
            await run_in_threadpool(registry.require_visible, found_id, principal, right)


def _registries(context: ServiceContext) -> dict[str, _Registry]:
    """What belongs to workspaces or users, by the parameter of paths that names it."""
    return {
        "model_id": context.models,
        "algorithm_id": context.algorithms,
        "experiment_id": context.experiments,
        "schedule_id": context.schedules,
    }


AccessChecked = Depends(_checked)
"""A dependency of routes: the user may do this, and may see what the path names."""
