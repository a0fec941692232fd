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
from pai_sdk.service.http.page_requests import PAGE_SESSION
from pai_sdk.service.identity.principal import Principal, Right
from pai_sdk.service.wire_errors import WireError

__all__ = ["AccessChecked", "is_open_to_pages", "is_reading", "needed_right"]

_ADMIN = ("/api/v1/users", "/api/v1/audit")
_READING_POSTS = (
    "/api/v1/compare",
    "/api/v1/hparams/diff",
    "/api/v1/trainingjobs/changes",
    "/api/v1/pagelinks",
    "/api/v1/runs/{run_id:path}/downloads",
)
_JOB_NAMES = ("job_id", "run_id")

# The changes that a signed-in browser can make. A sign-in lasts a week, so it opens nothing that lasts longer: no
# users, keys, members, tokens or sign-in links, and no schedules, which create jobs for as long as they exist.
_CHANGES_OF_PAGES = frozenset(
    {
        ("POST", "/api/v1/trainingjobs"),
        ("PUT", "/api/v1/trainingjobs/{job_id}/stop"),
        ("DELETE", "/api/v1/trainingjobs/{job_id}"),
        ("POST", "/api/v1/runs/{run_id}/rerun"),
        ("POST", "/api/v1/runs/{run_id}/stop"),
        ("DELETE", "/api/v1/runs/{run_id}"),
    }
)
_CLOSED_TO_PAGES = frozenset({"/api/v1/pagelinks", "/api/v1/tokens"})


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


def is_open_to_pages(method: str, path: str) -> bool:
    """Returns whether a signed-in browser can make a request; an unknown change is closed.

    Args:
        method: of HTTP.
        path: of its route, with the names of parameters in it.

    Example:
        >>> is_open_to_pages("GET", "/api/v1/runs"), is_open_to_pages("POST", "/api/v1/users/{name}/keys")
        (True, False)
    """
    if path.startswith(_ADMIN) or path in _CLOSED_TO_PAGES:
        return False
    return is_reading(method, path) or (method, path) in _CHANGES_OF_PAGES


async def _checked(request: Request, context: ContextOf, principal: PrincipalOf) -> None:
    """Refuse a request that its user may not make.

    Raises:
        WireError: 403 for a lack of rights, or from a page where it is closed to pages; 404 for a job of someone
            else, as if there were none.
    """
    path = request.scope["route"].path
    if getattr(request.state, PAGE_SESSION, False) and not is_open_to_pages(request.method, path):
        message = "A signed-in browser cannot do this; it needs a request that is signed with an access key."
        raise WireError(403, "NotForPages", message)
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
