"""The requests of the page that a service shows in browsers."""

from __future__ import annotations

from starlette.types import Scope

PAGE_PATH = "/ui/"
"""The path of the page. Names of buckets are longer, so it is the path of no object."""

PAGE_HEADER = "x-pai-ui"
"""The header that only scripts of the page send, as proof that they have the key of the page."""


def is_for_page(scope: Scope) -> bool:
    """Returns whether a request is for the page itself, or comes from its scripts."""
    path: str = scope["path"]
    if path == PAGE_PATH.rstrip("/") or path.startswith(PAGE_PATH):
        return True
    names = {name for name, _ in scope["headers"]}
    return PAGE_HEADER.encode() in names and b"authorization" not in names
