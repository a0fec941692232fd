"""The application of `pai-sdk ui`, and its server: the routes of runs behind the guard, and one plain page."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp

from pai_sdk.service.budgets import COMPARE, BudgetedRoute, Shares, WorkOf, within
from pai_sdk.service.http.gate import Gate
from pai_sdk.service.http.http_server import HttpServer
from pai_sdk.service.http.listening import listen_on, url_of
from pai_sdk.service.http.routes.json_responses import add_refusals, refusal
from pai_sdk.service.rate import RateLimit
from pai_sdk.service.runs.compare_routes import check_comparison
from pai_sdk.service.runs.folder_runs import FolderRuns
from pai_sdk.service.runs.kept_manager import loaded
from pai_sdk.service.runs.responses import LIVE, tagged
from pai_sdk.service.runs.run_routers import ROUTERS
from pai_sdk.service.runs.run_routes import asked, names_of
from pai_sdk.service.runs.source import RunsOf, RunSource
from pai_sdk.service.settings import ConnectionLimits
from pai_sdk.service.web.browser_guard import SAFETY_HEADERS, BrowserGuard, cookie_name
from pai_sdk.service.web.browser_keys import BrowserKeys
from pai_sdk.service.wire_errors import WireError

__all__ = ["LOGIN_PATH", "PAGE_PATH", "UiServer", "UiSettings", "create_ui"]

PAGE_PATH = "/ui/"
LOGIN_PATH = "/ui/session"

_FILES = {
    PAGE_PATH: ("index.html", "text/html; charset=utf-8"),
    "/ui/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/ui/page.css": ("page.css", "text/css; charset=utf-8"),
}
_REQUESTS_PER_S = 1000.0
_LONGEST_BODY_BYTES = 1 << 20
_MOST_CURVES = 200
_PLOT_BUCKETS = 300


@dataclass(frozen=True)
class _UiContext:
    """The objects that the routes read from."""

    runs: RunSource
    keys: BrowserKeys
    port: int


class LoginRequest(BaseModel):
    """The code of the link."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(max_length=200)


_router = APIRouter(route_class=BudgetedRoute)


def create_ui(runs: RunSource, keys: BrowserKeys, *, port: int, names: list[str]) -> ASGIApp:
    """The application.

    Args:
        runs: which runs it shows.
        keys: what lets browsers and programs in.
        port: of the server.
        names: names in `Host` besides those of loopback.
    """
    app = FastAPI(title="pai-sdk ui", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.context, app.state.shares = _UiContext(runs, keys, port), Shares()
    for router in (_router, *ROUTERS):
        app.include_router(router)
    for path in _FILES:
        app.add_api_route(path, _file, methods=["GET", "HEAD"], include_in_schema=False)
    add_refusals(app)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        # Starlette raises the error once more after this response is sent; the gate writes it to the log.
        return refusal(request, WireError(500, "InternalError", "The server failed; its log has the details."))

    guard = BrowserGuard(
        keys,
        port=port,
        names=names,
        open_paths=[*_FILES, "/", "/ui"],
        login_path=LOGIN_PATH,
        rate=RateLimit(_REQUESTS_PER_S),
    )
    return Gate(app, guard.admit, longest_body_bytes=_LONGEST_BODY_BYTES, headers=SAFETY_HEADERS)


@_router.get("/ui")
@_router.get("/")
def to_page() -> Response:
    """To the page."""
    return RedirectResponse(PAGE_PATH, status_code=302)


@_router.post(LOGIN_PATH)
def log_in(request: Request, body: LoginRequest) -> Response:
    """Exchange the link's code for a cookie and the page's key. It is valid for one use, within a minute."""
    context: _UiContext = request.app.state.context
    found = context.keys.exchange(body.code)
    if found is None:
        raise WireError(403, "CodeNotValid", "The link was used or has expired; `pai-sdk ui` prints a new one.")
    cookie, key = found
    response = JSONResponse({"key": key}, headers={"Cache-Control": "no-store"})
    response.set_cookie(cookie_name(context.port), cookie, path="/", httponly=True, samesite="strict")
    return response


@_router.get("/ui/plot.svg")
@within(COMPARE)
def plot(
    request: Request,
    runs: RunsOf,
    work: WorkOf,
    tag: Annotated[str, Query(max_length=4096)],
    ids: Annotated[str, Query(max_length=32_768, alias="runs")] = "",
    smooth: Annotated[float, Query(ge=0, lt=1)] = 0.0,
    log_y: bool = False,
) -> Response:
    """One metric of runs as a picture: of those that are named, or of the newest ones that have it."""
    manager = loaded(runs.manager)
    wanted = names_of(ids, "runs")
    if not wanted:
        page = asked(manager.runs, "", "-updated", 10_000, None, [tag])
        wanted = [brief.id for brief in page.runs if tag in brief.tags][:_MOST_CURVES]
    check_comparison(work, [asked(manager.run, run_id).brief for run_id in wanted], tag, is_smoothed=smooth > 0)
    options: dict[str, Any] = {"buckets": _PLOT_BUCKETS, "smooth": smooth}
    picture: str = asked(manager.compare, wanted, tag, **options).plot(tag, log_y=log_y).svg
    return tagged(request, picture.encode(errors="replace"), "image/svg+xml", LIVE)


def _file(request: Request) -> Response:
    """A file of the page."""
    name, media_type = _FILES[request.url.path]
    content = files("pai_sdk.service.web").joinpath("static").joinpath(name).read_bytes()
    return tagged(request, content, media_type, {"Cache-Control": "no-cache"})


_CONNECTIONS = 200


@dataclass(frozen=True)
class UiSettings:
    """The settings of the server.

    Attributes:
        logdir: the folder of runs, or its URI.
        host: the address to listen on.
        port: the port; 0 takes a free one.
        names: names of this machine, besides those of loopback, by which browsers may ask for the page.
        token: for programs, as `Authorization: Bearer`; empty for none.
    """

    logdir: str | Path
    host: str = "127.0.0.1"
    port: int = 0
    names: Sequence[str] = ()
    token: str = ""

    def __repr__(self) -> str:
        return f"UiSettings(logdir={str(self.logdir)!r}, host={self.host!r}, port={self.port})"


class UiServer:
    """Serves the runs of one folder; `run` serves, `stop` ends that from any thread.

    Args:
        settings: what with.

    Attributes:
        port: the port that it listens on.

    Raises:
        ServiceStartError: the port is taken, or the address is not one of this machine.
    """

    def __init__(self, settings: UiSettings) -> None:
        self._settings = settings
        self._listener: socket.socket = listen_on(settings.host, settings.port)
        self.port: int = self._listener.getsockname()[1]
        self._keys = BrowserKeys(settings.token)
        self._runs = FolderRuns(settings.logdir)
        app = create_ui(self._runs, self._keys, port=self.port, names=[*settings.names])
        self._server = HttpServer(
            app,
            ConnectionLimits(most=_CONNECTIONS),
            on_end=lambda: setattr(self._runs, "is_closing", True),
        )

    @property
    def url(self) -> str:
        """Its address, without a code."""
        return url_of(self._settings.names[0] if self._settings.names else self._settings.host, self.port)

    def new_link(self) -> str:
        """A link for a browser, valid for one use within a minute. The code is in its fragment, so in no log."""
        return f"{self.url}{PAGE_PATH}#{self._keys.new_code()}"

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`."""
        self._server.on_ready = on_ready
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._runs.close()
            self._listener.close()

    def stop(self) -> None:
        """End; returns at once."""
        self._server.should_exit = True
