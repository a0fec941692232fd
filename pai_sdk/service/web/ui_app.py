"""The application of `pai-sdk ui`: the routes of runs behind the guard, and one plain page that uses them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp

from pai_sdk.service.budgets import COMPARE, BudgetedRoute, Shares, WorkOf, within
from pai_sdk.service.http.fault_handlers import add_refusals, refusal
from pai_sdk.service.rate import RateLimit
from pai_sdk.service.runs.compare_routes import check_comparison
from pai_sdk.service.runs.kept_manager import loaded
from pai_sdk.service.runs.run_answers import LIVE, tagged
from pai_sdk.service.runs.run_routers import ROUTERS
from pai_sdk.service.runs.run_routes import asked, names_of
from pai_sdk.service.runs.run_source import RunsOf, RunSource
from pai_sdk.service.web.browser_guard import BrowserGuard, cookie_name
from pai_sdk.service.web.browser_keys import BrowserKeys
from pai_sdk.service.wire_errors import Fault

__all__ = ["LOGIN_PATH", "PAGE_PATH", "create_ui"]

PAGE_PATH = "/ui/"
LOGIN_PATH = "/ui/session"

_FILES = {
    PAGE_PATH: ("index.html", "text/html; charset=utf-8"),
    "/ui/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/ui/page.css": ("page.css", "text/css; charset=utf-8"),
}
_REQUESTS_PER_S = 1000.0
_MOST_CURVES = 200
_PLOT_BUCKETS = 300


@dataclass(frozen=True)
class _UiContext:
    """What the routes read from."""

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
        # Starlette raises the error once more after this answer is sent; the guard writes it to the log.
        return refusal(request, Fault(500, "InternalError", "The server met a fault; its log has the details."))

    return BrowserGuard(
        app,
        keys,
        port=port,
        names=names,
        open_paths=[*_FILES, "/", "/ui"],
        login_path=LOGIN_PATH,
        rate=RateLimit(_REQUESTS_PER_S),
    )


@_router.get("/ui")
@_router.get("/")
def to_page() -> Response:
    """To the page."""
    return RedirectResponse(PAGE_PATH, status_code=302)


@_router.post(LOGIN_PATH)
def log_in(request: Request, body: LoginRequest) -> Response:
    """Exchange the code of the link for a cookie, and the page's key. The code is valid once, for a minute."""
    context: _UiContext = request.app.state.context
    found = context.keys.exchange(body.code)
    if found is None:
        raise Fault(403, "CodeNotValid", "The link was used or has expired; `pai-sdk ui` prints a new one.")
    cookie, key = found
    answer = JSONResponse({"key": key}, headers={"Cache-Control": "no-store"})
    answer.set_cookie(cookie_name(context.port), cookie, path="/", httponly=True, samesite="strict")
    return answer


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
