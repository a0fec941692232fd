"""The server of `pai-sdk ui DIR`: the runs of a folder behind the guard, and the page."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp

from pai_sdk._service.http.gate import Gate
from pai_sdk._service.http.listening import listen_on, url_of
from pai_sdk._service.http.page_requests import PAGE_PATH
from pai_sdk._service.http_server import HttpServer
from pai_sdk._service.process import prepare_threads
from pai_sdk._service.routes.json_responses import add_refusals, refusal
from pai_sdk._service.routes.runs.routers import ROUTERS
from pai_sdk._service.services.budgets import Shares
from pai_sdk._service.services.runs.folder_runs import FolderRuns
from pai_sdk._service.services.runs.source import RunSource
from pai_sdk._service.services.tickets import Tickets
from pai_sdk._service.settings import ConnectionLimits
from pai_sdk._service.web.browser_guard import SAFETY_HEADERS
from pai_sdk._service.web.host_names import check_name, names_of_address
from pai_sdk._service.web.page import STATIC_FOLDER, Ability, Page, PageSettings
from pai_sdk._service.web.page_routes import add_page
from pai_sdk._service.web.pipeline_routes import PipelineSource, add_pipelines
from pai_sdk._service.wire_errors import WireError

_MAX_BODY_BYTES = 1 << 20
_CONNECTIONS = 200
_ABILITIES: tuple[Ability, ...] = ("files", "trace", "media")


@dataclass(frozen=True)
class _UiContext:
    """The objects that the routes read from."""

    runs: RunSource


def create_ui(runs: RunSource, page: Page, pipelines: PipelineSource | None = None) -> ASGIApp:
    """Returns the application that displays runs, and runs of pipelines, on a page."""
    app = FastAPI(title="pai-sdk ui", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.context, app.state.shares, app.state.downloads = _UiContext(runs), Shares(), Tickets()
    for router in ROUTERS:
        app.include_router(router)
    add_page(app, page)
    if pipelines is not None:
        add_pipelines(app, lambda principal, work: pipelines)
    app.add_api_route("/", lambda: RedirectResponse(PAGE_PATH, status_code=302), include_in_schema=False)
    add_refusals(app)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        # Starlette raises the error again after this response is sent; the gate logs it.
        return refusal(request, WireError(500, "InternalError", "The server failed; its log has the details."))

    return Gate(
        app,
        page.guard().admit,
        max_body_bytes=_MAX_BODY_BYTES,
        headers=SAFETY_HEADERS,
        refusal=page.ended.refusal,
    )


@dataclass(frozen=True)
class UiSettings:
    """The settings of the server."""

    logdir: str | Path  # the folder of runs, or its URI
    host: str = "127.0.0.1"
    port: int = 0  # 0 selects a free one
    # Besides loopback and `host`; `https://NAME` for one behind a proxy that adds TLS.
    names: Sequence[str] = ()
    token: str = ""  # for programs, as `Authorization: Bearer`; empty for none
    pipelines: PipelineSource | None = None  # None ignores runs of pipelines in the folder
    static: Path = STATIC_FOLDER

    def __repr__(self) -> str:
        return f"UiSettings(logdir={str(self.logdir)!r}, host={self.host!r}, port={self.port})"


class UiServer:
    """Serves the runs of one folder; `run` serves, `stop` ends that from any thread."""

    def __init__(self, settings: UiSettings) -> None:
        self._settings = settings
        self._listener: socket.socket = listen_on(settings.host, settings.port)
        self.port: int = self._listener.getsockname()[1]
        self._runs = FolderRuns(settings.logdir)
        self._page = Page(_page_settings(settings, self.port))
        app = create_ui(self._runs, self._page, settings.pipelines)
        self._server = HttpServer(
            app,
            ConnectionLimits(max_connections=_CONNECTIONS),
            on_end=lambda: setattr(self._runs, "is_closing", True),
        )

    @property
    def url(self) -> str:
        """Returns the address without a code."""
        return _url(self._settings, self.port)

    def new_link(self, run_id: str | None = None) -> str:
        """Returns a link for a browser, to the list or to one run, valid for one use within a minute."""
        pipelines = self._settings.pipelines
        # In a folder with runs of pipelines, the list is that of the pipelines.
        view = "pipelines" if run_id is None and pipelines is not None and pipelines.rows() else None
        return self._page.new_link(urlsplit(self.url).netloc, run_id, view=view)

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serves until `stop`."""
        prepare_threads()
        self._server.on_ready = on_ready
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._runs.close()
            self._listener.close()

    def stop(self) -> None:
        """Stops the server; returns at once."""
        self._server.should_exit = True


def _page_settings(settings: UiSettings, port: int) -> PageSettings:
    return PageSettings(
        kind="folder",
        title=str(settings.logdir.absolute() if isinstance(settings.logdir, Path) else settings.logdir),
        command=shlex.join(["pai-sdk", "ui", str(settings.logdir)]),
        endpoint=_url(settings, port),
        port=port,
        can=(*_ABILITIES, "pipelines") if settings.pipelines is not None else _ABILITIES,
        names=[*names_of_address(settings.host), *settings.names],
        token=settings.token,
        static=settings.static,
    )


def _url(settings: UiSettings, port: int) -> str:
    scheme, name = check_name(settings.names[0]) if settings.names else ("", settings.host)
    return f"https://{name}" if scheme == "https" else url_of(name, port)
