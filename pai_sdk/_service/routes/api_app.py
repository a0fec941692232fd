"""The service as one ASGI application: the API below `/api/`, the object store everywhere else."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias

from fastapi import FastAPI, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pai_sdk._host.agent.tunnel.dialing_out import NODE_PATH
from pai_sdk._service.http.access import AccessChecked
from pai_sdk._service.http.content_headers import CONTENT_HEADERS, send_with
from pai_sdk._service.http.description import PATH as DESCRIPTION_PATH
from pai_sdk._service.http.health import is_health_check
from pai_sdk._service.http.metrics_endpoint import is_for_metrics
from pai_sdk._service.http.page_requests import is_for_page
from pai_sdk._service.http.tokens import TokenChecked
from pai_sdk._service.oss.oss_request import bucket_in_host, host_of
from pai_sdk._service.routes import (
    algorithms,
    experiments,
    images,
    job_changes,
    job_instances,
    job_logs,
    job_metrics,
    members,
    models,
    page_links,
    quotas,
    run_jobs,
    schedules,
    training_jobs,
    users,
    workspaces,
)
from pai_sdk._service.routes.dlc import routers as dlc_routers
from pai_sdk._service.routes.json_responses import add_refusals, refusal
from pai_sdk._service.routes.runs import saved_views
from pai_sdk._service.routes.runs.routers import ROUTERS
from pai_sdk._service.routes.tunnel import routers as tunnel_routers
from pai_sdk._service.routes.workspace import capacity, code_sources, datasets
from pai_sdk._service.services.budgets import Shares
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.tickets import Tickets
from pai_sdk._service.state.disk import Reserve, is_disk_full, is_read_only
from pai_sdk._service.state.sql_engine import is_database_away
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.signature import ACS3

logger = logging.getLogger(__name__)

_API_SCHEMES = (ACS3.encode() + b" ", b"acs ")

Part: TypeAlias = Literal[
    "api", "page", "objects", "tables", "description", "health", "metrics", "websockets", "nodes"
]
"""A part of the service, which handles requests of its own."""

_FULL = "The disk of the service is full; nothing was changed. Delete jobs or outputs that are not needed."
_AWAY = "The service's database does not respond. Try again later; a change may have been made all the same."
_AWAY_RETRY_AFTER_S = 5
_READ_ONLY = "The data folder of the service cannot be written any more; make it writable. Nothing was changed."


def create_api(context: ServiceContext) -> FastAPI:
    """Creates the PAI API. It checks no signatures: put a `Gate` before it."""
    app = FastAPI(title="pai-sdk service", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.context, app.state.shares, app.state.downloads = context, Shares(), Tickets()
    resources = (
        training_jobs,
        job_changes,
        job_logs,
        job_metrics,
        job_instances,
        schedules,
        algorithms,
        experiments,
        images,
        models,
        workspaces,
        members,
        users,
        quotas,
        capacity,
        page_links,
        run_jobs,
        saved_views,
        datasets,
        code_sources,
    )
    further = users.audit_router, quotas.queue_router, users.administration_router, tunnel_routers.router
    routers = [*dlc_routers.ROUTERS, *(module.router for module in resources), *further, *ROUTERS]
    for router in routers:
        app.include_router(router, dependencies=[AccessChecked, TokenChecked])
    app.state.routes = [route for router in routers for route in router.routes]
    add_refusals(app)

    @app.exception_handler(SQLAlchemyError)
    async def away(request: Request, error: SQLAlchemyError) -> JSONResponse:
        if not is_database_away(error):
            raise error
        logger.warning(
            "%s %s was refused: the database does not respond: %s",
            request.method,
            request.url.path,
            str(error.__cause__ or error).splitlines()[0],
        )
        return refusal(request, WireError(503, "ServiceUnavailable", _AWAY, retry_after_s=_AWAY_RETRY_AFTER_S))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        # Starlette raises the error once more after this response is sent; the gate writes it to the log.
        if is_disk_full(error):
            if request.method == "DELETE" or request.url.path.endswith("/stop"):
                # A request that frees space may use the reserve: the client's next attempt succeeds.
                Reserve.of(context.info.data_dir).release()
            return refusal(request, WireError(507, "InsufficientStorage", _FULL))
        if is_read_only(error):
            return refusal(request, WireError(500, "InternalError", _READ_ONLY))
        message = "The service failed unexpectedly; its log has the details."
        return refusal(request, WireError(500, "InternalError", message))

    return app


class Dispatcher:
    """Sends each request to the API, the page, the object store or the tables, and counts the requests."""

    def __init__(
        self,
        api: ASGIApp,
        objects: ASGIApp,
        tables: ASGIApp,
        description: ASGIApp,
        health: ASGIApp,
        *,
        page: ASGIApp | None = None,
        metrics: ASGIApp | None = None,
        websockets: ASGIApp | None = None,
        nodes: ASGIApp | None = None,
    ) -> None:
        self._apps: dict[Part, ASGIApp] = {
            "api": api,
            "objects": objects,
            "tables": tables,
            "description": description,  # needs no key
            "health": health,  # needs no key
        }
        if page is not None:
            self._apps["page"] = page  # behind the guard for browsers, with the API as its scripts use it
        if metrics is not None:
            self._apps["metrics"] = metrics
        if websockets is not None:
            self._apps["websockets"] = websockets
        if nodes is not None:
            self._apps["nodes"] = nodes  # needs no key, but a token
        self.requests_under_way = 0
        self.requests_answered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request, or a WebSocket from its request to its end."""
        part = self._part_for(scope)
        scope.setdefault("state", {})["part"] = part
        app = self._apps[part]
        if part != "page":  # whose guard has stricter headers
            send = send_with(send, CONTENT_HEADERS)
        # Not counted as use: a probe must not keep an idle service running.
        if part in ("health", "metrics"):
            await app(scope, receive, send)
            return
        self.requests_under_way += 1
        try:
            await app(scope, receive, send)
        finally:
            self.requests_under_way -= 1
            self.requests_answered += 1

    def _part_for(self, scope: Scope) -> Part:
        path: str = scope["path"]
        if scope["type"] == "websocket":
            return "nodes" if path == NODE_PATH and "nodes" in self._apps else "websockets"
        if is_health_check(scope):
            return "health"
        if dict(scope["headers"]).get(b"authorization", b"").startswith(b"ODPS "):
            return "tables"
        if bucket_in_host(host_of(scope)) is not None:
            return "objects"  # the path is all key, whatever it begins with
        if "metrics" in self._apps and is_for_metrics(scope):
            return "metrics"
        if "page" in self._apps and is_for_page(scope):
            return "page"
        if path == DESCRIPTION_PATH and scope["method"] in ("GET", "HEAD"):
            return "description"
        is_for_api = path == "/api" or path.startswith("/api/") or _is_signed_for_api(scope)
        return "api" if is_for_api else "objects"


def part_of(scope: Scope) -> Part | None:
    """Returns the part of the service that handles a request; None before the `Dispatcher` has selected it."""
    part: Part | None = scope.get("state", {}).get("part")
    return part


def _is_signed_for_api(scope: Scope) -> bool:
    """Returns whether a client of the API sent the request. It cannot read XML, even for an unknown path."""
    headers = dict(scope["headers"])
    return headers.get(b"authorization", b"").startswith(_API_SCHEMES) or b"x-acs-version" in headers
