"""The routes of the page: its files, the sign-in, and the description of the server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, RedirectResponse

from pai_sdk._core.version import __version__
from pai_sdk._service.http.page_requests import PAGE_PATH
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.services.budgets import BudgetedRoute
from pai_sdk._service.services.runs.responses import IMMUTABLE, LIVE, tagged
from pai_sdk._service.web.browser_guard import cookie_name, page_policy
from pai_sdk._service.web.browser_keys import SIGNED_IN_S
from pai_sdk._service.web.page import ABOUT_PATH, ASSETS_PATH, LOGIN_PATH, Ability, Page
from pai_sdk._service.wire_errors import WireError

_NO_STORE = {"Cache-Control": "no-store"}
_MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
}
_ENCODINGS = {"br": ".br", "gzip": ".gz"}  # the smaller one first
_CHANGES: frozenset[Ability] = frozenset({"stop", "rerun", "delete", "annotate", "others"})
_ASSET = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_NOT_BUILT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>The page is not built</title>
<h1>The page is not built</h1>
<p>This server runs from a checkout of the source. To build its page, run this there, then reload:
<pre>make page</pre>
</html>
"""


class LoginRequest(BaseModel):
    """The code of the link."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(max_length=200)


_router = APIRouter(route_class=BudgetedRoute)


def add_page(app: FastAPI, page: Page) -> None:
    """Adds the routes of the page to an application; `page.guard()` must stand before it."""
    app.state.page = page
    app.include_router(_router, include_in_schema=False)


async def _page(request: Request) -> Page:
    page: Page = request.app.state.page
    return page


PageOf = Annotated[Page, Depends(_page)]
"""A parameter of a route: the page of the server."""


@_router.get(PAGE_PATH.rstrip("/"))
def to_page() -> Response:
    """Redirects to the page."""
    return RedirectResponse(PAGE_PATH, status_code=302)


@_router.api_route(PAGE_PATH, methods=["GET", "HEAD"])
def show_page(request: Request, page: PageOf) -> Response:
    """Returns the page itself, which has no data."""
    policy = page_policy(request.headers.get("host", "").strip().lower(), ASSETS_PATH)
    headers = {"Cache-Control": "no-cache", "Content-Security-Policy": policy}
    try:
        content = (page.settings.static / "index.html").read_bytes()
    except OSError:
        return Response(_NOT_BUILT, 503, media_type="text/html; charset=utf-8", headers={**headers, **_NO_STORE})
    return tagged(request, content, "text/html; charset=utf-8", headers)


@_router.api_route(ASSETS_PATH + "{name}", methods=["GET", "HEAD"])
def show_asset(request: Request, page: PageOf, name: str) -> Response:
    """Returns a file of the page, whose name has a hash of its content; compressed if the browser accepts that."""
    content = _asset_in(page.settings.static / "assets", name)
    if content is None:
        raise WireError(404, "InvalidAction.NotFound", f"The page has no file {name[:100]!r}.")
    headers = {**IMMUTABLE, "Vary": "Accept-Encoding"}
    for encoding, suffix in _ENCODINGS.items():
        if not _accepts(request, encoding):
            continue
        zipped = _read(page.settings.static / "assets" / f"{name}{suffix}")
        if zipped is not None:
            content, headers["Content-Encoding"] = zipped, encoding
            break
    return Response(content, media_type=_MEDIA_TYPES[Path(name).suffix], headers=headers)


@_router.post(LOGIN_PATH)
def log_in(request: Request, page: PageOf, body: LoginRequest) -> Response:
    """Exchanges the link's code for a cookie and the page's key. It is valid for one use, within a minute."""
    session = page.keys.exchange(body.code)
    if session is None:
        message = f"The link was used or has expired. For a new one: {page.settings.command}"
        raise WireError(403, "CodeNotValid", message, command=page.settings.command)
    cookie, key = session
    response = JSONResponse({"key": key}, headers=_NO_STORE)
    response.set_cookie(
        cookie_name(page.settings.port),
        cookie,
        max_age=SIGNED_IN_S,
        path="/",
        secure=_is_https(request, page),
        httponly=True,
        samesite="strict",
    )
    return response


@_router.delete(LOGIN_PATH)
def log_out(page: PageOf, principal: PrincipalOf) -> Response:
    """Ends the sign-in, so that copies of cookie and key are refused, too, and removes the cookie."""
    if principal.page_session:  # none for a program with the token
        page.keys.end(principal.page_session)
    response = JSONResponse({}, headers=_NO_STORE)
    response.delete_cookie(cookie_name(page.settings.port), httponly=True, samesite="strict")
    return response


@_router.get(ABOUT_PATH)
def describe_server(request: Request, page: PageOf, principal: PrincipalOf) -> Response:
    """Returns the description of the server for the page, the user, and what it offers to them."""
    settings, context = page.settings, request.app.state.context
    visible = context.workspaces.visible(principal) if settings.kind == "service" else []
    about = {
        "kind": settings.kind,
        "place": settings.title,
        "version": __version__,
        "command": settings.command,
        "session": page.session(request.headers.get("host", "")),
        "user": principal.user,
        "right": principal.right,
        "workspaces": [workspace.name for workspace in visible],
        "can": [ability for ability in settings.can if _may(principal, ability)],
    }
    return JSONResponse(about, headers=LIVE)


def _may(principal: Principal, ability: Ability) -> bool:
    """Returns whether a user may do something at all; for a job, its own route returns that."""
    if ability == "admin":
        return principal.has_right("admin")
    if ability == "others" and "admin" not in (principal.right, *principal.workspaces.values()):
        return False
    return ability not in _CHANGES or principal.has_right("submit")


def _asset_in(folder: Path, name: str) -> bytes | None:
    """Returns the content of a file; None unless the build writes files of such names."""
    if not _ASSET.fullmatch(name) or Path(name).suffix not in _MEDIA_TYPES:
        return None
    return _read(folder / name)


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _accepts(request: Request, encoding: str) -> bool:
    """Returns whether the browser accepts an encoding with a weight above 0."""
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name == encoding:
            return weight not in ("0", "0.0", "0.00", "0.000")
    return False


def _is_https(request: Request, page: Page) -> bool:
    """Returns whether the browser has reached the server by HTTPS: through a proxy, as its origin says."""
    host = request.headers.get("host", "").strip().lower()
    origins = page.names.origins(host)
    origin = request.headers.get("origin", "").lower()
    return (origin if origin in origins else origins[0]).startswith("https://")
