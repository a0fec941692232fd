"""The page of a server: its addresses, its guard, its files, and its description of the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pai_sdk._service.http.page_requests import PAGE_PATH
from pai_sdk._service.identity.page_sessions import EndedPageSessions
from pai_sdk._service.identity.principal import KeyRing
from pai_sdk._service.identity.rate import KeyRates
from pai_sdk._service.web.browser_guard import BrowserGuard
from pai_sdk._service.web.browser_keys import BrowserKeys
from pai_sdk._service.web.host_names import HostNames

LOGIN_PATH = f"{PAGE_PATH}session"
ABOUT_PATH = f"{PAGE_PATH}about"
ASSETS_PATH = f"{PAGE_PATH}assets/"
DOWNLOADS_PATH = f"{PAGE_PATH}download/"
"""The prefix of one-time addresses of files: each ends with a ticket, which is its only secret."""

STATIC_FOLDER = Path(__file__).parent / "static"
"""The built files of the page."""

Ability = Literal[
    "stop", "rerun", "delete", "annotate", "files", "trace", "usage", "media", "pipelines", "others", "admin"
]
_REQUESTS_PER_S = 1000.0


@dataclass(frozen=True)
class PageSettings:
    """The description of a server, and where its page is."""

    kind: Literal["service", "folder"]  # runs jobs, or displays the runs of a folder
    title: str
    command: str  # what a user types for a new link
    endpoint: str  # for clients
    port: int
    session: str = ""  # Python that opens a session, with `{url}` for the service's address; empty without jobs
    can: Sequence[Ability] = ()  # the actions that the page offers
    names: Iterable[str] = ()  # in `Host`, besides loopback; `https://NAME` for one behind a proxy that adds TLS
    secret: bytes | None = None  # signs the cookies; without one they end with the process
    token: str = ""  # for programs
    scheme: Literal["http", "https"] = "http"  # `https` for a server that speaks TLS itself
    static: Path = STATIC_FOLDER

    def __repr__(self) -> str:
        return f"PageSettings({self.kind!r}, {self.title!r}, {self.endpoint!r})"


class Page:
    """The page of one server; `keys` sign browsers in, `names` are the allowed host names."""

    def __init__(self, settings: PageSettings, ended: EndedPageSessions | None = None) -> None:
        self.settings = settings
        self.ended = EndedPageSessions() if ended is None else ended
        self.keys = BrowserKeys(settings.secret, settings.token, ended=self.ended)
        self.names = HostNames(settings.names, scheme=settings.scheme)

    def guard(self, users: KeyRing | None = None) -> BrowserGuard:
        """Returns the guard of the page's requests; without `users`, only the service's key is valid."""
        return BrowserGuard(
            self.keys,
            port=self.settings.port,
            names=self.names,
            open_paths=[PAGE_PATH, PAGE_PATH.rstrip("/"), "/"],
            open_folders=[ASSETS_PATH, DOWNLOADS_PATH],
            login_path=LOGIN_PATH,
            command=self.settings.command,
            rates=KeyRates(_REQUESTS_PER_S),
            users=users,
        )

    def link(self, host: str, run_id: str | None = None) -> str:
        """Returns the address of the page, or of one run on it, for a browser that is signed in."""
        # The server's endpoint if browsers may not use `host`, the header of a client.
        return f"{self._address(host)}{_fragment(run_id=run_id)}"

    def new_link(
        self, host: str, run_id: str | None = None, *, access_key_id: str = "", view: str | None = None
    ) -> str:
        """Returns an address with a one-time code for the sign-in. It is in the fragment, and so in no log."""
        code = self.keys.new_code(access_key_id)
        return f"{self._address(host)}{_fragment(code=code, run_id=run_id, view=view)}"

    def session(self, host: str) -> str:
        """Returns Python that opens a session of the service under the name that a browser uses."""
        return self.settings.session.replace("{url}", self._origin(host))

    def _address(self, host: str) -> str:
        return f"{self._origin(host)}{PAGE_PATH}"

    def _origin(self, host: str) -> str:
        origins = self.names.origins(host.strip().lower())
        return origins[0] if origins else self.settings.endpoint


def _fragment(*, code: str | None = None, run_id: str | None = None, view: str | None = None) -> str:
    fields = {"code": code, "run": run_id, "view": view}
    parts = [f"{name}={quote(text, safe='')}" for name, text in fields.items() if text]
    return f"#{'&'.join(parts)}" if parts else ""
