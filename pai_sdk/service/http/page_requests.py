"""The requests of the page that a service shows in browsers, and the addresses of that page."""

from __future__ import annotations

from typing import Protocol

from starlette.types import Scope

__all__ = ["PAGE_HEADER", "PAGE_PATH", "PAGE_SESSION", "PageAddresses", "is_for_page"]

PAGE_PATH = "/ui/"
"""The path of the page. No bucket has such a short name, so no object has such an address."""

PAGE_HEADER = "x-pai-ui"
"""The header that only scripts of the page send: it proves that they have the key of the page."""

PAGE_SESSION = "page_session"
"""Of the state of a request: true if a signed-in browser sent it, not a client with an access key."""


class PageAddresses(Protocol):
    """The addresses of the page of a service."""

    def link(self, host: str, run_id: str | None = None) -> str:
        """The address of the page, or of one run on it, for a browser that is signed in.

        Args:
            host: the header `Host` of a client; browsers under that name and port are led there.
            run_id: which run.
        """
        ...

    def new_link(self, host: str, run_id: str | None = None, *, access_key_id: str = "") -> str:
        """The same with a code that signs a browser in once, within a minute."""
        ...


def is_for_page(scope: Scope) -> bool:
    """True for requests of browsers: for the page itself, and those that its scripts send."""
    path: str = scope["path"]
    if path == PAGE_PATH.rstrip("/") or path.startswith(PAGE_PATH):
        return True
    names = {name for name, _ in scope["headers"]}
    return PAGE_HEADER.encode() in names and b"authorization" not in names
