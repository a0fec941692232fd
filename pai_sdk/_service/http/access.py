"""Authorizes each request of the API, by the right of its user and by the owner of the job.

The check covers every route. A route that changes something needs the right `submit`, unless what it changes is of
the user alone; one for users needs `admin`.
Jobs, schedules and private records of other users do not exist for a user, nor do models, experiments and
algorithms of workspaces that they are no member of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from pai_sdk._service.identity.principal import Principal, Right
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.services.context import ContextOf, ServiceContext
from pai_sdk._service.wire_errors import WireError

_ADMIN = ("/api/v1/users", "/api/v1/audit", "/api/v1/administration")
_READ_ONLY_POSTS = (
    "/api/v1/compare",
    "/api/v1/hparams/diff",
    "/api/v1/trainingjobs/changes",
    "/api/v1/pagelinks",
    "/api/v1/runs/{run_id:path}/downloads",
)
TUNNEL_PATH = "/api/v1/trainingjobs/{job_id}/instances/{instance}/tunnel"
"""The path of the WebSocket into an instance."""

TUNNEL_SESSION_PATH = TUNNEL_PATH + "/sessions/{session_id}"
"""The path of the same by ordinary requests, for clients behind a proxy that refuses WebSockets."""

# What users with the right `read` change is their own. A star is; the route itself checks the other annotations of
# a job, and that a view may be shared.
_CHANGES_OF_READERS = frozenset(
    {
        ("PATCH", "/api/v1/runs/{run_id}/annotations"),
        ("PUT", "/api/v1/views/{name}"),
        ("DELETE", "/api/v1/views/{name}"),
    }
)
_CHANGING_GETS = (TUNNEL_PATH, TUNNEL_SESSION_PATH)  # a tunnel runs programs in the job
_JOB_NAMES = ("job_id", "run_id")

# The changes that a signed-in browser can make. A sign-in lasts a week, so it opens nothing that lasts longer: no
# users, keys, members, tokens or sign-in links, and no new or changed schedules, which create jobs for as long as
# they exist. Pause and resume are open: both leave a schedule as its owner has defined it.
_CHANGES_OF_PAGES = frozenset(
    {
        ("POST", "/api/v1/trainingjobs"),
        ("PUT", "/api/v1/trainingjobs/{job_id}/stop"),
        ("DELETE", "/api/v1/trainingjobs/{job_id}"),
        ("POST", "/api/v1/runs/{run_id}/rerun"),
        ("POST", "/api/v1/runs/{run_id}/stop"),
        ("DELETE", "/api/v1/runs/{run_id}"),
        ("POST", "/api/v1/schedules/{schedule_id}/pause"),
        ("POST", "/api/v1/schedules/{schedule_id}/resume"),
        *_CHANGES_OF_READERS,
    }
)
_CLOSED_TO_PAGES = frozenset({"/api/v1/pagelinks", "/api/v1/tokens"})
# What the page of an administrator shows; nothing of it is secret, and nothing changes.
_ADMIN_READS_OF_PAGES = frozenset({"/api/v1/administration", "/api/v1/administration/disk", "/api/v1/audit"})


class _Registry(Protocol):
    def require_visible(self, resource_id: str, principal: Principal, right: Right, /) -> None: ...


def required_right(method: str, path: str) -> Right:
    """Returns the right that a request needs, whatever job or model it names."""
    if path.startswith(_ADMIN):
        return "admin"
    is_allowed = is_read_only_request(method, path) or (method, path) in _CHANGES_OF_READERS
    return "read" if is_allowed else "submit"


def is_read_only_request(method: str, path: str) -> bool:
    """Returns whether a request changes nothing; `path` is that of the route, with names of parameters."""
    # Not the path of the request: the name of a user can be that of an action.
    if method in ("GET", "HEAD", "OPTIONS"):
        return path not in _CHANGING_GETS
    return method == "POST" and path in _READ_ONLY_POSTS


def is_open_to_pages(method: str, path: str) -> bool:
    """Returns whether a signed-in browser can make a request; an unknown change is closed."""
    if path in _ADMIN_READS_OF_PAGES:
        return method == "GET"
    if path.startswith(_ADMIN) or path in _CLOSED_TO_PAGES:
        return False
    return is_read_only_request(method, path) or (method, path) in _CHANGES_OF_PAGES


async def _check_access(request: Request, context: ContextOf, principal: PrincipalOf) -> None:
    """Refuses a request that its user is not allowed to make; 404 for a job of another user."""
    path = request.scope["route"].path
    if principal.page_session and not is_open_to_pages(request.method, path):
        message = "A signed-in browser cannot do this; it needs a request that is signed with an access key."
        raise WireError(403, "NotForPages", message)
    await require_access(context, principal, request.method, path, request.path_params)


async def require_access(
    context: ServiceContext, principal: Principal, method: str, path: str, parameters: Mapping[str, str]
) -> None:
    """Refuses a request that its user is not allowed to make; `path` is that of the route."""
    right = required_right(method, path)
    principal.require(right)
    needs_owner = right != "read" and not path.endswith("/rerun")  # that creates another job
    for name in _JOB_NAMES:
        if (job_id := parameters.get(name)) is not None:
            await run_in_threadpool(context.jobs.require_visible, job_id, principal, changes=needs_owner)
    for name, registry in _registries(context).items():
        if (resource_id := parameters.get(name)) is not None:
            await run_in_threadpool(registry.require_visible, resource_id, principal, right)


def _registries(context: ServiceContext) -> dict[str, _Registry]:
    """Returns the registries of resources that belong to workspaces or users, by the parameter with the id."""
    return {
        "model_id": context.models,
        "algorithm_id": context.algorithms,
        "experiment_id": context.experiments,
        "schedule_id": context.schedules,
        "dataset_id": context.records,
        "code_source_id": context.records,
        "template_id": context.records,
        "tensorboard_id": context.records,
    }


AccessChecked = Depends(_check_access)
"""A dependency of routes: checks that the user is allowed to make the request."""
