"""The server of `pai-sdk ui`: on loopback, until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from pai_sdk.service.http.guarded_connections import cut_the_slow, end_all_for_shutdown, guarded_protocol
from pai_sdk.service.http.listening import listen_on
from pai_sdk.service.runs.folder_runs import FolderRuns
from pai_sdk.service.settings import ConnectionLimits
from pai_sdk.service.web.browser_keys import BrowserKeys
from pai_sdk.service.web.ui_app import PAGE_PATH, create_ui

__all__ = ["UiServer", "UiSettings"]

_LOOK_S = 1.0
_GRACE_S = 1.0
_KEEP_ALIVE_S = 75
_CONNECTIONS = 200


@dataclass(frozen=True)
class UiSettings:
    """What the page is served with.

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
        self._server = _Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=guarded_protocol(ConnectionLimits(most=_CONNECTIONS)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=3,
            )
        )

    @property
    def url(self) -> str:
        """Where it is, without a code."""
        host = self._settings.names[0] if self._settings.names else self._settings.host
        host = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{self.port}"

    def new_link(self) -> str:
        """A link for a browser: it is valid once, for a minute. The code is in no request and in no log."""
        return f"{self.url}{PAGE_PATH}#{self._keys.new_code()}"

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`."""
        self._server.on_ready = on_ready
        self._server.on_end = lambda: setattr(self._runs, "is_closing", True)
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._runs.close()
            self._listener.close()

    def stop(self) -> None:
        """End; returns at once."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn, which ends slow connections, and streams when it stops."""

    on_ready: Callable[[], None] = staticmethod(lambda: None)
    on_end: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._watching = asyncio.create_task(self._watch())
        self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.on_end()
        self._watching.cancel()
        ending = asyncio.create_task(self._end_after_grace())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end_after_grace(self) -> None:
        await asyncio.sleep(_GRACE_S)
        end_all_for_shutdown(self.server_state.connections)

    async def _watch(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(_LOOK_S)
            cut_the_slow(self.server_state.connections)
